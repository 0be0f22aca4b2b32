"""Random programs that change the bus while it sends, run beside a small reference model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventbus import ANY, Bus, DuplicateError, Subscription

RECEIVERS = 5
SENDERS = ("a", "b")
DOORS = ("emitter", "signal", "bus")
BUDGET = 50  # sends of one program, nested ones included


class Connect(NamedTuple):
    receiver: int
    sender: int | None
    priority: int
    once: bool
    every: int | None
    even: bool
    errors: str
    weak: bool
    again: bool
    plain: bool


class Act(NamedTuple):
    what: str  # of the handle of this number: disconnect, mute or unmute
    handle: int


class Drop(NamedTuple):
    receiver: int
    sender: int | None


class Send(NamedTuple):
    sender: int
    number: int
    door: int
    silent: bool


class Fail(NamedTuple):
    pass


Op = Connect | Act | Drop | Send | Fail


class Program(NamedTuple):
    main: list[Op]
    scripts: dict[int, list[list[Op]]]
    """What each receiver does in its first, second, ... call."""


Call = Callable[[int, object, int], None]


class System(Protocol):
    def connect(self, op: Connect) -> None: ...
    def act(self, op: Act) -> None: ...
    def drop(self, op: Drop) -> None: ...
    def send(self, op: Send) -> list[int] | None: ...


@dataclass(eq=False)
class Entry:
    op: Connect
    active: bool = True
    mutes: int = 0


class Model:
    """The semantics, in as few words as there are."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.entries: list[Entry] = []
        self.handles: list[Entry] = []

    def at(self, receiver: int, sender: int | None, *, plain: bool) -> list[Entry]:
        return [
            e
            for e in self.entries
            if e.active and (e.op.receiver, e.op.sender, e.op.plain) == (receiver, sender, plain)
        ]

    def connect(self, op: Connect) -> None:
        there = self.at(op.receiver, op.sender, plain=op.plain)
        if there and op.plain:
            return
        if there and not op.again:
            raise DuplicateError
        self.entries.append(Entry(op))
        if not op.plain:
            self.handles.append(self.entries[-1])

    def act(self, op: Act) -> None:
        if not self.handles:
            return
        entry = self.handles[op.handle % len(self.handles)]
        if op.what == "disconnect":
            entry.active = False
        elif op.what == "mute":
            entry.mutes += 1
        elif entry.mutes:
            entry.mutes -= 1
        else:
            raise RuntimeError

    def drop(self, op: Drop) -> None:
        found = [
            e
            for e in self.entries
            if e.active and e.op.receiver == op.receiver and op.sender in (None, e.op.sender)
        ]
        for entry in found:
            entry.active = False
        if not found:
            raise ValueError

    def send(self, op: Send) -> list[int] | None:
        results = []
        for entry in self.plan(op):
            o = entry.op
            if o.every and (op.number + 1) % o.every:
                continue
            if not entry.active or entry.mutes or (o.even and op.number % 2):
                continue
            if o.once:
                entry.active = False
            try:
                self.call(o.receiver, SENDERS[op.sender], op.number)
            except OSError:
                if o.errors == "raise":
                    raise
                if o.errors == "disconnect":
                    entry.active = False
            else:
                results.append(o.receiver)
        return None if DOORS[op.door] == "emitter" else results

    def plan(self, op: Send) -> list[Entry]:
        if op.silent:
            return []
        everyone = {
            e.op.receiver for e in self.entries if e.active and e.op.plain and e.op.sender is None
        }
        chosen = [
            e
            for e in self.entries
            if e.active
            and e.op.sender in (None, op.sender)
            and not (e.op.plain and e.op.sender is not None and e.op.receiver in everyone)
        ]
        return sorted(chosen, key=lambda e: e.op.priority)


