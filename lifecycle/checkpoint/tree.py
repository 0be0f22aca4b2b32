"""Nested dicts, lists and values as JSON with the arrays set apart, and back, exactly.

JSON has no tuples, bytes, NaN, or keys that are not strings. A value that it cannot hold
is written as an object with one key that begins with ``$``: ``{"$tuple": [1, 2]}``. What
is read is looked up in a fixed table of such tags; none names a class or a function.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lifecycle.checkpoint import arrays

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle.checkpoint.arrays import Leaf
    from lifecycle.checkpoint.tensorfile import Stored

__all__ = ["Encoder", "UnsavableError", "decode"]

TAG: Final = "$"


class UnsavableError(TypeError):
    """A value is of a kind that a checkpoint cannot hold."""


class Encoder:
    """Turns trees into JSON values, and collects their arrays by name.

    Args:
        stem: the name of the file that the arrays go into, without its suffix.
        adapt: returns the state of an object as a tree, in a tuple; None if it has none.
    """

    def __init__(
        self, stem: str, adapt: Callable[[Any], tuple[Any] | None] = lambda _: None
    ) -> None:
        self.stem = stem
        self.leaves: dict[str, Leaf] = {}
        """The arrays by their names in the file."""
        self._adapt = adapt
        self._names: dict[tuple[Any, ...], str] = {}

    def encode(self, value: Any, path: str = "") -> Any:  # noqa: PLR0911 -- a table of kinds
        """Return a value as JSON holds it.

        Args:
            value: what to encode.
            path: the keys that lead to it, joined with slashes.

        Raises:
            UnsavableError: it, or something in it, cannot be saved.
            ImportError: there are arrays in it and NumPy is not installed.
        """
        if value is None or value.__class__ in (bool, int, str):
            return value
        if value.__class__ is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        adapted = None if value.__class__ in (dict, list, tuple) else self._adapt(value)
        if adapted is not None:
            return self.encode(adapted[0], path)
        if isinstance(value, Mapping):
            return self._mapping(value, path)
        if isinstance(value, list | tuple | set | frozenset):
            return self._sequence(value, path)
        if arrays.is_array(value) and arrays.library(value) is not None:
            return self._array(value, path)
        return self._scalar(value, path)

    def _mapping(self, value: Mapping[Any, Any], path: str) -> Any:
        if all(key.__class__ is str and not key.startswith(TAG) for key in value):
            return {key: self.encode(item, _join(path, key)) for key, item in value.items()}
        pairs = []
        for key, item in value.items():
            # No arrays: as a key, one would be lost among those of the values.
            if not isinstance(key, str | int | float | bool | bytes | tuple | None):
                raise UnsavableError(f"{self._place(path)} has a key that cannot be saved: {key!r}")
            pairs.append([self.encode(key, path), self.encode(item, _join(path, key))])
        return {"$dict": pairs}

    def _sequence(self, value: Any, path: str) -> Any:
        if isinstance(value, set | frozenset):
            items = sorted(value, key=lambda item: (type(item).__name__, repr(item)))
            tag = "$set" if isinstance(value, set) else "$frozenset"
            return {tag: [self.encode(item, path) for item in items]}
        found = [self.encode(item, _join(path, index)) for index, item in enumerate(value)]
        return {"$tuple": found} if isinstance(value, tuple) else found

    def _scalar(self, value: Any, path: str) -> Any:
        if isinstance(value, bytes | bytearray):
            tag = "$bytes" if isinstance(value, bytes) else "$bytearray"
            return {tag: base64.b64encode(value).decode("ascii")}
        if isinstance(value, complex):
            return {"$complex": [self.encode(part, path) for part in (value.real, value.imag)]}
        for kind in (bool, int, float, str):  # a subclass, such as an enumeration's member
            if isinstance(value, kind):
                return self.encode(kind(value), path)
        raise UnsavableError(
            f"{self._place(path)} is a {type(value).__module__}.{type(value).__qualname__}, which a"
            " checkpoint cannot hold: give it state_dict and load_state_dict, or say how it is"
            " saved with lifecycle.checkpoint.register_adapter"
        )

    def _array(self, value: Any, path: str) -> Any:
        try:
            leaf = arrays.leaf(value)
        except TypeError as error:
            raise UnsavableError(
                f"{self._place(path)} is {error}; a checkpoint cannot hold it"
            ) from error
        if arrays.library(value) == "numpy" and not hasattr(value, "__setitem__"):
            data = base64.b64encode(leaf.data.tobytes()).decode("ascii")
            return {"$scalar": [leaf.dtype, data]}
        place = leaf.data.__array_interface__["data"][0]
        same = (place, leaf.data.nbytes, leaf.dtype, leaf.shape)
        name = self._names.get(same) if leaf.data.nbytes else None
        if name is None:
            name = self._free(path)
            self.leaves[name] = leaf
            self._names[same] = name
        return {
            "$array": f"{self.stem}/{name}",
            "dtype": leaf.dtype,
            "shape": list(leaf.shape),
            "library": leaf.library,
            **({} if leaf.extra is None else {"extra": leaf.extra}),
        }

    def _free(self, path: str) -> str:
        """Return a name that no other array has; 1 and "1" may both be keys."""
        name, number = path or self.stem, 1
        while name in self.leaves:
            number += 1
            name = f"{path}~{number}"
        return name

    def _place(self, path: str) -> str:
        return _join(self.stem, path) if path else self.stem


def _join(path: str, key: object) -> str:
    return f"{path}/{key}" if path else str(key)


def decode(value: Any, stored: Mapping[str, Stored]) -> Any:
    """Return the tree that a JSON value stands for.

    Args:
        value: what `Encoder.encode` has returned, after a way through JSON.
        stored: the arrays by name.

    Raises:
        ValueError: it does not stand for any, or lacks arrays.
    """
    if isinstance(value, list):
        return [decode(item, stored) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if not tag.startswith(TAG):
        return {key: decode(item, stored) for key, item in value.items()}
    try:
        if tag == "$array":
            return _array(value, stored)
        return _UNTAGGED[tag](value[tag], stored)
    except (KeyError, TypeError) as error:
        raise ValueError(f"cannot make sense of {str(value)[:200]}: {error!r}") from error


def _array(value: Mapping[str, Any], stored: Mapping[str, Stored]) -> Any:
    name, dtype, shape = value["$array"], value["dtype"], tuple(value["shape"])
    there = stored[name]
    if dtype in arrays.NAMES and (there.dtype, there.shape) != (dtype, shape):
        raise ValueError(
            f"the array is {there.dtype} {list(there.shape)} in its file, not {dtype} {list(shape)}"
        )
    return arrays.build(there.data, dtype, shape, value["library"], value.get("extra"))


def _scalar(value: Any, _stored: Mapping[str, Stored]) -> Any:
    dtype, data = value
    array = arrays.build(memoryview(base64.b64decode(data)), dtype, (1,), "numpy", None)
    return array[0]


_UNTAGGED: Final[Mapping[str, Callable[[Any, Mapping[str, Stored]], Any]]] = {
    "$dict": lambda pairs, stored: {decode(k, stored): decode(v, stored) for k, v in pairs},
    "$tuple": lambda items, stored: tuple(decode(item, stored) for item in items),
    "$set": lambda items, stored: {decode(item, stored) for item in items},
    "$frozenset": lambda items, stored: frozenset(decode(item, stored) for item in items),
    "$float": lambda text, _: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[text],
    "$bytes": lambda text, _: base64.b64decode(text, validate=True),
    "$bytearray": lambda text, _: bytearray(base64.b64decode(text, validate=True)),
    "$complex": lambda parts, stored: complex(*(decode(part, stored) for part in parts)),
    "$scalar": _scalar,
}
