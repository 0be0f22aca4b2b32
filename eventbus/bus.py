"""Bus: a namespace of signals with their subscriptions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar, Unpack

from blinker import ANY

from eventbus.attach import calling_frame, in_class_body, mark, wanted
from eventbus.background import Workers
from eventbus.binding import Receiver
from eventbus.namespace import Namespace
from eventbus.notebook import replace_rerun
from eventbus.options import Options, check_names, subscribe
from eventbus.order import Order
from eventbus.patterns import Patterns, matches
from eventbus.report import render
from eventbus.signal import Signal
from eventbus.subscription import Subscription, SubscriptionGroup

F = TypeVar("F", bound=Callable[..., Any])

Handle = Subscription | SubscriptionGroup


class Bus(Namespace):
    """A namespace of signals, each a declared point, with their subscriptions.

    Args:
        open: declare a point, with any payload, when its name is first used.
        sender: a further name, beside ``sender``, by which receivers ask for the sender.

    """

    def __init__(self, *, open: bool = False, sender: str | None = None) -> None:  # noqa: A002
        super().__init__(open=open, sender=sender)
        self._workers = Workers()
        self._patterns = Patterns()
        self._scopes: dict[int, list[list[Handle]]] = {}
        """The open scopes of each thread, the innermost last."""
        self._profiling = 0

    def _declared(self, signal: Signal) -> None:
        """Have a new point profiled, and heard by the catch-alls that match it."""
        if self._profiling:
            signal.time_calls(timed=True)
        self._patterns.extend(signal, self._workers)

    # -- connecting

    def on(self, *points: str, **options: Unpack[Options]) -> Callable[[F], F]:
        """Connect the decorated function; in the body of a class, mark it for ``attach``.

        Args:
            points: names, or patterns such as ``"*"`` and ``"test_*"``.
            options: see `eventbus.options.Options`.

        Raises:
            UnknownPointError: a name is no point.
            BindingError, DuplicateError, OrderError, TypeError, ValueError: as ``connect``.

        """
        check_names(options)
        self._check_points(points)
        in_class = in_class_body(calling_frame())

        def decorate(receiver: F) -> F:
            if in_class:
                mark(receiver, points, options)
            else:
                replace_rerun(self.subscriptions(), self._patterns, receiver)
                self.connect(points, receiver, **options)
            return receiver

        return decorate

    def connect(
        self, points: str | Iterable[str], receiver: Receiver, **options: Unpack[Options]
    ) -> Handle:
        """Connect a receiver, which is called with what its signature names.

        Args:
            points: a name, several, or patterns such as ``"test_*"``.
            receiver: held strongly unless ``weak=True``.
            options: see `eventbus.options.Options`.

        Returns:
            The Subscription; a SubscriptionGroup for several points or a pattern.

        Raises:
            UnknownPointError: a name is no point.
            BindingError: the receiver requires what a point does not carry.
            DuplicateError: it is connected there already and ``again`` is not set.
            OrderError: ``after`` and ``before`` close a cycle.
            TypeError, ValueError: an option is wrong.

        """
        handle: Handle
        if type(points) is str and "*" not in points:
            signal = self.signal(points)
            handle = subscribe(signal, receiver, options, workers=self._workers)
        else:
            handle = self._connect_several(self._check_points(points), receiver, options)
        if self._scopes:
            self._put_in_scope(handle)
        return handle

    def _connect_several(
        self,
        points: tuple[str, ...],
        receiver: Receiver,
        options: Options,
        *,
        by_position: bool = False,
    ) -> SubscriptionGroup:
        if options.get("weak") and any("*" in point for point in points):
            msg = "a receiver connected by pattern is held for points yet to come: not weakly"
            raise ValueError(msg)
        group = SubscriptionGroup()
        for pattern in points:
            if "*" in pattern:  # first: a point that is declared meanwhile is not missed
                self._patterns.add(pattern, receiver, options, group)
        try:
            for signal in self._matching(points):
                if group.take(signal.name):
                    made = subscribe(
                        signal, receiver, options, workers=self._workers, by_position=by_position
                    )
                    group.add(made)
        except BaseException:
            group.disconnect()
            raise
        return group

    def _put_in_scope(self, handle: Handle) -> None:
        mine = self._scopes.get(threading.get_ident())
        if mine:
            mine[-1].append(handle)

    def _check_points(self, points: str | Iterable[str]) -> tuple[str, ...]:
        names = (points,) if isinstance(points, str) else tuple(points)
        if not names:
            msg = "name at least one point"
            raise TypeError(msg)
        for name in names:
            if not isinstance(name, str):
                msg = f"a point is named by a str, not {name!r}"
                raise TypeError(msg)
            if "*" not in name:
                self.signal(name)
            elif "*" in name[:-1]:
                msg = f"{name!r}: a pattern is '*' or a prefix with one '*' at its end"
                raise ValueError(msg)
        return names

    def _matching(self, points: tuple[str, ...]) -> list[Signal]:
        found: dict[str, Signal] = {}
        for name in points:
            if "*" in name:
                found |= {n: s for n, s in tuple(self._signals.items()) if matches(name, n)}
            else:
                signal = self.signal(name)
                found[signal.name] = signal
        return list(found.values())

    def attach(self, owner: object, **options: Unpack[Options]) -> SubscriptionGroup:
        """Connect an object's methods: those marked by ``@on``, and those named ``on_<point>``.

        The latter may name their parameters freely: what is not in the payload binds by
        position, in the payload's order. Methods of a base class that do nothing are left
        out. A ``priority`` and a ``name`` that the object has hold for its subscriptions.

        Args:
            owner: any object.
            options: for all of its subscriptions; they override the object's and the marks'.

        Returns:
            One handle for all. Either all are connected or, when one can't be, none.

        Raises:
            TypeError: it has nothing to connect, or an ``on_...`` method that names no point.
            BindingError, DuplicateError, OrderError, ValueError: as ``connect``.

        """
        check_names(options)
        defaults: Options = {"name": type(owner).__name__}
        priority, name = getattr(owner, "priority", None), getattr(owner, "name", None)
        if isinstance(priority, str | int):
            defaults["priority"] = priority
        if isinstance(name, str) and name:
            defaults["name"] = name
        group = SubscriptionGroup()
        methods = list(wanted(self, owner))
        if not methods:
            msg = (
                f"{owner!r} has nothing to attach: no method marked by @on, and none named "
                f"on_<point>{', such as on_' * bool(self.points)}{', on_'.join(self.points[:3])}"
            )
            raise TypeError(msg)
        try:
            for points, method, marked, by_position in methods:
                merged: Options = {**defaults, **marked, **options}  # type: ignore[typeddict-item]
                group.add(self._connect_several(points, method, merged, by_position=by_position))
        except BaseException:
            group.disconnect()
            raise
        if self._scopes:
            self._put_in_scope(group)
        return group

    def disconnect(
        self,
        receiver: Receiver,
        points: str | Iterable[str] = "*",
        sender: object = ANY,
    ) -> None:
        """Disconnect a receiver from points, by default from all, and from all senders.

        Raises:
            ValueError: it is connected to none of them.

        """
        points = self._check_points(points)
        found = self._patterns.end(receiver, points, sender)
        for signal in self._matching(points):
            for subscription in signal.find_all(receiver, sender):
                subscription.disconnect()
                found = True
        if not found:
            msg = f"{receiver!r} is not connected to {points!r}"
            raise ValueError(msg)

    @contextmanager
    def connected(
        self, points: str | Iterable[str], receiver: Receiver, **options: Unpack[Options]
    ) -> Iterator[Handle]:
        """Connect a receiver inside a ``with`` block; takes what ``connect`` takes."""
        handle = self.connect(points, receiver, **options)
        try:
            yield handle
        finally:
            handle.disconnect()

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Disconnect, at the end of a ``with`` block, all that this thread connected in it."""
        thread = threading.get_ident()
        mine: list[Handle] = []
        scopes = self._scopes.setdefault(thread, [])
        scopes.append(mine)
        try:
            yield
        finally:
            scopes[:] = [s for s in scopes if s is not mine]
            if not scopes:
                del self._scopes[thread]
            for handle in reversed(mine):
                handle.disconnect()

    # -- sending

    def send(
        self, point: str, sender: object = None, /, **payload: object
    ) -> list[tuple[Receiver, Any]]:
        """Send a point and return blinker's list of (receiver, value).

        Raises:
            UnknownPointError: there is no such point.
            TypeError: a declared key is missing from the payload or one is too many.

        """
        return self.signal(point).send(sender, **payload)

    async def send_async(
        self, point: str, sender: object = None, /, **payload: object
    ) -> list[tuple[Receiver, Any]]:
        """Send a point, awaiting coroutine functions in their turn; returns as ``send``."""
        return await self.signal(point).send_async(sender, **payload)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until background receivers have handled all that was sent.

        Args:
            timeout: seconds to wait; None for no limit.

        Raises:
            TimeoutError: they had not by then.
            BaseException: what a background receiver raised; a group if several did.

        """
        self._workers.flush(timeout)

    # -- looking

    def subscriptions(
        self, point: str | None = None, sender: object = ANY
    ) -> tuple[Subscription, ...]:
        """Return the subscriptions of a point, or of all, in the order in which they run.

        Args:
            point: None for every point.
            sender: only those that hear this sender.

        """
        signals = self._signals.values() if point is None else [self.signal(point)]
        return tuple(s for signal in tuple(signals) for s in signal.subscriptions(sender))

    def order(self, point: str, sender: object = ANY) -> Order:
        """Return who runs when at a point, and why; printing it draws a table."""
        return Order(self.subscriptions(point, sender))

    @contextmanager
    def profile(self) -> Iterator[None]:
        """Count and time every receiver's calls inside a ``with`` block; see ``report``."""
        self._profile(1)
        try:
            yield
        finally:
            self._profile(-1)

    def _profile(self, by: int) -> None:
        with self._guard:
            before = self._profiling
            self._profiling += by
        if bool(before) != bool(self._profiling):
            for signal in tuple(self._signals.values()):
                signal.time_calls(timed=bool(self._profiling))

    def report(self) -> str:
        """Render what each subscription cost while ``profile`` was on, dearest first."""
        return render(self.subscriptions())

    def __repr__(self) -> str:
        """Show how many points and subscriptions there are."""
        return f"<Bus: {len(self._signals)} points, {len(self.subscriptions())} subscriptions>"

    def __copy__(self) -> NoReturn:
        """Refuse: a copy would share the connections, but not their handles."""
        self.__reduce__()

    def __deepcopy__(self, memo: object) -> NoReturn:
        """Refuse: see ``__copy__``."""
        self.__reduce__()

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: connections belong to the process that made them."""
        msg = (
            "a Bus cannot be copied or pickled: its connections, locks and workers belong to this "
            "process; make a new Bus and declare the points on it"
        )
        raise TypeError(msg)
