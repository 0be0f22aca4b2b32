"""Arrays of NumPy, torch and JAX as plain bytes, and back, bit for bit.

No library is imported because of what is in a file alone but these three, and torch and
JAX only where an array of theirs was saved and they are installed; else NumPy stands in.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

__all__ = ["INSTALL", "Leaf", "build", "is_array", "is_known", "leaf", "library", "numpy"]

INSTALL: Final = 'a checkpoint needs NumPy: pip install "epochbus[checkpoint]"'

RAW: Final = "raw"
"""How an element type is named here that the file format has no name for: ``raw:<f16``."""

PLAIN_KINDS: Final = "biufcMmSU"
"""NumPy's kinds of elements that hold no references to objects."""


class Leaf(NamedTuple):
    """An array as bytes."""

    data: Bytes
    """Its bytes in C order, flat. Shares the array's memory where that is possible."""

    dtype: str
    """The name of its element type, the same in all libraries."""

    shape: tuple[int, ...]
    library: str
    """Whose it is: ``numpy``, ``torch`` or ``jax``."""

    fresh: bool
    """Whether the bytes are already a copy."""

    extra: str | None = None
    """How the keys of a random generator of JAX are made, for an array of them."""


def numpy() -> Any:
    """Return the numpy module.

    Raises:
        ImportError: it is not installed; says what to install.
    """
    try:
        return importlib.import_module("numpy")
    except ImportError as error:
        raise ImportError(INSTALL, name="numpy") from error


def is_array(value: object) -> bool:
    """Whether a value is an array of some library."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def library(array: object) -> str | None:
    """Return the name of the library that an array belongs to, None if it is none of the three."""
    for kind in type(array).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in {"numpy", "torch", "jax"}:
            return root
        if root == "jaxlib":
            return "jax"
    return None


def is_known(value: object) -> bool:
    """Whether a value is an array of NumPy, torch or JAX. A scalar of NumPy is none."""
    owner = library(value) if is_array(value) else None
    return owner is not None and (owner != "numpy" or hasattr(value, "__setitem__"))


def leaf(array: Any) -> Leaf:
    """Return an array as bytes.

    Raises:
        TypeError: it belongs to no known library, or is of a kind that is no plain memory.
    """
    owner = library(array)
    if owner == "torch":
        return _torch_leaf(array)
    if owner == "jax":
        return _jax_leaf(array)
    if owner == "numpy" and not hasattr(array, "mask"):  # a masked array is more than its data
        return _numpy_leaf(numpy().asarray(array), "numpy")
    raise TypeError(f"an array of type {type(array).__module__}.{type(array).__qualname__}")


def _numpy_leaf(array: Any, owner: str, *, fresh: bool = False, extra: str | None = None) -> Leaf:
    np = numpy()
    dtype = array.dtype
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        raise TypeError(f"an array of {dtype}, which is not made of numbers")
    name = dtype.name
    if dtype.kind in PLAIN_KINDS:
        swapped = dtype.newbyteorder("<") != dtype
        if swapped or dtype.kind in "MmSU" or name not in NAMES:
            name = f"{RAW}:{dtype.str}"
    elif name not in NAMES:
        raise TypeError(f"an array of {dtype}, which no file format has a name for")
    flat = np.ascontiguousarray(array).reshape(-1)
    data = flat.view(np.uint8) if flat.nbytes else np.empty(0, np.uint8)
    fresh = fresh or not np.may_share_memory(flat, array)
    return Leaf(data, name, tuple(array.shape), owner, fresh, extra)


def _torch_leaf(tensor: Any) -> Leaf:
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise TypeError("a sparse, quantized or meta tensor; save its to_dense() or its parts")
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in NAMES and name != "complex128":
        raise TypeError(f"a tensor of {name}, which no file format has a name for")
    plain = tensor.detach().resolve_conj().resolve_neg()
    host = plain.to("cpu").contiguous()
    fresh = host.data_ptr() != tensor.data_ptr()
    data = host.reshape(-1).view(torch.uint8).numpy()
    return Leaf(data, _raw_name(name), tuple(tensor.shape), "torch", fresh)


def _jax_leaf(array: Any) -> Leaf:
    jax = importlib.import_module("jax")
    extra = None
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        extra = str(jax.random.key_impl(array))
        array = jax.random.key_data(array)
    on_host = all(device.platform == "cpu" for device in array.devices())
    return _numpy_leaf(numpy().asarray(array), "jax", fresh=not on_host, extra=extra)


def build(
    data: memoryview, dtype: str, shape: tuple[int, ...], owner: str, extra: str | None
) -> Any:
    """Return an array made of bytes, over the same memory where that is possible.

    Args:
        data: the bytes in C order.
        dtype: the name of the element type.
        shape: of the array.
        owner: the library it shall belong to; NumPy's if that is not installed.
        extra: as in `Leaf`.

    Raises:
        ValueError: bytes, type and shape do not fit together, or the type is not known.
    """
    np = numpy()
    flat = np.frombuffer(data, np.uint8)
    if owner == "torch" and _there("torch"):
        return _torch_array(flat, dtype, shape)
    array = flat.view(_numpy_type(dtype)).reshape(shape)
    if owner == "jax" and _there("jax"):
        jax = importlib.import_module("jax")
        made = jax.numpy.asarray(array)
        if extra is not None:
            return jax.random.wrap_key_data(made, impl=extra)
        return made if made.dtype == array.dtype else array  # where JAX does without 64 bits
    return array


def _torch_array(flat: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    torch = importlib.import_module("torch")
    name = {"raw:<c16": "complex128"}.get(dtype, dtype)
    kind = getattr(torch, name, None) if name in NAMES or name == "complex128" else None
    if not isinstance(kind, torch.dtype):
        raise ValueError(f"torch has no element type {dtype!r}")  # noqa: TRY004 -- of a file
    if not flat.size:
        return torch.empty(shape, dtype=kind)
    return torch.from_numpy(flat).view(kind).reshape(shape)


def _numpy_type(name: str) -> Any:
    np = numpy()
    if name.startswith(f"{RAW}:"):
        dtype = np.dtype(name.removeprefix(f"{RAW}:"))
        if dtype.kind not in PLAIN_KINDS:
            raise ValueError(f"an array is never made of {name!r}")
        return dtype
    if name not in NAMES:
        raise ValueError(f"there is no element type {name!r}")
    if hasattr(np, name if name != "bool" else "bool_"):
        return np.dtype(name).newbyteorder("<")
    if not _there("ml_dtypes"):
        raise ValueError(f"NumPy has no {name} of its own: pip install ml_dtypes")
    return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))


def _raw_name(name: str) -> str:
    return "raw:<c16" if name == "complex128" else name


def _there(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


NAMES: Final = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}
"""What the safetensors format calls the element types that it knows."""
