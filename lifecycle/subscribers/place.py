"""Where a scheduled value stands: an attribute, an item, a setter, an optimizer's groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from lifecycle.loop import Loop

__all__ = ["Place", "Slot"]


class Slot(NamedTuple):
    """One value that can be read and set."""

    get: Callable[[], Any]
    set: Callable[[Any], object]


class Place:
    """The place, or places, of one value.

    Args:
        target: An object, the name of one of the loop's objects, or a function that sets
            the value (then without a key).
        key: What to set on the target. On a mapping or a list, an item; else an
            attribute, dots leading into nested ones (``encoder.dropout.p``). On an object with
            `param_groups`, such as a torch optimizer, the item of every group.

    Raises:
        TypeError: There is a key where there should be none, or the other way round.
    """

    def __init__(self, target: Any, key: str | int | None = None) -> None:
        if key is None and not callable(target):
            raise TypeError(
                f"what of {target!r} is to be set? give the name of an attribute or an item,"
                " or a function that sets the value"
            )
        self.target = target
        self.key = key

    def require_readable(self, why: str) -> None:
        """Refuse a function as the target, which can set the value but not tell it.

        Raises:
            TypeError: It is one; the message begins with `why`.
        """
        if self.key is None:
            raise TypeError(f"{why}, which a setter cannot tell; name an attribute or an item")

    @property
    def name(self) -> str:
        """The name under which the value is logged."""
        if self.key is None:
            return str(getattr(self.target, "__name__", "value")).removeprefix("set_")
        return str(self.key).rpartition(".")[2]

    def slots(self, loop: Loop) -> list[Slot]:
        """Find the value's places now.

        Raises:
            LookupError: The loop has no object of that name, or it has no such item.
            AttributeError: It has no such attribute.
        """
        if self.key is None:
            return [Slot(lambda: None, self.target)]
        target = self._resolved(loop)
        *path, last = str(self.key).split(".") if isinstance(self.key, str) else [self.key]
        groups = getattr(target, "param_groups", None)
        if groups is not None and not path and not hasattr(target, str(last)):
            return [_item_slot(group, last) for group in groups]
        for name in path:
            target = target[name] if isinstance(target, Mapping) else getattr(target, str(name))
        if isinstance(target, MutableMapping | Sequence):
            return [_item_slot(target, last)]
        return [_attribute_slot(target, str(last))]

    def _resolved(self, loop: Loop) -> Any:
        if not isinstance(self.target, str):
            return self.target
        if self.target not in loop.objects:
            there = ", ".join(map(repr, loop.objects)) or "none"
            raise LookupError(f"the loop has no object {self.target!r}; it has {there}")
        return loop.objects[self.target]


def _item_slot(holder: Any, key: Any) -> Slot:
    if isinstance(holder, Mapping) and key not in holder:
        raise LookupError(f"no item {key!r} to set; there are {', '.join(map(repr, holder))}")
    return Slot(lambda: holder[key], lambda value: holder.__setitem__(key, value))


def _attribute_slot(holder: Any, name: str) -> Slot:
    if not hasattr(holder, name):
        raise AttributeError(
            f"{type(holder).__name__} has no attribute {name!r} to set", name=name, obj=holder
        )
    return Slot(lambda: getattr(holder, name), lambda value: setattr(holder, name, value))
