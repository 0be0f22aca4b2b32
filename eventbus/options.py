"""What one may say when connecting, checked at once and turned into a Subscription."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable
from types import CellType
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from blinker import ANY

from eventbus.binding import Binding, Receiver, bind, describe, is_coroutine
from eventbus.codegen import shape
from eventbus.counts import SendCount
from eventbus.emitter import Home
from eventbus.errors import BindingError, DuplicateError, nearest
from eventbus.order import priority_number
from eventbus.signal import Signal, weak_kind
from eventbus.subscription import Subscription

if TYPE_CHECKING:
    from eventbus.background import Delivery, Workers

Errors = Literal["raise", "warn", "disconnect"]
Overflow = Literal["block", "drop_oldest", "error"]


class Options(TypedDict, total=False):
    """The options that ``on``, ``connect``, ``connected`` and ``attach`` share."""

    sender: object
    """Hear this sender alone; by default any."""
    weak: bool
    """Hold the receiver weakly; False by default."""
    priority: str | int | None
    """A name such as "LOW", or 0 (first) to 100 (last); "NORMAL" by default."""
    after: str | Iterable[str]
    """Run after the subscriptions of these names."""
    before: str | Iterable[str]
    """Run before the subscriptions of these names."""
    every: int | None
    """Fire where the point's index + 1 divides by this."""
    at: int | Collection[int] | None
    """Fire at this index, or these, counted from 0."""
    start: int | None
    """Fire from this index on."""
    stop: int | None
    """Fire below this index."""
    when: Callable[..., object] | None
    """Fire where this, which takes payload by name as a receiver does, is true."""
    once: bool
    """Disconnect before the first call."""
    errors: Errors
    """What becomes of a receiver's exception: "raise", "warn" or "disconnect"."""
    name: str | None
    """What ``after=`` and ``before=`` call it; by default the function's name."""
    again: bool
    """Allow the same receiver a second time at the same point and sender."""
    background: bool | str
    """Deliver on the bus's worker, or on the worker of this name."""
    overflow: Overflow
    """What to do when the worker's queue is full: "block", "drop_oldest" or "error"."""


NAMES: Final = frozenset(Options.__annotations__)
_NO_OPTIONS: Final[Options] = {}


def check_names(options: dict[str, Any] | Options) -> None:
    """Raise TypeError for an option that does not exist, naming the nearest that does."""
    for name in options:
        if name not in NAMES:
            hint = nearest(name, NAMES)
            msg = f"there is no option {name!r}{hint}; the options are {', '.join(sorted(NAMES))}"
            raise TypeError(msg)


def subscribe(
    signal: Signal,
    receiver: Receiver,
    options: Options = _NO_OPTIONS,
    *,
    workers: Workers | None = None,
    by_position: bool = False,
) -> Subscription:
    """Connect ``receiver`` to ``signal`` so that it takes the payload by name.

    Raises:
        TypeError: the receiver is not callable or an option has the wrong type.
        BindingError: it requires what the point does not carry, or can't be called there.
        DuplicateError: it is connected there already.
        OrderError: ``after`` and ``before`` close a cycle.
        ValueError: an option's value is out of range.

    """
    binding = bind(receiver, signal.by_position if by_position else signal.carried)
    if binding.coroutine and not signal.awaited:
        _refuse_coroutine(signal, receiver)
    if options:
        made = _with_options(signal, receiver, binding, options, workers)
        sender, again = options.get("sender", ANY), options.get("again", False)
        home = signal.home_for(sender)
    else:
        made = Subscription(receiver, signal.name, shape(binding.arguments, "", binding.coroutine))
        sender, again, home = ANY, False, signal
    with signal.guard:
        if not again and made.identity in home.ids:
            _check_duplicate(signal, home, receiver, sender)
        signal.settle(made, home)
    signal.announce(made, receiver, sender)
    return made


def _with_options(
    signal: Signal,
    receiver: Receiver,
    binding: Binding,
    options: Options,
    workers: Workers | None,
) -> Subscription:
    check_names(options)
    weak = bool(options.get("weak"))
    background = options.get("background") or False
    extra: dict[str, CellType] = {}
    filters = _filters(signal, receiver, options, extra)
    call: Delivery | None = None
    if background:
        call = _in_background(signal, receiver, background, options, workers)
        extra["call"] = CellType(call)
    made = Subscription(
        receiver,
        signal.name,
        shape(
            binding.arguments,
            weak_kind(receiver) if weak else "",
            binding.coroutine,
            wrapped=bool(background),
            **filters,
        ),
        weak=weak,
        call=call,
        name=_name(options.get("name")),
        priority=priority_number(options.get("priority")),
        after=_names("after", options.get("after")),
        before=_names("before", options.get("before")),
        extra=extra or None,
    )
    if call is not None:
        call.subscription = weakref.ref(made)
    return made


