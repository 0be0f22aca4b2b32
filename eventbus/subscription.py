"""Subscription: one receiver's connection to one signal, and the handle for it."""

from __future__ import annotations

import itertools
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import CellType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from eventbus.binding import Receiver, describe
from eventbus.order import NAMES

if TYPE_CHECKING:
    from eventbus.codegen import Shape
    from eventbus.emitter import Home

log: Final = logging.getLogger("eventbus")

_sequence = itertools.count()


def identity_of(receiver: object) -> object:
    """Return what tells receivers apart: ids, so that bound methods made anew are the same."""
    if type(receiver) is FunctionType:
        return id(receiver)
    function = getattr(receiver, "__func__", None)
    if function is not None and hasattr(receiver, "__self__"):
        return id(function), id(receiver.__self__)
    return id(receiver)


def gone(*_: object, **__: object) -> None:
    """Stand in the place of a receiver that is disconnected or muted, in plans under way."""


@dataclass(slots=True)
class Stats:
    """What a subscription cost, counted while ``bus.profile()`` is on (errors: always)."""

    calls: int = 0
    errors: int = 0
    total: float = 0.0
    """Seconds spent in the receiver."""
    maximum: float = 0.0
    """Seconds of the longest call."""
    profiled: bool = False
    """Whether calls and seconds were counted at all."""

    def __str__(self) -> str:
        """Render the numbers, or say why there are none."""
        if not self.profiled:
            return f"{self.errors} errors; calls are counted only inside bus.profile()"
        mean = self.total / self.calls if self.calls else 0.0
        return (
            f"{self.calls} calls, {self.errors} errors, {self.total:.6f} s in all, "
            f"{mean:.6f} s mean, {self.maximum:.6f} s at most"
        )


class WeakReceiver(weakref.ref[Any]):
    """A weak reference that knows, weakly, where its subscription lives."""

    __slots__ = ("home",)
    home: weakref.ref[Home]


def _died(reference: WeakReceiver) -> None:
    home = reference.home()
    if home is not None:
        home.bury()


class Subscription:
    """One receiver's connection to one signal, made by ``connect``; not made directly.

    It lives in its *home*: the signal, or the emitter of the one sender it listens to.
    The receiver stands in a cell that every plan shares, so that muting or
    disconnecting takes effect at once, also in a send that is under way.
    """

    __slots__ = (
        "__weakref__",
        "_active",
        "_cell",
        "_extra",
        "_home",
        "_method",
        "_mutes",
        "_name",
        "_receiver",
        "_stats",
        "after",
        "before",
        "identity",
        "point",
        "priority",
        "sequence",
        "shape",
    )

    def __init__(
        self,
        receiver: Receiver,
        point: str,
        shape: Shape,
        *,
        weak: bool = False,
        call: Receiver | None = None,
        name: str | None = None,
        priority: int = 50,
        after: tuple[str, ...] = (),
        before: tuple[str, ...] = (),
        extra: dict[str, CellType] | None = None,
    ) -> None:
        self.point: str = point
        """The name of the signal."""
        self._name = name
        self.priority: int = priority
        """From 0, first, to 100, last."""
        self.after: tuple[str, ...] = after
        self.before: tuple[str, ...] = before
        self.sequence: int = next(_sequence)
        self.shape: Shape = shape
        self.identity: object = identity_of(receiver)
        self._active = True
        self._mutes = 0
        self._stats: Stats | None = None
        self._extra = extra
        self._home: weakref.ref[Home] | None = None
        self._method: Callable[..., Any] | None = None
        held: Any = receiver
        if weak:
            if shape.weak == "method":
                self._method = held.__func__
                held = held.__self__
            held = WeakReceiver(held, _died)
        self._receiver = held
        self._cell = CellType(call or held)

    # -- what it is

    @property
    def name(self) -> str:
        """What ``after=`` and ``before=`` call it: ``name=``, or the function's name."""
        if self._name is None:
            self._name = _default_name(self.receiver)
        return self._name

    @property
    def receiver(self) -> Receiver | None:
        """The receiver; None once disconnected, or where it was held weakly and is gone."""
        receiver = self._receiver
        if type(receiver) is WeakReceiver:
            receiver = receiver()
            if self._method is not None and receiver is not None:
                return MethodType(self._method, receiver)
        return receiver  # type: ignore[no-any-return]

    @property
    def weak(self) -> bool:
        """Whether the receiver is held weakly."""
        kept = self._extra is not None and "kept" in self._extra
        return type(self._receiver) is WeakReceiver and not kept

    @property
    def active(self) -> bool:
        """Whether it is still connected; not when what it was connected to is gone."""
        return self._active and (self._home is None or self._home() is not None)

    @property
    def muted(self) -> bool:
        """Whether it is connected but silent."""
        return self._mutes > 0

    @property
    def stats(self) -> Stats:
        """Calls, errors and seconds, counted while ``bus.profile()`` is on."""
        if self._stats is None:
            self._stats = Stats()
        return self._stats

    # -- what it does

    def disconnect(self) -> None:
        """End the connection; harmless if it has ended already.

        After this returns no further call starts in this thread, not even later in
        a send that is under way.
        """
        self.claim()

    def claim(self) -> bool:
        """Disconnect and say whether it was this call that did so."""
        home = self._home() if self._home is not None else None
        if home is None:
            was, self._active = self._active, False
            self._cell.cell_contents = gone
            return was
        return home.remove(self)

    def mute(self) -> None:
        """Silence it, in all threads, until as many ``unmute`` have followed."""
        with self._guard():
            self._mutes += 1
            self._cell.cell_contents = gone

    def unmute(self) -> None:
        """Take back one ``mute``.

        Raises:
            RuntimeError: it is not muted.

        """
        with self._guard():
            if not self._mutes:
                msg = f"{self!r} is not muted"
                raise RuntimeError(msg)
            self._mutes -= 1
            if not self._mutes and self._active:
                self._cell.cell_contents = self._target()

    # -- what plans and homes use

    def _guard(self) -> AbstractContextManager[object]:
        home = self._home() if self._home is not None else None
        return nullcontext() if home is None else home.guard  # its signal or sender may be gone

    def _target(self) -> Any:
        if self._extra is not None and "call" in self._extra:
            return self._extra["call"].cell_contents
        return self._receiver

    def settle(self, home: weakref.ref[Home]) -> None:
        """Remember the home that took it in."""
        self._home = home
        if type(self._receiver) is WeakReceiver:
            self._receiver.home = home

    def keep(self, receiver: Receiver) -> None:
        """Hold the receiver, held weakly so far, strongly from now on."""
        self._extra = {**(self._extra or {}), "kept": CellType(receiver)}

    def end(self) -> None:
        """Mark it as disconnected and empty its place in plans under way."""
        if self._name is None:  # for messages to come
            receiver = self._receiver
            plain = type(receiver) is FunctionType
            self._name = receiver.__name__ if plain else _default_name(self.receiver)
        self._active = False
        self._cell.cell_contents = gone
        self._receiver = self._extra = None  # a handle kept alive keeps no receiver alive

    def cell(self, kind: str) -> CellType:
        """Return the cell that a plan's variable of this kind shares."""
        if kind == "r":
            return self._cell
        if kind == "s":
            return CellType(self)
        if kind == "m":
            return CellType(self._method)
        assert self._extra is not None
        return self._extra[kind]

    def caught(self, error: Exception) -> None:
        """Log an exception that the subscription's policy keeps from the sender."""
        self.stats.errors += 1
        drops = self.shape.errors == "disconnect"
        log.error(
            "%s of %r raised %s%s",
            self.label(),
            self.point,
            type(error).__name__,
            "; it is disconnected" if drops else "",
            exc_info=error,
        )
        if drops:
            self.disconnect()

    def blame(self, error: BaseException) -> None:
        """Note on an exception which receiver let it out."""
        self.stats.errors += 1
        error.add_note(f"raised by {self.label()}, a receiver of {self.point!r}")

    def tally(self, seconds: float) -> None:
        """Count one profiled call."""
        stats = self.stats
        stats.profiled = True
        stats.calls += 1
        stats.total += seconds
        stats.maximum = max(stats.maximum, seconds)

    def label(self) -> str:
        """Name it for messages."""
        receiver = self.receiver
        return self.name if receiver is None else describe(receiver)

    def __repr__(self) -> str:
        """Show point, receiver, priority and whether it is connected."""
        state = "" if self.active else " (disconnected)"
        state = f" (muted x{self._mutes})" if self.active and self._mutes else state
        own = self.active and _default_name(self.receiver)
        name = f" as {self.name!r}" if own and self.name != own else ""
        priority = NAMES.get(self.priority, self.priority)
        return f"<Subscription {self.point!r} -> {self.label()}{name} at {priority}{state}>"

    def __reduce__(self) -> NoReturn:
        """Refuse copying and pickling: a connection belongs to its bus."""
        msg = "a Subscription belongs to its bus and cannot be copied or pickled"
        raise TypeError(msg)


