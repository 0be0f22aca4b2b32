"""Where subscriptions live: homes, and the emitter, which is the hot door of one sender."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from types import CellType
from typing import TYPE_CHECKING, Any, NoReturn

from eventbus.codegen import HOT, PIECE, Door
from eventbus.guard import Guard
from eventbus.plan import Function, assemble, single
from eventbus.subscription import Subscription, identity_of

if TYPE_CHECKING:
    from eventbus.signal import Signal


class Home:
    """Where subscriptions live: a signal, for any sender, or one sender's emitter."""

    __slots__ = ("guard", "ids", "own", "reference")

    guard: Guard
    """The lock that changes are made under."""
    own: tuple[Subscription, ...]
    """The subscriptions that live here, by priority and connection order."""
    ids: dict[object, Subscription | tuple[Subscription, ...]]
    """The same by the identity of their receivers."""
    reference: weakref.ref[Home]
    """A weak reference to this."""

    def _furnish(self, guard: Guard) -> None:
        self.guard = guard
        self.own = ()
        self.ids = {}
        self.reference = weakref.ref(self)

    def changed(self) -> None:
        """Drop the plans that the change made stale."""
        raise NotImplementedError

    def put(self, subscription: Subscription) -> None:
        """Take in a subscription; the guard must be held.

        Raises:
            RuntimeError: a destructor or a signal handler connects amid another change.

        """
        if self.guard.depth > 1:
            msg = (
                f"{subscription!r} cannot be connected here: a destructor or a signal handler "
                "interrupted this thread while it was changing the bus"
            )
            raise RuntimeError(msg)
        own = self.own
        priority = subscription.priority
        last = len(own)
        while last and own[last - 1].priority > priority:
            last -= 1
        self.own = (*own[:last], subscription, *own[last:])
        identity = subscription.identity
        there = self.ids.get(identity)
        if there is None:
            self.ids[identity] = subscription
        else:
            self.ids[identity] = (*_several(there), subscription)
        self.changed()

    def remove(self, subscription: Subscription) -> bool:
        """Disconnect a subscription and say whether it was connected."""
        with self.guard as guard:
            if not subscription.active:
                return False
            subscription.end()
            if guard.depth > 1:
                guard.bury(self.reference)
            else:
                self.take_out((subscription,))
        return True

    def take_out(self, leaving: tuple[Subscription, ...]) -> None:
        """Let go of subscriptions that have ended; the guard must be held."""
        own = self.own
        if len(leaving) == 1:
            at = own.index(leaving[0])
            self.own = own[:at] + own[at + 1 :]
        else:
            self.own = tuple(s for s in own if s not in leaving)
        for each in leaving:
            there = self.ids.pop(each.identity)
            if there is not each:
                rest = tuple(s for s in _several(there) if s is not each)
                self.ids[each.identity] = rest[0] if len(rest) == 1 else rest
        self.changed()

    def find(self, receiver: object) -> Iterator[Subscription]:
        """Find the subscriptions of a receiver."""
        there = self.ids.get(identity_of(receiver))
        if there is not None:
            for subscription in _several(there):
                if identity_of(subscription.receiver) == identity_of(receiver):
                    yield subscription  # an id may have been used again, a live one not

    def bury(self) -> None:
        """Have dead receivers dropped; called by garbage collection."""
        self.guard.bury(self.reference)

    def drop_dead(self) -> None:
        """Drop what has ended or lost its weakly held receiver; the guard must be held."""
        dead = tuple(s for s in self.own if not s.active or (s.weak and s.receiver is None))
        if dead:
            for s in dead:
                s.end()
            self.take_out(dead)


def _several(
    there: Subscription | tuple[Subscription, ...],
) -> tuple[Subscription, ...]:
    return there if isinstance(there, tuple) else (there,)


