"""What an object with several subscribing methods wants connected."""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventbus.binding import Receiver
from eventbus.errors import nearest

if TYPE_CHECKING:
    from eventbus.bus import Bus
    from eventbus.options import Options

MARK: Final = "__eventbus_points__"


class Wanted(NamedTuple):
    """One method, the points it is for, and how it is to be connected."""

    points: tuple[str, ...]
    receiver: Receiver
    options: Options | dict[str, Any]
    by_position: bool


def in_class_body(frame: FrameType | None) -> bool:
    """Say whether a frame is the body of a class statement."""
    return (
        frame is not None
        and frame.f_locals is not frame.f_globals
        and "__qualname__" in frame.f_locals
        and "__module__" in frame.f_locals
    )


def calling_frame() -> FrameType | None:
    """Return the frame that called the function which calls this."""
    return sys._getframe(2)  # noqa: SLF001 -- what inspect.currentframe().f_back gives


def mark(function: Any, points: tuple[str, ...], options: Options) -> None:
    """Remember on a function that ``attach`` is to connect it."""
    target = getattr(function, "__func__", function)  # static and class methods
    target.__dict__.setdefault(MARK, []).append((points, options))


def wanted(bus: Bus, owner: object) -> Iterator[Wanted]:
    """Find what an object wants connected: methods marked by ``@on``, and ``on_<point>`` ones.

    Raises:
        TypeError: a method is called ``on_...`` but no point is, or the object is a class.

    """
    if isinstance(owner, type):
        msg = (
            f"{owner.__qualname__} is a class; attach an instance of it: {owner.__qualname__}(...)"
        )
        raise TypeError(msg)
    for name in sorted(dir(owner), key=_definition_order(owner)):
        static = inspect.getattr_static(owner, name, None)
        marks = _marks(owner, name, static)
        if not marks and not name.startswith("on_"):
            continue
        method = getattr(owner, name)
        if marks:
            for points, options in marks:
                yield Wanted(points, method, options, by_position=False)
        elif callable(method) and not _inherited_and_empty(owner, name, static):
            if name not in bus:
                msg = (
                    f"{type(owner).__name__}.{name} is named like a subscribing method, but there "
                    f"is no such point{nearest(name.removeprefix('on_'), bus.names)}"
                )
                raise TypeError(msg)
            yield Wanted((name,), method, {}, by_position=True)


def _marks(owner: object, name: str, static: object) -> list[tuple[tuple[str, ...], Options]]:
    """Return the marks of a method, its own or those of what it overrides."""
    for candidate in (static, *(vars(c).get(name) for c in type(owner).__mro__)):
        found = getattr(getattr(candidate, "__func__", candidate), "__dict__", {}).get(MARK)
        if found and not isinstance(candidate, type):
            return found  # type: ignore[no-any-return]
    return []


def _definition_order(owner: object) -> Callable[[str], tuple[int, int]]:
    """Sort methods as they were written, base classes first, the instance's own last."""
    places: dict[str, tuple[int, int]] = {}
    for depth, each in enumerate(reversed(type(owner).__mro__)):
        for place, name in enumerate(vars(each)):
            places.setdefault(name, (depth, place))
    last = len(type(owner).__mro__)
    return lambda name: places.get(name, (last, 0))


def _inherited_and_empty(owner: object, name: str, static: object) -> bool:
    """Say whether a method is a base class's placeholder that does nothing."""
    if name in vars(type(owner)) or name in getattr(owner, "__dict__", {}):
        return False
    function = inspect.unwrap(static) if callable(static) else None
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    steps = [i for i in dis.get_instructions(code) if i.opname not in ("RESUME", "NOP")]
    named = [i.opname for i in steps]
    empty = named in (["LOAD_CONST", "RETURN_VALUE"], ["RETURN_CONST"])
    return empty and steps[0].argval is None
