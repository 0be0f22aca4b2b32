"""From subscriptions to the functions that call them: homes, emitters and their plans."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any, Final

from eventbus.codegen import (
    GLOBALS,
    HOT,
    PIECE,
    RESULTS,
    SEND,
    Compiled,
    Door,
    Form,
    Shape,
    compile_plan,
    forget,
)
from eventbus.errors import ReentrancyError
from eventbus.subscription import Subscription, identity_of

if TYPE_CHECKING:
    from eventbus.signal import Signal

Function = Callable[..., Any]

FUSE_AFTER: Final = 8
"""How many sends plans of one shape must see before code is generated for the whole."""

CHUNK: Final = 64
"""How many subscriptions one generated function calls at most."""


class Guard(AbstractContextManager["Guard"]):
    """The lock of a bus, which garbage collection can leave work with.

    A weak receiver may die at any instant, also in the thread that holds the lock; its
    callback then leaves the home to be swept by whoever releases the lock.
    """

    def __init__(self) -> None:
        self.renew()
        _guards.add(self)

    def renew(self) -> None:
        """Start with an open lock, as after a fork."""
        self._lock = threading.Lock()
        self._buried: deque[weakref.ref[Home]] = deque()

    def __enter__(self) -> Guard:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if self._buried:
            self._sweep()

    def bury(self, home: weakref.ref[Home]) -> None:
        """Have a home drop its dead receivers, now or when the lock is free."""
        self._buried.append(home)
        self._sweep()

    def _sweep(self) -> None:
        while self._buried and self._lock.acquire(blocking=False):
            try:
                while self._buried:
                    home = self._buried.popleft()()
                    if home is not None:
                        home.drop_dead()
            finally:
                self._lock.release()


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


def _renew_guards() -> None:
    cache.lock = threading.Lock()
    for guard in _guards:
        guard.renew()


if hasattr(os, "register_at_fork"):  # a lock held by another thread stays held in the child
    os.register_at_fork(after_in_child=_renew_guards)


class Cache:
    """Generated code by shape, bounded; how often each shape was sent until it is made."""

    SIZE: Final = 512

    def __init__(self) -> None:
        self._known: dict[object, Compiled | int] = {}
        self.lock = threading.Lock()

    def get(
        self, form: Form, door: Door, shapes: tuple[Shape, ...], *, at_once: bool = False
    ) -> Compiled | None:
        """Return the code for these shapes; None as long as they are too new for any."""
        key = (form, door, shapes)
        found = self._known.get(key, 0)
        if isinstance(found, Compiled):
            return found
        if found < FUSE_AFTER and not at_once:
            return None
        compiled = compile_plan(form, door, shapes)
        self._keep(key, compiled)
        return compiled

    def heat(self, form: Form, door: Door, shapes: tuple[Shape, ...]) -> bool:
        """Count a send of these shapes and say whether they are due for code."""
        key = (form, door, shapes)
        found = self._known.get(key, 0)
        if isinstance(found, Compiled):
            return True
        self._keep(key, found + 1)
        return found + 1 >= FUSE_AFTER

    def _keep(self, key: object, value: Compiled | int) -> None:
        with self.lock:
            if len(self._known) >= self.SIZE and key not in self._known:
                for old in list(self._known)[: self.SIZE // 2]:
                    dropped = self._known.pop(old)
                    if isinstance(dropped, Compiled):
                        forget(dropped)
            self._known[key] = value


cache: Final = Cache()


class Home:
    """Where subscriptions live: a signal, for any sender, or one sender's emitter."""

    __slots__ = ()

    if TYPE_CHECKING:  # the classes that are homes have them
        guard: Guard
        _own: tuple[Subscription, ...]
        _ids: dict[object, Subscription | tuple[Subscription, ...]]

    @property
    def own(self) -> tuple[Subscription, ...]:
        """The subscriptions that live here, by priority and connection order."""
        return self._own

    @property
    def ids(self) -> dict[object, Subscription | tuple[Subscription, ...]]:
        """The subscriptions by the identity of their receivers."""
        return self._ids

    def changed(self) -> None:
        """Drop the plans that the change made stale."""
        raise NotImplementedError

    def put(self, subscription: Subscription) -> None:
        """Take in a subscription; the guard must be held."""
        own = self._own
        priority = subscription.priority
        last = len(own)
        while last and own[last - 1].priority > priority:
            last -= 1
        self._own = (*own[:last], subscription, *own[last:])
        identity = subscription.identity
        there = self._ids.get(identity)
        if there is None:
            self._ids[identity] = subscription
        else:
            self._ids[identity] = (*_several(there), subscription)
        self.changed()

    def remove(self, subscription: Subscription) -> bool:
        """Disconnect a subscription and say whether it was connected."""
        with self.guard:
            if not subscription.active:
                return False
            subscription.end()
            self._take_out((subscription,))
        return True

    def _take_out(self, leaving: tuple[Subscription, ...]) -> None:
        own = self._own
        if len(leaving) == 1:
            at = own.index(leaving[0])
            self._own = own[:at] + own[at + 1 :]
        else:
            self._own = tuple(s for s in own if s not in leaving)
        for each in leaving:
            there = self._ids.pop(each.identity)
            if there is not each:
                rest = tuple(s for s in _several(there) if s is not each)
                self._ids[each.identity] = rest[0] if len(rest) == 1 else rest
        self.changed()

    def find(self, receiver: object) -> Iterator[Subscription]:
        """Find the subscriptions of a receiver."""
        there = self._ids.get(identity_of(receiver))
        if there is not None:
            for subscription in _several(there):
                if identity_of(subscription.receiver) == identity_of(receiver):
                    yield subscription  # an id may have been used again, a live one not

    def bury(self) -> None:
        """Have dead receivers dropped; called by garbage collection."""
        self.guard.bury(weakref.ref(self))

    def drop_dead(self) -> None:
        """Drop subscriptions whose weakly held receiver is gone; the guard must be held."""
        dead = tuple(s for s in self._own if s.weak and s.receiver is None)
        if dead:
            for s in dead:
                s.end()
            self._take_out(dead)