def _check_duplicate(signal: Signal, home: Home, receiver: Receiver, sender: object) -> None:
    for other in home.find(receiver):
        if not other.shape.plain:
            whom = "" if sender is ANY else f" for {sender!r}"
            msg = (
                f"{describe(receiver)} is connected to {signal.name!r}{whom} already; pass "
                "again=True to have it called twice, or connect it to one loop with loop.on, or "
                "inside bus.scope() so that it is gone after"
            )
            raise DuplicateError(msg)


def _refuse_coroutine(signal: Signal, receiver: Receiver) -> None:
    msg = (
        f"{describe(receiver)} is a coroutine function, but {signal.name!r} is sent synchronously "
        f"and would never await it; declare the point with awaited=True and send it with "
        "`await bus.send_async(...)`, or connect a plain function that schedules the coroutine"
    )
    raise BindingError(msg)


def _filters(
    signal: Signal,
    receiver: Receiver,
    options: Options,
    extra: dict[str, CellType],
) -> dict[str, Any]:
    """Check the filters and the error policy; put their values into ``extra``."""
    found: dict[str, Any] = {}
    every = options.get("every")
    if every is not None:
        found["every"] = _index("every", every, least=1)
    start, stop = options.get("start"), options.get("stop")
    if start is not None:
        found["start"] = _index("start", start)
    if stop is not None:
        found["stop"] = _index("stop", stop)
        if start is not None and stop <= start:
            msg = f"stop={stop} must be greater than start={start}, or it would never fire"
            raise ValueError(msg)
    at = options.get("at")
    if at is not None:
        found["at"] = True
        extra["at"] = CellType(_indices(at))
    if found and signal.index is None:
        extra["n"] = CellType(SendCount())
    when = options.get("when")
    if when is not None:
        found["when"] = _predicate(signal, when, receiver)
        extra["when"] = CellType(when)
    found["once"] = bool(options.get("once"))
    errors = found["errors"] = options.get("errors", "raise")
    if errors not in ("raise", "warn", "disconnect"):
        msg = f'errors must be "raise", "warn" or "disconnect", not {errors!r}'
        raise ValueError(msg)
    return found


def _predicate(signal: Signal, when: Receiver, receiver: Receiver) -> str:
    if not callable(when):
        msg = f"when= of {describe(receiver)} must be callable, not {when!r}"
        raise TypeError(msg)
    binding = bind(when, signal.carried)
    if binding.coroutine:
        msg = f"when= of {describe(receiver)} must be a plain function, not a coroutine function"
        raise BindingError(msg)
    return binding.arguments


def _index(option: str, value: object, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        msg = f"{option} must be an int, not {value!r}"
        raise TypeError(msg)
    if value < least:
        msg = f"{option} must be at least {least}, not {value}"
        raise ValueError(msg)
    return value


def _indices(at: object) -> frozenset[int]:
    values = [at] if isinstance(at, int) else at
    if not isinstance(values, Collection) or isinstance(values, str | bytes):
        msg = f"at must be an int or a collection of ints, not {at!r}"
        raise TypeError(msg)
    if not values:
        msg = "at is empty: the receiver would never be called"
        raise ValueError(msg)
    return frozenset(_index("at", value) for value in values)


def _name(name: object) -> str | None:
    if name is not None and (not isinstance(name, str) or not name):
        msg = f"name must be a non-empty str, not {name!r}"
        raise TypeError(msg)
    return name


def _names(option: str, value: object) -> tuple[str, ...]:
    if value is None or value == ():
        return ()
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, Iterable):
        msg = f"{option} must be a name or several, not {value!r}"
        raise TypeError(msg)
    names = tuple(names)
    for name in names:
        if not isinstance(name, str):
            msg = f"{option} takes the names of subscriptions, not {name!r}"
            raise TypeError(msg)
    return names


def _in_background(
    signal: Signal,
    receiver: Receiver,
    background: object,
    options: Options,
    workers: Workers | None,
) -> Delivery:
    if workers is None:
        msg = f"background=True needs a Bus; {signal.name!r} stands alone"
        raise ValueError(msg)
    if options.get("weak"):
        msg = "a background receiver is held by its worker and cannot be weak"
        raise ValueError(msg)
    if is_coroutine(receiver):
        msg = f"{describe(receiver)} is a coroutine function, which a worker cannot await"
        raise BindingError(msg)
    return workers.deliver(background, receiver, signal.name, options.get("overflow"))