class Real:
    """The bus itself."""

    def __init__(self, call: Call) -> None:
        self.bus = Bus()
        self.signal = self.bus.declare("p", ("i",), count="i")
        self.receivers = [self.receiver(call, number) for number in range(RECEIVERS)]
        self.handles: list[Any] = []

    def receiver(self, call: Call, number: int) -> Callable[[object, int], None]:
        def receive(sender: object, i: int) -> None:
            call(number, sender, i)

        return receive

    def connect(self, op: Connect) -> None:
        receiver = self.receivers[op.receiver]
        sender: object = ANY if op.sender is None else SENDERS[op.sender]
        if op.plain:
            self.signal.connect(receiver, sender, weak=op.weak)
            return
        options: Any = {"errors": op.errors}
        if op.every:
            options["every"] = op.every
        if op.even:
            options["when"] = lambda i: not i % 2
        handle = self.bus.connect(
            "p",
            receiver,
            sender=sender,
            priority=op.priority,
            once=op.once,
            weak=op.weak,
            again=op.again,
            **options,
        )
        assert isinstance(handle, Subscription)
        self.handles.append(handle)

    def act(self, op: Act) -> None:
        if self.handles:
            getattr(self.handles[op.handle % len(self.handles)], op.what)()

    def drop(self, op: Drop) -> None:
        sender: object = ANY if op.sender is None else SENDERS[op.sender]
        self.bus.disconnect(self.receivers[op.receiver], "p", sender)

    def send(self, op: Send) -> list[int] | None:
        if op.silent:
            with self.signal.muted():
                return self.deliver(op)
        return self.deliver(op)

    def deliver(self, op: Send) -> list[int] | None:
        sender = SENDERS[op.sender]
        door = DOORS[op.door]
        if door == "emitter":
            self.signal.emitter(sender).send(op.number)
            return None
        send = self.signal.send if door == "signal" else self.sent_by_bus
        return [self.receivers.index(receiver) for receiver, _ in send(sender, i=op.number)]

    def sent_by_bus(self, sender: object, /, **payload: object) -> list[tuple[Any, Any]]:
        return self.bus.send("p", sender, **payload)


def change(system: System, op: Connect | Act | Drop) -> None:
    if isinstance(op, Connect):
        system.connect(op)
    elif isinstance(op, Act):
        system.act(op)
    else:
        system.drop(op)


def trace(make: Callable[[Call], System], program: Program) -> list[object]:
    """Run a program and write down all that can be seen of it."""
    seen: list[object] = []
    scripts = {number: iter(script) for number, script in program.scripts.items()}
    budget = iter(range(BUDGET))

    def call(receiver: int, sender: object, index: int) -> None:
        seen.append((receiver, sender, index))
        for op in next(scripts.get(receiver, iter(())), ()):
            step(op)

    def step(op: Op) -> None:
        if isinstance(op, Fail):
            raise OSError
        if isinstance(op, Send):
            if next(budget, None) is not None:
                seen.append(system.send(op))
            return
        try:
            change(system, op)
        except (DuplicateError, RuntimeError, ValueError) as error:
            seen.append(type(error).__name__)

    system = make(call)
    for op in program.main:
        try:
            step(op)
        except OSError:
            seen.append("raised")
    return seen


receivers = st.integers(0, RECEIVERS - 1)
connects = st.builds(
    Connect,
    receivers,
    st.sampled_from([None, None, 0, 1]),
    st.sampled_from([50, 50, 10, 90]),
    once=st.sampled_from([False, False, True]),
    every=st.sampled_from([None, None, 2]),
    even=st.sampled_from([False, False, True]),
    errors=st.sampled_from(["raise", "warn", "disconnect"]),
    weak=st.booleans(),
    again=st.booleans(),
    plain=st.sampled_from([False, False, True]),
).map(lambda op: op._replace(priority=50) if op.plain else op)
connects = connects.map(
    lambda op: op._replace(once=False, every=None, even=False, errors="raise") if op.plain else op
)
acts = st.builds(Act, st.sampled_from(["disconnect", "mute", "unmute"]), st.integers(0, 9))
drops = st.builds(Drop, receivers, st.sampled_from([None, 0, 1]))
sends = st.builds(
    Send,
    st.integers(0, 1),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from([False, False, False, True]),
)
ops: st.SearchStrategy[Op] = st.one_of(connects, sends, acts, sends, drops, connects)
programs = st.builds(
    Program,
    st.lists(ops, min_size=4, max_size=40),
    st.dictionaries(
        receivers,
        st.lists(st.lists(st.one_of(ops, st.builds(Fail)), max_size=4), max_size=4),
        max_size=4,
    ),
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The policies log; a thousand tracebacks are of no use to anyone here."""
    logger = logging.getLogger("eventbus")
    logger.disabled = True
    yield
    logger.disabled = False


QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=300, deadline=None, suppress_health_check=QUIET)
@given(programs)
def test_programs_run_as_the_model_says(program: Program) -> None:
    """Connecting, disconnecting, muting, failing and nested sends agree with the model."""
    assert trace(Real, program) == trace(Model, program)


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None, suppress_health_check=QUIET)
@given(programs)
def test_many_programs_run_as_the_model_says(program: Program) -> None:
    """Ten thousand random programs agree with the model."""
    assert trace(Real, program) == trace(Model, program)