def _several(
    there: Subscription | tuple[Subscription, ...],
) -> tuple[Subscription, ...]:
    return there if isinstance(there, tuple) else (there,)


def fuse(
    compiled: Compiled, subscriptions: tuple[Subscription, ...], context: dict[str, CellType]
) -> Function:
    """Close generated code over the cells of the subscriptions that it is to call."""
    code, variables, owners = compiled
    cells = []
    for kind, i in variables:
        if i >= 0:
            cells.append(subscriptions[i].cell(kind))
        elif kind == "_blame":
            cells.append(CellType(_blamer(subscriptions, owners)))
        else:
            cells.append(context[kind])
    function = FunctionType(code, GLOBALS, code.co_name, None, tuple(cells))
    if code.co_kwonlyargcount:
        function.__kwdefaults__ = {"_async_wrapper": None, "_sync_wrapper": None}
    return function


def _blamer(
    subscriptions: tuple[Subscription, ...], owners: Mapping[int, int]
) -> Callable[[BaseException], None]:
    """Make the function that notes on an exception whose line it came out of."""

    def blame(error: BaseException) -> None:
        traceback = error.__traceback__
        i = None if traceback is None else owners.get(traceback.tb_lineno)
        if i is not None and not isinstance(error, ReentrancyError):
            subscriptions[i].blame(error)

    return blame


def assemble(
    form: Form,
    door: Door,
    subscriptions: tuple[Subscription, ...],
    context: dict[str, CellType],
    renew: Callable[[], None],
) -> Function:
    """Make the function that sends to these subscriptions, in this order.

    As long as their shape is new it is a chain of functions for one subscription each,
    which need no new code; ``renew`` is called when the code for the whole is due.
    """
    chunks = [subscriptions[i : i + CHUNK] for i in range(0, len(subscriptions), CHUNK)] or [()]
    shapes = [tuple([s.shape for s in chunk]) for chunk in chunks]
    if len(chunks) == 1:
        compiled = cache.get(form, door, shapes[0], at_once=len(subscriptions) <= 1)
        if compiled is not None:
            return fuse(compiled, subscriptions, context)
    piece = {HOT: PIECE, SEND: RESULTS}.get(door, door)
    heated = door if len(chunks) == 1 else piece
    pieces: list[Function] = []
    cold: list[tuple[Shape, ...]] = []
    for chunk, chunk_shapes in zip(chunks, shapes, strict=True):
        compiled = cache.get(form, piece, chunk_shapes) if len(chunks) > 1 else None
        if compiled is not None:
            pieces.append(fuse(compiled, chunk, context))
        else:
            cold.append(chunk_shapes)
            pieces += [single(form, piece, s, context) for s in chunk]

    def warm() -> None:
        if cold and all([cache.heat(form, heated, each) for each in cold]):
            cold.clear()
            renew()

    return _chain(door, pieces, context, warm)


def single(
    form: Form, door: Door, subscription: Subscription, context: dict[str, CellType]
) -> Function:
    """Make the function that sends to one subscription."""
    compiled = cache.get(form, door, (subscription.shape,), at_once=True)
    assert compiled is not None
    return fuse(compiled, (subscription,), context)