class Emitter(Home):
    """The hot door: sends one signal for one sender, and holds what listens to it alone.

    Made by ``signal.emitter(sender)``. Use it as ``if emitter.live: emitter.send(...)``
    and look ``send`` up each time: connecting and disconnecting replace it. The sender
    is held weakly.
    """

    __slots__ = (
        "__weakref__",
        "_built",
        "_doors",
        "_unbuilt",
        "context",
        "key",
        "live",
        "send",
        "sender_of",
        "signal",
    )

    live: bool
    """Whether anything listens."""
    send: Function
    """Send, with the payload by position in its declared order or by name; returns None."""

    def __init__(self, signal: Signal, key: object, sender_of: Callable[[], Any]) -> None:
        self.signal: Signal = signal
        """The signal that it sends."""
        self._furnish(signal.guard)
        self.key: object = key
        self.sender_of: Callable[[], Any] = sender_of
        self.context: dict[str, CellType] = {
            "_depth": CellType(0),
            "_sender_of": CellType(sender_of),
        }
        self._doors: dict[Door, Function] = {}
        self._built = False
        # not a __getattr__ that builds: having one makes every attribute slow on CPython 3.11
        self._unbuilt = self.send = _builder(self)
        self.live = signal.audible and bool(signal.own)

    def build(self) -> Function:
        """Build ``send`` anew and return it."""
        signal = self.signal
        version = signal.version
        function = assemble(
            signal.form, HOT, self.subscriptions(), self.context, weakly(self._drop_send)
        )
        with self.guard:
            if signal.version == version:  # else it changed meanwhile, in another thread
                self.send = function
                self._built = True
                signal.note_built(self)
        return function

    def door(self, door: Door) -> Function:
        """Return the function behind one of the doors that return results."""
        function = self._doors.get(door)
        if function is None:
            signal = self.signal
            version = signal.version
            function = assemble(
                signal.form, door, self.subscriptions(), self.context, weakly(self._drop_doors)
            )
            with self.guard:
                if signal.version == version:
                    self._doors[door] = function
                    signal.note_built(self)
        return function

    def send_all(self, *args: object, **payload: object) -> list[BaseException]:
        """Send to every receiver even if some fail, and return what they raised, in order.

        For points that everybody must hear, such as the end of a run.

        Raises:
            TypeError: the payload is not what the point declares.

        """
        form = self.signal.form
        assemble(form, HOT, (), self.context, self._drop_send)(*args, **payload)
        errors: list[BaseException] = []
        for subscription in self.subscriptions():
            try:
                single(form, PIECE, subscription, self.context)(self.sender_of(), *args, **payload)
            except BaseException as error:  # noqa: BLE001 -- they are the caller's to judge
                errors.append(error)
        return errors

    def subscriptions(self) -> tuple[Subscription, ...]:
        """Return who listens, in the order in which they run."""
        return self.signal.plan_of(self.own)

    def changed(self) -> None:
        """Drop the plans after a change of the sender's own subscriptions."""
        self.signal.version += 1
        self.signal.own_changed(self)
        self.stale(live=self.signal.audible and bool(self.own or self.signal.own))

    def stale(self, *, live: bool) -> None:
        """Drop the plans after any change."""
        self.live = live
        if self._doors:
            self._doors.clear()
        if self._built:
            self._drop_send()

    def _drop_send(self) -> None:
        self._built = False
        self.send = self._unbuilt

    def _drop_doors(self) -> None:
        self._doors.clear()

    def __reduce__(self) -> NoReturn:
        """Refuse copying and pickling: an emitter belongs to its signal."""
        msg = f"the emitter of {self.signal.name!r} cannot be copied or pickled"
        raise TypeError(msg)

    def __repr__(self) -> str:
        """Show the point and how many listen."""
        return f"<Emitter {self.signal.name!r}: {len(self.own)} of its own, live={self.live}>"


def _builder(emitter: Emitter) -> Function:
    """Make what stands in for an emitter's ``send`` until it is first called after a change."""
    reference = weakref.ref(emitter)
    signal, key, sender_of = emitter.signal, emitter.key, emitter.sender_of

    def send(*args: object, **payload: object) -> None:
        alive = reference()
        if alive is None:  # as in `signal.emitter(sender).send(...)`: nobody kept the emitter
            sender = sender_of()
            if sender is None and key is not None:
                return  # nor the sender
            alive = signal.emitter(sender)
        alive.build()(*args, **payload)

    return send


def weakly(method: Function) -> Function:
    """Make a function that calls a bound method as long as its object is alive."""
    reference = weakref.WeakMethod(method)

    def call(*args: object, **kwargs: object) -> Any:
        alive = reference()
        return None if alive is None else alive(*args, **kwargs)

    return call
