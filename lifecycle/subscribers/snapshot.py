"""Copies of the loop's objects, and putting them back.

An object is one with `state_dict` and `load_state_dict`, an array of NumPy, torch or
JAX, or dicts, lists and tuples of such. Nothing is imported for it: arrays are known
by what they can do.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, MutableSequence
from typing import Any

__all__ = ["blend", "capture", "copied", "is_restorable", "is_stateful", "restore", "widened"]


def is_array(value: object) -> bool:
    """Whether a value is an array of some library."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def is_stateful(value: object) -> bool:
    """Whether a value tells its state and takes one."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def is_restorable(value: object) -> bool:
    """Whether a value can be captured and put back, as the loop's objects can."""
    return is_stateful(value) or is_array(value) or isinstance(value, Mapping | list | tuple)


def _rebuilt(tree: Any, leaves: list[Any]) -> Any:
    """Return a sequence of the kind of `tree` with other items."""
    if hasattr(tree, "_fields"):  # a named tuple takes its items one by one
        return type(tree)(*leaves)
    return type(tree)(leaves)


def copied(tree: Any) -> Any:
    """Return a copy of arrays, nested in dicts, lists and tuples, that shares no memory with it."""
    if isinstance(tree, Mapping):
        pairs = {key: copied(value) for key, value in tree.items()}
        return pairs if isinstance(tree, dict) else type(tree)(pairs)  # type: ignore[call-arg]
    if isinstance(tree, list | tuple):
        return _rebuilt(tree, [copied(value) for value in tree])
    if hasattr(tree, "detach") and hasattr(tree, "clone"):
        return tree.detach().clone()
    if is_array(tree) and hasattr(tree, "copy"):
        return tree.copy()
    return copy.deepcopy(tree)


def capture(thing: Any) -> Any:
    """Return a copy of an object's state, or of the arrays that it is."""
    return copied(thing.state_dict() if is_stateful(thing) else thing)


def restore(holder: Any, key: Any, saved: Any) -> None:
    """Put a captured state back where ``holder[key]`` is.

    What can be written in place is, since others may hold on to it; the rest is
    replaced in the holder.
    """
    current = holder[key]
    if is_stateful(current):
        current.load_state_dict(copied(saved))
    elif isinstance(current, MutableMapping):
        for name in [name for name in current if name not in saved]:
            del current[name]
        for name, value in saved.items():
            _restore_or_add(current, name, value)
    elif isinstance(current, MutableSequence) and len(current) == len(saved):
        for index, value in enumerate(saved):
            restore(current, index, value)
    elif not _written_in_place(current, saved):
        holder[key] = _like(current, saved)


def _restore_or_add(mapping: MutableMapping[Any, Any], name: Any, value: Any) -> None:
    if name in mapping:
        restore(mapping, name, value)
    else:
        mapping[name] = copied(value)


def _written_in_place(current: Any, saved: Any) -> bool:
    if not is_array(current) or tuple(current.shape) != tuple(getattr(saved, "shape", ())):
        return False
    if hasattr(current, "detach") and hasattr(current, "copy_"):
        current.detach().copy_(saved)  # shares memory with it, and is no part of any graph
        return True
    if getattr(getattr(current, "flags", None), "writeable", False):
        current[...] = saved
        return True
    return False


def _like(current: Any, saved: Any) -> Any:
    """Return a copy of a saved value, of the element type that stands there now."""
    if is_array(current) and is_array(saved) and current.dtype != saved.dtype:
        return saved.astype(current.dtype)
    if isinstance(current, tuple) and isinstance(saved, list | tuple):
        pairs = zip(current, saved, strict=True)
        return _rebuilt(current, [_like(now, then) for now, then in pairs])
    return copied(saved)


def widened(tree: Any) -> Any:
    """Return a copy whose floating arrays have at least 32 bits, so that small changes add up."""
    if isinstance(tree, Mapping):
        return {key: widened(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return _rebuilt(tree, [widened(value) for value in tree])
    fresh = copied(tree)
    if is_array(fresh) and "float" in str(fresh.dtype) and fresh.dtype.itemsize < 4:  # noqa: PLR2004
        return fresh.float() if hasattr(fresh, "detach") else fresh.astype("float32")
    return fresh


def blend(average: Any, value: Any, keep: float) -> Any:
    """Return ``keep * average + (1 - keep) * value`` over a tree of arrays.

    Only floating and complex arrays are averaged, in place where they can be; all
    else is taken over from `value` as it is.
    """
    if isinstance(value, Mapping):
        return {
            key: blend(average[key], item, keep) if key in average else widened(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple) and len(value) == len(average):
        pairs = zip(average, value, strict=True)
        return _rebuilt(value, [blend(old, new, keep) for old, new in pairs])
    kind = str(getattr(value, "dtype", ""))
    if "float" not in kind and "complex" not in kind:
        return copied(value)
    if hasattr(average, "detach") and hasattr(average, "lerp_"):
        return average.lerp_(value.detach().to(average.dtype), 1.0 - keep)
    if getattr(getattr(average, "flags", None), "writeable", False):
        average *= keep
        average += (1.0 - keep) * value
        return average
    return average * keep + value * (1.0 - keep)