def _chain(
    door: Door, pieces: list[Function], context: dict[str, CellType], warm: Callable[[], None]
) -> Function:
    if door.awaits:

        async def send_async(sender: object, /, *args: object, **payload: object) -> list[Any]:
            warm()
            results: list[Any] = []
            for piece in pieces:
                results += await piece(sender, *args, **payload)
            return results

        return send_async

    addressed: set[object] = set()
    elsewhere: Function = print
    if door is SEND:
        addressed = context["_addressed"].cell_contents
        elsewhere = context["_elsewhere"].cell_contents

    if door.results:

        def send_results(sender: object, /, *args: object, **payload: object) -> list[Any]:
            if id(sender) in addressed:
                return elsewhere(sender, *args, **payload)  # type: ignore[no-any-return]
            warm()
            results: list[Any] = []
            for piece in pieces:
                results += piece(sender, *args, **payload)
            return results

        return send_results

    sender_of: Callable[[], object] = context["_sender_of"].cell_contents

    def send(*args: object, **payload: object) -> None:
        warm()
        sender = sender_of()
        for piece in pieces:
            piece(sender, *args, **payload)

    return send


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
        "_ids",
        "_own",
        "_signal",
        "context",
        "guard",
        "key",
        "live",
        "send",
        "sender_of",
    )

    live: bool
    """Whether anything listens."""
    send: Function
    """Send, with the payload by position in its declared order or by name; returns None."""

    def __init__(self, signal: Signal, key: object, sender_of: Callable[[], Any]) -> None:
        self._signal = weakref.ref(signal)
        self.guard = signal.guard
        self.key = key
        self.sender_of = sender_of
        self.context = {"_depth": CellType(0), "_sender_of": CellType(sender_of)}
        self._own = ()
        self._ids = {}
        self._doors: dict[Door, Function] = {}
        self._built = False
        self.live = signal.audible and bool(signal.own)

    def __getattr__(self, name: str) -> Any:
        """Build ``send`` when it is asked for after a change."""
        if name != "send":
            msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(msg)
        signal = self._live_signal()
        version = signal.version
        function = assemble(
            signal.form, HOT, self.subscriptions(), self.context, weakly(self._drop_send)
        )
        self.send = function
        self._built = True
        signal.note_built(self)
        if signal.version != version:  # it changed meanwhile, in another thread
            self._drop_send()
        return function

    @property
    def signal(self) -> Signal:
        """The signal that it sends."""
        return self._live_signal()

    def door(self, door: Door) -> Function:
        """Return the function behind one of the doors that return results."""
        function = self._doors.get(door)
        if function is None:
            signal = self._live_signal()
            version = signal.version
            function = assemble(
                signal.form, door, self.subscriptions(), self.context, weakly(self._drop_doors)
            )
            self._doors[door] = function
            signal.note_built(self)
            if signal.version != version:
                self._doors.clear()
        return function

    def send_all(self, *args: object, **payload: object) -> list[BaseException]:
        """Send to every receiver even if some fail, and return what they raised, in order.

        For points that everybody must hear, such as the end of a run.

        Raises:
            TypeError: the payload is not what the point declares.

        """
        form = self._live_signal().form
        check = cache.get(form, HOT, (), at_once=True)
        assert check is not None
        fuse(check, (), self.context)(*args, **payload)
        errors: list[BaseException] = []
        for subscription in self.subscriptions():
            try:
                single(form, PIECE, subscription, self.context)(self.sender_of(), *args, **payload)
            except BaseException as error:  # noqa: BLE001 -- they are the caller's to judge
                errors.append(error)
        return errors

    def subscriptions(self) -> tuple[Subscription, ...]:
        """Return who listens, in the order in which they run."""
        return self._live_signal().plan_of(self._own)

    def changed(self) -> None:
        """Drop the plans after a change of the sender's own subscriptions."""
        signal = self._signal()
        if signal is not None:
            signal.version += 1
            signal.own_changed(self)
            self.stale(live=signal.audible and bool(self._own or signal.own))

    def stale(self, *, live: bool) -> None:
        """Drop the plans after any change."""
        self.live = live
        if self._doors:
            self._doors.clear()
        if self._built:
            self._drop_send()

    def _drop_send(self) -> None:
        self._built = False
        with suppress(AttributeError):  # another thread was first
            del self.send

    def _drop_doors(self) -> None:
        self._doors.clear()

    def _live_signal(self) -> Signal:
        signal = self._signal()
        if signal is None:
            msg = "the signal of this emitter is gone; keep its bus alive"
            raise ReferenceError(msg)
        return signal

    def __repr__(self) -> str:
        """Show the point and how many listen."""
        signal = self._signal()
        name = "gone" if signal is None else repr(signal.name)
        return f"<Emitter {name}: {len(self._own)} of its own, live={self.live}>"


def weakly(method: Function) -> Function:
    """Make a function that calls a bound method as long as its object is alive."""
    reference = weakref.WeakMethod(method)

    def call(*args: object, **kwargs: object) -> Any:
        alive = reference()
        return None if alive is None else alive(*args, **kwargs)

    return call
