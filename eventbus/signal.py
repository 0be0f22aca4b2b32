"""Signal: a blinker NamedSignal with declared payload and ordered subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from types import CellType
from typing import Any, NoReturn, TypeVar

import blinker
from blinker import ANY

from eventbus.binding import Carried, Receiver, check_callable, is_coroutine
from eventbus.codegen import ASYNC, RESULTS, SEND, Door, Form, shape
from eventbus.emitter import Emitter, Home, weakly
from eventbus.errors import OrderError
from eventbus.guard import Guard
from eventbus.order import arranged, own_place
from eventbus.plan import Function, assemble
from eventbus.senders import Senders
from eventbus.subscription import Subscription, identity_of

F = TypeVar("F", bound=Callable[..., Any])


class Signal(blinker.NamedSignal, Home):
    """A named signal: blinker's, with an order, a declared payload and a hot door.

    Blinker's own methods keep blinker's calling convention, ``receiver(sender, **payload)``,
    and its defaults (weak, idempotent). ``Bus.connect`` adds subscriptions that take the
    payload by name.

    Args:
        name: the point's name.
        doc: what the point means.
        payload: the keys it always carries, in order; None to accept any.
        index: the payload key that is the point's own index, for ``every=`` and the like.
        sender_name: a further name, beside ``sender``, by which receivers ask for the sender.
        awaited: whether it is sent with ``send_async`` only, so that coroutine functions
            may be connected.
        guard: the lock shared with the other signals of a bus.

    """

    def __init__(
        self,
        name: str,
        doc: str | None = None,
        *,
        payload: tuple[str, ...] | None = None,
        index: str | None = None,
        sender_name: str | None = None,
        awaited: bool = False,
        guard: Guard | None = None,
    ) -> None:
        super().__init__(name, doc)
        del self.receivers, self._by_receiver, self._by_sender, self._weak_senders  # ours differ
        reserved = {"sender": "sender", "signal": repr(name)}
        if sender_name is not None:
            reserved[sender_name] = "sender"
        self.carried: Carried = Carried(name, payload, reserved)
        """What receivers may ask for."""
        self.by_position: Carried = Carried(name, payload, reserved, positional=True)
        forbidden = tuple(reserved) if payload is None else ()
        self.form: Form = Form(name, payload, index, timed=False, reserved=forbidden)
        self.awaited = awaited
        """Whether coroutine functions may be connected by name."""
        self._furnish(guard or Guard())
        self.version: int = 0
        """Counts changes, so that a plan made meanwhile is known to be stale."""
        arguments = ["**payload"] if payload is None else [f"{key}={key}" for key in payload]
        self._plain_arguments = ", ".join(["sender", *arguments])
        self._mutes = 0
        self._doors: dict[Door, Function] = {}
        self._senders = Senders()
        self._context = {
            "_depth": CellType(0),
            "_addressed": CellType(self._senders.addressed),
            "_elsewhere": CellType(weakly(self._elsewhere)),
        }
        self._heard = False
        """Whether a sender without subscriptions of its own is heard."""
        self._constrained = False

    # -- blinker's side

    @property
    def payload(self) -> tuple[str, ...] | None:
        """The keys that every send carries; None where any are accepted."""
        return self.form.payload

    @property
    def index(self) -> str | None:
        """The payload key that is the point's own index; None if it has none."""
        return self.form.counter

    @property
    def receivers(self) -> dict[object, Receiver]:
        """The connected receivers by identity; its truth value says whether there are any."""
        every = [*self.own, *(s for e in self._senders.all() for s in e.own)]
        return {identity_of(r): r for s in every if (r := s.receiver) is not None}

    @receivers.setter
    def receivers(self, value: object) -> None:
        """Let blinker's constructor set what we keep otherwise."""

    @receivers.deleter
    def receivers(self) -> None:
        """See the setter."""

    @property
    def is_muted(self) -> bool:
        """Whether the signal is silent."""
        return self._mutes > 0

    @is_muted.setter
    def is_muted(self, value: bool) -> None:
        """Silence the signal, or end every silence; the constructor's first value is ours."""
        if "_mutes" in self.__dict__ and value is not self.is_muted:
            self._mute(1 if value else -self._mutes)

    @cached_property
    def receiver_connected(self) -> Signal:
        """Sent after a receiver connects, with ``receiver``, ``sender`` and ``weak``."""
        return _watchers("receiver_connected")

    @cached_property
    def receiver_disconnected(self) -> Signal:
        """Sent after ``disconnect`` was called, with ``receiver`` and ``sender``."""
        return _watchers("receiver_disconnected")

    def connect(self, receiver: F, sender: object = ANY, weak: bool = True) -> F:  # noqa: FBT002 -- blinker's
        """Connect as blinker does: ``receiver(sender, **payload)``, weakly, once.

        Connecting again changes nothing, except that ``weak=False`` makes it strong.

        Raises:
            TypeError: the receiver is not callable, or the sender can't be told apart safely.

        """
        check_callable(receiver, self.name)
        home = self.home_for(sender)
        with self.guard:
            there = next((s for s in home.find(receiver) if s.shape.plain), None)
            if there is not None and there.weak and not weak:
                there.keep(receiver)
            if there is None:
                added = Subscription(
                    receiver,
                    self.name,
                    shape(
                        self._plain_arguments,
                        weak=weak_kind(receiver) if weak else "",
                        coroutine=is_coroutine(receiver),
                        plain=True,
                    ),
                    weak=weak,
                )
                self.settle(added, home)
        if there is None:
            self.announce(added, receiver, sender)
        return receiver

    def disconnect(self, receiver: Callable[..., Any], sender: object = ANY) -> None:
        """Disconnect a receiver from ``sender``, or from everything it is connected to here.

        Raises:
            ValueError: ``sender`` is given, but the receiver is connected to any sender.

        """
        found = self.find_all(receiver, sender)
        if not found and any(self.find(receiver)):
            msg = (
                f"{receiver!r} is connected to {self.name!r} for any sender and would still "
                f"hear {sender!r}; disconnect it without a sender"
            )
            raise ValueError(msg)
        for subscription in found:
            subscription.disconnect()
        if "receiver_disconnected" in self.__dict__:
            self.receiver_disconnected.send(self, receiver=receiver, sender=sender)

    @contextmanager
    def connected_to(self, receiver: Callable[..., Any], sender: object = ANY) -> Iterator[None]:
        """Connect a receiver inside a ``with`` block; one that was connected before stays."""
        home = self.home_for(sender)
        before = any(s.shape.plain for s in home.find(receiver))
        self.connect(receiver, sender, weak=before)
        try:
            yield
        finally:
            if not before:
                for subscription in tuple(home.find(receiver)):
                    if subscription.shape.plain:
                        subscription.disconnect()

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Silence the signal, in all threads, inside a ``with`` block; blocks nest."""
        self._mute(1)
        try:
            yield
        finally:
            self._mute(-1)

    def _mute(self, by: int) -> None:
        with self.guard:
            self._mutes += by
            self.changed()
            self._all_stale()

    def send(self, sender: object = None, /, **payload: Any) -> list[tuple[Receiver, Any]]:
        """Call every receiver that listens to ``sender`` and return (receiver, value) pairs.

        Raises:
            TypeError: a declared key is missing from the payload or one is too many.
            RuntimeError: a coroutine function is connected and no ``_async_wrapper`` given.

        """
        home = self.home_of(sender)
        if home is not self:
            return home.door(RESULTS)(sender, **payload)  # type: ignore[no-any-return]
        function = self.door(SEND)
        if type(self).send is Signal.send:
            with self.guard:
                if self._doors.get(SEND) is function and not self._senders.by_value:
                    self.__dict__["send"] = function  # found first from now on, until a change
        return function(sender, **payload)  # type: ignore[no-any-return]

    def _elsewhere(self, sender: object, /, **payload: object) -> list[tuple[Receiver, Any]]:
        """Send for a sender that has subscriptions of its own."""
        return (self.find_emitter(sender) or self).door(RESULTS)(sender, **payload)  # type: ignore[no-any-return]

    async def send_async(
        self, sender: object = None, /, **payload: Any
    ) -> list[tuple[Receiver, Any]]:
        """Call, and where it is a coroutine function await, every receiver in order.

        A plain function connected by blinker's ``connect`` needs a ``_sync_wrapper``.
        """
        return await self.home_of(sender).door(ASYNC)(sender, **payload)  # type: ignore[no-any-return]

    def has_receivers_for(self, sender: object) -> bool:
        """Say whether any living receiver would hear ``sender``."""
        return any(True for _ in self.receivers_for(sender))

    def receivers_for(self, sender: object) -> Iterator[Receiver]:  # type: ignore[override]
        """Iterate, in order, over the receivers that would hear ``sender``."""
        emitter = None if sender is ANY else self.find_emitter(sender)
        for subscription in self.plan_of(emitter.own if emitter is not None else ()):
            receiver = subscription.receiver
            if receiver is not None and subscription.active:
                yield receiver

    # -- the hot door

    def emitter(self, sender: object) -> Emitter:
        """Return the emitter for one sender, the same as long as it lives.

        Args:
            sender: held weakly; a str, an int or None stands for its value.

        Raises:
            TypeError: the sender can be neither weakly held nor safely compared.

        """
        found = self._senders.find(sender)
        if found is not None:
            return found
        with self.guard:
            return self._senders.find(sender) or self._senders.add(self, sender)

    def find_emitter(self, sender: object) -> Emitter | None:
        """Return the emitter of a sender if there is one; never another sender's."""
        return self._senders.find(sender)

    def home_of(self, sender: object) -> Emitter | Signal:
        """Return the home whose plan serves a send by ``sender``."""
        return (self._senders.find(sender) if self._senders.addressed else None) or self

    def home_for(self, sender: object) -> Home:
        """Return the home in which a subscription to ``sender`` has to live."""
        return self if sender is ANY else self.emitter(sender)

    # -- what is connected

    @property
    def audible(self) -> bool:
        """Whether sends reach anybody, that is, the signal is not muted."""
        return not self._mutes

    def plan_of(self, own: tuple[Subscription, ...]) -> tuple[Subscription, ...]:
        """Return who hears a sender that has these subscriptions of its own, in order."""
        if self._mutes:
            return ()
        if not own:
            return arranged(self.own)
        # blinker calls a receiver once, though connected both for any and for this sender
        heard = {identity_of(s.receiver) for s in self.own if s.shape.plain}
        rest = [s for s in own if not (s.shape.plain and identity_of(s.receiver) in heard)]
        return arranged([*self.own, *rest])

    def subscriptions(self, sender: object = ANY) -> tuple[Subscription, ...]:
        """Return who hears ``sender`` in order; by default all subscriptions, whoever sends."""
        if sender is ANY:
            every = [*self.own, *(s for e in self._senders.all() for s in e.own)]
            try:
                return arranged(every)
            except OrderError:  # what one sender's names ask for may contradict another's
                return tuple(sorted(every, key=own_place))
        emitter = self.find_emitter(sender)
        return self.plan_of(emitter.own if emitter is not None else ())

    def find_all(self, receiver: object, sender: object = ANY) -> tuple[Subscription, ...]:
        """Find the subscriptions of a receiver, to one sender or by default to any and all."""
        if sender is ANY:
            homes: list[Home] = [self, *self._senders.all()]
        else:
            emitter = self.find_emitter(sender)
            homes = [] if emitter is None else [emitter]
        return tuple(s for home in homes for s in home.find(receiver))

    def settle(self, subscription: Subscription, home: Home) -> None:
        """Take in a new subscription; the guard must be held.

        Raises:
            OrderError: it closes a cycle.

        """
        if subscription.after or subscription.before:
            self._constrained = True
        if self._constrained:
            self._check_order(subscription, home)
        subscription.settle(home.reference)
        home.put(subscription)

    def _check_order(self, subscription: Subscription, home: Home) -> None:
        if home is not self:
            arranged([*self.own, *home.own, subscription])
            return
        arranged([*self.own, subscription])
        for emitter in self._senders.all():
            arranged([*self.own, *emitter.own, subscription])

    def announce(self, subscription: Subscription, receiver: Receiver, sender: object) -> None:
        """Tell the watchers of ``receiver_connected``; one that raises undoes the connection."""
        if "receiver_connected" in self.__dict__:
            weak = subscription.weak
            try:
                self.receiver_connected.send(self, receiver=receiver, sender=sender, weak=weak)
            except BaseException:
                subscription.disconnect()
                raise

    def time_calls(self, timed: bool) -> None:
        """Count and time the calls of receivers, or stop doing so."""
        with self.guard:
            self.form = self.form._replace(timed=timed)
            self.changed()

    def door(self, door: Door) -> Function:
        """Return the function that sends for senders without subscriptions of their own."""
        function = self._doors.get(door)
        if function is None:
            version = self.version
            function = assemble(
                self.form, door, self.plan_of(()), self._context, weakly(self._drop_doors)
            )
            with self.guard:  # a plan that is stale already must not be put in place
                if self.version == version:
                    self._doors[door] = function
        return function

    def _drop_doors(self) -> None:
        self.__dict__.pop("send", None)
        self._doors.clear()

    def changed(self) -> None:
        """Drop all plans; the guard must be held."""
        self.version += 1
        if self._doors or "send" in self.__dict__:
            self._drop_doors()
        heard = not self._mutes and bool(self.own)
        if heard is not self._heard:
            self._heard = heard
            self._all_stale()
        else:
            for emitter in self._senders.take_built():
                emitter.stale(live=emitter.live)

    def _all_stale(self) -> None:
        for emitter in self._senders.all():
            emitter.stale(live=not self._mutes and bool(self.own or emitter.own))

    def note_built(self, emitter: Emitter) -> None:
        """Remember that an emitter has plans, which the next change makes stale."""
        self._senders.note_built(emitter)

    def own_changed(self, emitter: Emitter) -> None:
        """Take note that an emitter has got or lost subscriptions of its own."""
        if self._senders.note_own(emitter):
            self._drop_doors()

    def __copy__(self) -> NoReturn:
        """Refuse: a copy would share the connections, but not their handles."""
        self.__reduce__()

    def __deepcopy__(self, memo: object) -> NoReturn:
        """Refuse: see ``__copy__``."""
        self.__reduce__()

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: connections belong to the process that made them."""
        msg = (
            f"signal {self.name!r} cannot be copied or pickled: its receivers and handles belong "
            "to this bus; declare the point on another Bus instead"
        )
        raise TypeError(msg)


def _watchers(name: str) -> Signal:
    signal = Signal(name)
    signal.form = signal.form._replace(reserved=())  # blinker sends them a payload `sender`
    return signal


def weak_kind(receiver: Receiver) -> str:
    """Return how a receiver is to be held weakly: by "method" or by "function"."""
    bound = hasattr(receiver, "__func__") and hasattr(receiver, "__self__")
    return "method" if bound else "function"