class SubscriptionGroup:
    """Several subscriptions behind one handle, as ``attach`` and patterns return it.

    Args:
        members: subscriptions, or groups of them.

    """

    def __init__(self, members: Iterable[Subscription | SubscriptionGroup] = ()) -> None:
        self._members: list[Subscription | SubscriptionGroup] = list(members)
        self.ended: bool = False
        """Whether ``disconnect`` was called: a pattern's group takes in no further point then."""
        self._points: dict[str, object] = {}

    def __iter__(self) -> Iterator[Subscription]:
        """Iterate over the subscriptions, those of inner groups included."""
        for member in tuple(self._members):
            if isinstance(member, SubscriptionGroup):
                yield from member
            else:
                yield member

    def __len__(self) -> int:
        """Count the subscriptions."""
        return sum(1 for _ in self)

    @property
    def active(self) -> bool:
        """Whether any is still connected."""
        return any(s.active for s in self)

    @property
    def muted(self) -> bool:
        """Whether all are muted."""
        return all(s.muted for s in self)

    def take(self, point: str) -> bool:
        """Claim a point for this group; False if that was done before, by any thread."""
        claim = object()
        return not self.ended and self._points.setdefault(point, claim) is claim

    def leave(self, point: str) -> None:
        """Give up a claim."""
        self._points.pop(point, None)

    def add(self, member: Subscription | SubscriptionGroup) -> None:
        """Take in a subscription, or a group of them."""
        self._members.append(member)

    def disconnect(self) -> None:
        """Disconnect all."""
        self.ended = True
        for member in tuple(self._members):
            member.disconnect()

    def mute(self) -> None:
        """Mute all."""
        for s in self:
            s.mute()

    def unmute(self) -> None:
        """Unmute all."""
        for s in self:
            s.unmute()

    def __repr__(self) -> str:
        """Show the subscriptions."""
        return f"<SubscriptionGroup {', '.join(map(repr, self))}>"


def _default_name(receiver: object) -> str:
    """Return the name a subscription has when none is given: the function's."""
    while hasattr(receiver, "func") and not hasattr(receiver, "__name__"):
        receiver = receiver.func
    return getattr(receiver, "__name__", None) or type(receiver).__name__
