"""What goes into a checkpoint comes out of it, exactly."""

from __future__ import annotations

import json
import math
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lifecycle.checkpoint import UnsavableError, tensorfile
from lifecycle.checkpoint.tree import Encoder, decode


def through(value: Any, folder: Path) -> Any:
    """Send a tree through the files of a checkpoint."""
    encoder = Encoder("run")
    text = json.dumps(encoder.encode(value), allow_nan=False)
    path = folder / "run.safetensors"
    path.unlink(missing_ok=True)
    stored = tensorfile.read(path, tensorfile.write(path, encoder.leaves))
    return decode(json.loads(text), {f"run/{name}": each for name, each in stored.items()})


def same(one: Any, other: Any) -> bool:
    """Compare also types, NaN and the order of keys."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=True)
        return len(one) == len(other) and all(same(a, b) for a, b in pairs)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return repr(one) == repr(other)
    return bool(one == other)


keys = st.text() | st.integers() | st.booleans() | st.binary() | st.tuples(st.integers(), st.text())
plain: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.complex_numbers(allow_nan=False),
    st.frozensets(st.integers()),
)
trees = st.recursive(
    plain,
    lambda inner: st.lists(inner) | st.dictionaries(keys, inner) | st.lists(inner).map(tuple),
)


@settings(deadline=None)
@given(trees)
def test_plain_values_come_back(value: Any) -> None:
    """Any nesting of plain values is the same after a way through strict JSON."""
    text = json.dumps(Encoder("run").encode(value), allow_nan=False)
    assert same(decode(json.loads(text), {}), value)


DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "longdouble", "complex64", "complex128"),
    *(">f4", ">i8", "datetime64[ns]", "timedelta64[s]", "S3", "U4"),
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)])
def test_numpy_arrays_come_back(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    """Arrays keep element type, shape and every bit, and can be written to."""
    count = math.prod(shape)
    array = np.arange(count).reshape(shape).astype(dtype)
    back = through({"a": array}, tmp_path)["a"]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable or not count


def test_memory_layout_does_not_matter(tmp_path: Path) -> None:
    """Strided, reversed and Fortran-ordered arrays come back with the same values."""
    base = np.arange(24.0).reshape(4, 6)
    views = [base[::2, ::3], base[::-1], base.T, np.asfortranarray(base), base[1:1]]
    for view, back in zip(views, through(views, tmp_path), strict=True):
        assert np.array_equal(view, back)


def test_scalars_of_numpy_stay_what_they_are(tmp_path: Path) -> None:
    """A NumPy scalar comes back as one, not as a Python number or an array."""
    scalars: list[Any] = [
        np.float32(0.1),
        np.int16(-3),
        np.bool_(True),
        np.float64("nan"),
        np.str_("x"),
    ]
    for scalar, back in zip(scalars, through(scalars, tmp_path), strict=True):
        assert type(back) is type(scalar)
        assert back.tobytes() == scalar.tobytes()


def test_an_array_that_stands_twice_is_written_once(tmp_path: Path) -> None:
    """Tied weights take their space once."""
    weight = np.ones(1000)
    through({"in": weight, "out": weight}, tmp_path)
    assert (tmp_path / "run.safetensors").stat().st_size < 9000


def test_equal_names_of_arrays_do_not_collide(tmp_path: Path) -> None:
    """The keys 1 and "1" hold two arrays."""
    back = through({1: np.zeros(2), "1": np.ones(2)}, tmp_path)
    assert back[1].tolist() == [0, 0]
    assert back["1"].tolist() == [1, 1]


def test_kinds_of_containers(tmp_path: Path) -> None:
    """Mappings come back as dicts, named tuples as tuples, numbers' subclasses as numbers."""
    pair = namedtuple("pair", "a b")  # noqa: PYI024 -- as others have them
    flag = type("Flag", (int,), {})(3)
    value = [OrderedDict(a=1), pair(1, np.zeros(1)), flag, bytearray(b"x"), {1, 2}]
    back = through(value, tmp_path)
    assert back[0] == {"a": 1}
    assert back[1] == (1, 0.0)
    assert back[2:] == [3, bytearray(b"x"), {1, 2}]


