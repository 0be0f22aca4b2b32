"""Putting saved trees back into the objects that they came from."""

from __future__ import annotations

import sys
from collections.abc import Mapping, MutableMapping, MutableSequence
from typing import TYPE_CHECKING, Any

from lifecycle.checkpoint.adapters import adapter
from lifecycle.checkpoint.arrays import is_array, is_known, library

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Differences", "restored"]


class Differences:
    """What differs between objects and the saved state that should go into them.

    Keys are compared in dicts that hold arrays or objects, and at the top of the state
    of an object that already has some; all deeper is for the object itself to judge.
    """

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.different: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.different)

    def compare(self, now: Any, saved: Any, path: str) -> None:
        """Note what differs, and where."""
        adapted = adapter(now)
        if adapted is not None:
            state = adapted.save(now)
            if isinstance(state, Mapping) and state and isinstance(saved, Mapping):
                self.compare_keys(state, saved, path)
        elif is_known(now):
            self._compare_array(now, saved, path)
        elif isinstance(now, Mapping) and _holds_more(now):
            self._compare_mapping(now, saved, path)
        elif isinstance(now, list | tuple) and _holds_more(now):
            self._compare_sequence(now, saved, path)

    def compare_keys(self, now: Mapping[Any, Any], saved: Mapping[Any, Any], path: str) -> None:
        """Note which keys only one of two mappings has."""
        self.missing += [_join(path, key) for key in now if key not in saved]
        self.unexpected += [_join(path, key) for key in saved if key not in now]

    def _compare_mapping(self, now: Mapping[Any, Any], saved: Any, path: str) -> None:
        if not isinstance(saved, Mapping):
            self.different.append(f"{path} (saved {_described(saved)}, here {_described(now)})")
            return
        self.compare_keys(now, saved, path)
        for key, value in now.items():
            if key in saved:
                self.compare(value, saved[key], _join(path, key))

    def _compare_sequence(self, now: Any, saved: Any, path: str) -> None:
        if not isinstance(saved, list | tuple) or len(saved) != len(now):
            self.different.append(f"{path} (saved {_described(saved)}, here {_described(now)})")
            return
        for index, (each, other) in enumerate(zip(now, saved, strict=True)):
            self.compare(each, other, _join(path, index))

    def _compare_array(self, now: Any, saved: Any, path: str) -> None:
        if not is_array(saved) or _kind(saved) != _kind(now):
            self.different.append(f"{path} (saved {_described(saved)}, here {_described(now)})")


def restored(now: Any, saved: Any) -> Any:
    """Put a saved state into an object, and return what shall stand in its place.

    That is the object itself wherever it can be written to, since others may hold on to
    it. `saved` is not used for anything else afterwards.
    """
    adapted = adapter(now)
    if adapted is not None:
        made = adapted.load(now, saved)
        return now if made is None else made
    if is_known(now):
        return _restored_array(now, saved)
    if isinstance(now, Mapping) and isinstance(saved, Mapping):
        return _restored_mapping(now, saved)
    if isinstance(now, MutableSequence) and isinstance(saved, list):
        now[:] = _items(now, saved)
        return now
    if isinstance(now, tuple) and isinstance(saved, tuple):
        items = _items(now, saved)
        return type(now)(*items) if hasattr(now, "_fields") else type(now)(items)
    return saved


def _items(now: Any, saved: Any) -> list[Any]:
    if len(now) != len(saved):
        return list(saved)
    return [restored(each, other) for each, other in zip(now, saved, strict=True)]


def _restored_mapping(now: Mapping[Any, Any], saved: Mapping[Any, Any]) -> Any:
    found = {
        key: restored(now[key], value) if key in now else value for key, value in saved.items()
    }
    if not isinstance(now, MutableMapping):
        return type(now)(found)  # type: ignore[call-arg]  # as mappings that are frozen do
    for key in [key for key in now if key not in found]:
        del now[key]
    now.update(found)
    return now


def _restored_array(now: Any, saved: Any) -> Any:
    owner = library(now)
    if owner == "torch":
        now.detach().copy_(saved)  # shares memory with it, and is no part of any graph
        return now
    if owner == "numpy" and getattr(getattr(now, "flags", None), "writeable", False):
        now[...] = saved
        return now
    if owner == "jax":
        return sys.modules["jax"].device_put(saved, now.sharding)
    return saved


def _holds_more(value: Any) -> bool:
    """Whether there are arrays or objects in a container, in which keys matter."""
    return any(
        is_known(each)
        or adapter(each) is not None
        or (isinstance(each, Mapping | list | tuple) and _holds_more(each))
        for each in _values(value)
    )


def _values(value: Any) -> Iterator[Any]:
    return iter(value.values() if isinstance(value, Mapping) else value)


def _kind(array: Any) -> tuple[tuple[int, ...], str]:
    return tuple(array.shape), str(array.dtype).removeprefix("torch.")


def _described(value: Any) -> str:
    if is_array(value):
        shape, dtype = _kind(value)
        return f"{dtype} {list(shape)}"
    if isinstance(value, Mapping | list | tuple):
        return f"{type(value).__name__} of {len(value)}"
    return repr(value)[:40]


def _join(path: str, key: object) -> str:
    return f"{path}/{key}" if path else str(key)