def test_a_key_like_a_tag_is_no_tag(tmp_path: Path) -> None:
    """Keys that begin with a dollar are just keys."""
    value = {"$tuple": [1], "$array": "x"}
    assert through(value, tmp_path) == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [object()]}, "run/a/0 is a builtins.object, which a checkpoint cannot hold"),
        ({"a": np.array([object()])}, "run/a is an array of object"),
        ({"a": np.zeros(2, "i4,i4")}, "run/a is an array of"),
        ({"a": np.ma.masked_equal([1, 2], 1)}, "run/a is an array of type numpy.ma"),
        ({object(): 1}, "run has a key that cannot be saved"),
        ({"f": len}, "run/f is a builtins.builtin_function_or_method"),
    ],
)
def test_what_cannot_be_saved_is_named(value: Any, message: str) -> None:
    """The message says where it stands and what it is."""
    with pytest.raises(UnsavableError) as caught:
        Encoder("run").encode(value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        {"$call": "os.system"},
        {"$tuple": 3},
        {"$float": "1.5"},
        {"$dict": [[[], 1]]},
        {"$array": "run/x", "dtype": "float32", "shape": [1], "library": "numpy"},
        {"$scalar": ["object", "AAAA"]},
        {"$scalar": ["raw:|O8", "AAAAAAAAAAA="]},
    ],
)
def test_what_makes_no_sense_is_refused(value: Any) -> None:
    """A tag that is not known, or does not fit its value, is an error and nothing else."""
    with pytest.raises(ValueError, match=r"."):
        decode(value, {})


class TestTorch:
    @pytest.mark.parametrize(
        "dtype",
        [
            *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16"),
            *("float32", "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"),
        ],
    )
    def test_tensors_come_back(self, dtype: str, tmp_path: Path) -> None:
        """Tensors of every type keep type, shape and every bit, on the host."""
        torch = pytest.importorskip("torch")
        kind = getattr(torch, dtype)
        for tensor in (
            torch.randn(3, 5).to(kind),
            torch.zeros(0, 2, dtype=kind),
            torch.ones((), dtype=kind),
        ):
            back = through([tensor], tmp_path)[0]
            assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
            assert back.reshape(-1).view(torch.uint8).equal(tensor.reshape(-1).view(torch.uint8))

    def test_parameters_and_views_come_back_as_tensors(self, tmp_path: Path) -> None:
        """Gradients are left behind; strides and lazy conjugation make no difference."""
        torch = pytest.importorskip("torch")
        values = [
            torch.nn.Parameter(torch.randn(4, 3)),
            torch.randn(4, 3).T,
            torch.randn(2).cfloat().conj(),
        ]
        for value, back in zip(values, through(values, tmp_path), strict=True):
            assert not back.requires_grad
            assert torch.equal(value.detach().resolve_conj(), back)

    def test_sparse_tensors_are_refused(self) -> None:
        """A tensor that is no plain memory is named, with the way out."""
        torch = pytest.importorskip("torch")
        with pytest.raises(UnsavableError, match="to_dense"):
            Encoder("run").encode({"a": torch.eye(2).to_sparse()})


class TestJax:
    @pytest.mark.parametrize(
        "dtype", ["bool", "int32", "float32", "float16", "bfloat16", "complex64"]
    )
    def test_arrays_come_back(self, dtype: str, tmp_path: Path) -> None:
        """Arrays of every type keep type, shape and every bit, and are JAX's."""
        jax = pytest.importorskip("jax")
        array = jax.numpy.arange(6).reshape(2, 3).astype(dtype)
        back = through([array], tmp_path)[0]
        assert isinstance(back, jax.Array)
        assert back.dtype == array.dtype
        assert np.asarray(back).tobytes() == np.asarray(array).tobytes()

    def test_random_keys_come_back(self, tmp_path: Path) -> None:
        """A key goes on with the same numbers."""
        jax = pytest.importorskip("jax")
        key = jax.random.key(3)
        back = through([key], tmp_path)[0]
        assert jax.random.uniform(back) == jax.random.uniform(key)
