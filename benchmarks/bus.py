"""The bus beside plain calls and beside other dispatchers, in one interleaved process.

Run it as ``python benchmarks/bus.py``; peers that are not installed are left out. The
floor is ``for f in fs: f(epoch, logs)`` with receivers that do nothing.
"""

from __future__ import annotations

import importlib.util
import tracemalloc
from collections.abc import Callable
from typing import Any

from timing import Case, measure, table, versions

from eventbus import Bus, Emitter, Signal

LOGS: dict[str, float] = {"loss": 1.0}
COUNTS = (0, 1, 5, 50)


class Sender:
    """Something that sends."""


SENDER = Sender()

SIGNATURES = ("epoch, logs", "logs", "epoch", "logs, epoch", "epoch, logs, extra=None")


def receivers(count: int, signatures: tuple[str, ...] = ("epoch, logs",)) -> list[Any]:
    """Make distinct functions that do nothing."""
    made: list[Any] = []
    for i in range(count):
        scope: dict[str, Any] = {}
        exec(f"def receiver({signatures[i % len(signatures)]}): pass", scope)  # noqa: S102
        made.append(scope["receiver"])
    return made


def make_bus(
    count: int, signatures: tuple[str, ...] = ("epoch, logs",)
) -> tuple[Bus, Signal, Emitter]:
    """Make a bus with one point and some receivers of it."""
    bus = Bus()
    signal = bus.declare("epoch_end", ("epoch", "logs"), count="epoch")
    for receiver in receivers(count, signatures):
        bus.connect("epoch_end", receiver)
    return bus, signal, signal.emitter(SENDER)


def floor(count: int) -> Case:
    """Call the receivers directly."""
    functions = receivers(count)

    def run(number: int) -> None:
        for epoch in range(number):
            for function in functions:
                function(epoch, LOGS)

    return run


def emitting(emitter: Emitter) -> Case:
    """Send through the hot door."""

    def run(number: int) -> None:
        for epoch in range(number):
            emitter.send(epoch, LOGS)

    return run


def gated(emitter: Emitter) -> Case:
    """Send through the hot door where somebody listens."""

    def run(number: int) -> None:
        for epoch in range(number):
            if emitter.live:
                emitter.send(epoch, LOGS)

    return run


def sending(signal: Any) -> Case:
    """Send as blinker does, with a list of results."""

    def run(number: int) -> None:
        for epoch in range(number):
            signal.send(SENDER, epoch=epoch, logs=LOGS)

    return run


def blinker_case(count: int) -> Case:
    """Send with blinker."""
    import blinker  # noqa: PLC0415

    signal = blinker.Signal()
    for receiver in receivers(count, ("sender, epoch, logs",)):
        signal.connect(receiver, weak=False)
    return sending(signal)


def psygnal_case(count: int) -> Case:
    """Send with psygnal's fast door."""
    from psygnal import Signal as PsygnalSignal  # noqa: PLC0415

    class Owner:
        epoch_end = PsygnalSignal(int, dict)

    owner = Owner()
    for receiver in receivers(count):
        owner.epoch_end.connect(receiver)

    def run(number: int) -> None:
        for epoch in range(number):
            owner.epoch_end.emit_fast(epoch, LOGS)

    return run


def pluggy_case(count: int) -> Case:
    """Call a hook with pluggy."""
    import pluggy  # noqa: PLC0415

    spec, impl = pluggy.HookspecMarker("bench"), pluggy.HookimplMarker("bench")

    class Spec:
        @spec
        def epoch_end(self, epoch: int, logs: Any) -> None: ...

    manager = pluggy.PluginManager("bench")
    manager.add_hookspecs(Spec)
    for receiver in receivers(count):
        plugin = type("Plugin", (), {"epoch_end": staticmethod(impl(receiver))})
        manager.register(plugin())

    def run(number: int) -> None:
        for epoch in range(number):
            manager.hook.epoch_end(epoch=epoch, logs=LOGS)

    return run


def pyee_case(count: int) -> Case:
    """Emit with pyee."""
    from pyee import EventEmitter  # noqa: PLC0415

    emitter = EventEmitter()
    for receiver in receivers(count):
        emitter.on("epoch_end", receiver)

    def run(number: int) -> None:
        for epoch in range(number):
            emitter.emit("epoch_end", epoch, LOGS)

    return run


def pypubsub_case(count: int) -> Case:
    """Send with PyPubSub."""
    from pubsub import core  # noqa: PLC0415

    publisher = core.Publisher()  # type: ignore[attr-defined, unused-ignore]
    kept = receivers(count)
    for receiver in kept:
        publisher.subscribe(receiver, "epoch_end")

    def run(number: int) -> None:
        for epoch in range(number):
            publisher.sendMessage("epoch_end", epoch=epoch, logs=LOGS)

    run.kept = kept  # type: ignore[attr-defined] # it holds listeners weakly
    return run


def django_case(count: int) -> Case:
    """Send with Django's dispatcher."""
    from django.dispatch import Signal as DjangoSignal  # noqa: PLC0415

    signal = DjangoSignal()
    for receiver in receivers(count, ("sender, epoch, logs, **kwargs",)):
        signal.connect(receiver, weak=False)

    def run(number: int) -> None:
        for epoch in range(number):
            signal.send(SENDER, epoch=epoch, logs=LOGS)

    return run


PEERS: dict[str, tuple[str, Callable[[int], Case]]] = {
    "blinker `send`": ("blinker", blinker_case),
    "psygnal `emit_fast`": ("psygnal", psygnal_case),
    "pluggy hook": ("pluggy", pluggy_case),
    "pyee `emit`": ("pyee", pyee_case),
    "PyPubSub `sendMessage`": ("pubsub", pypubsub_case),
    "Django `send`": ("django", django_case),
}


def dispatch() -> str:
    """Compare the two doors with the floor and with peers, by number of receivers."""
    peers = {n: make for n, (module, make) in PEERS.items() if importlib.util.find_spec(module)}
    columns: dict[str, list[str]] = {}
    for count in COUNTS:
        cases = {"floor: direct calls": floor(count)}
        cases["emitter"] = emitting(make_bus(count, SIGNATURES)[2])
        cases["emitter, gated by `live`"] = gated(make_bus(count, SIGNATURES)[2])
        cases["`signal.send`"] = sending(make_bus(count, SIGNATURES)[1])
        cases |= {name: make(count) for name, make in peers.items()}
        times = measure(cases, 60_000 // (count + 1))
        base = times["floor: direct calls"]
        for name, seconds in times.items():
            ratio = f" ({seconds / base:.2f}x)" if count and name in cases else ""
            columns.setdefault(name, []).append(f"{seconds * 1e9:,.0f} ns{ratio}")
    rows = [[name, *cells] for name, cells in columns.items()]
    return table(["", *(f"{count} receivers" for count in COUNTS)], rows)


def plain() -> list[str]:
    """Send through the hot door to five receivers connected as with blinker."""
    signal = Bus().declare("epoch_end", ("epoch", "logs"), count="epoch")
    functions = receivers(5, ("sender, **payload",))
    for function in functions:
        signal.connect(function)

    def direct(number: int) -> None:
        for epoch in range(number):
            for function in functions:
                function(SENDER, epoch=epoch, logs=LOGS)

    times = measure({"direct": direct, "ours": emitting(signal.emitter(SENDER))}, 20_000)
    return _row("emitter, 5 plain-blinker receivers / direct calls", times["ours"], times["direct"])


def filtered() -> list[str]:
    """Send to a receiver with every=100 when it does not fire."""
    bus = Bus()
    signal = bus.declare("epoch_end", ("epoch", "logs"), count="epoch")
    bus.connect("epoch_end", receivers(1)[0], every=100)
    emitter = signal.emitter(SENDER)

    def skipping(number: int) -> None:
        for _ in range(number):
            emitter.send(5, LOGS)

    times = measure({"plain": emitting(make_bus(1)[2]), "every": skipping}, 60_000)
    return _row("`every=100` that does not fire / plain receiver", times["every"], times["plain"])


def changing() -> list[list[str]]:
    """Connect and disconnect with five others there, also with a send after each."""
    import blinker  # noqa: PLC0415

    bus, _, emitter = make_bus(5)
    (extra,) = receivers(1)
    theirs = blinker.Signal()
    others = receivers(5, ("sender, **payload",))
    (plain_extra,) = receivers(1, ("sender, **payload",))
    for other in others:
        theirs.connect(other)

    def connecting(number: int) -> None:
        for _ in range(number):
            bus.connect("epoch_end", extra).disconnect()

    def alternating(number: int) -> None:
        for epoch in range(number):
            subscription = bus.connect("epoch_end", extra)
            emitter.send(epoch, LOGS)
            subscription.disconnect()
            emitter.send(epoch, LOGS)

    def blinker_connecting(number: int) -> None:
        for _ in range(number):
            theirs.connect(plain_extra)
            theirs.disconnect(plain_extra)

    times = measure(
        {"ours": connecting, "sends": alternating, "blinker": blinker_connecting}, 5_000
    )
    return [
        _row("connect + disconnect / blinker's", times["ours"], times["blinker"]),
        _row(
            "the same, each followed by a send / blinker's without",
            times["sends"],
            times["blinker"],
        ),
    ]


def crowded() -> list[list[str]]:
    """Send and connect while 10,000 receivers listen to other senders."""
    crowd = [Sender() for _ in range(10_000)]
    (extra,) = receivers(1)

    def prepare(others: list[Sender]) -> tuple[Case, Case]:
        bus, signal, _ = make_bus(1)
        for other in others:
            bus.connect("epoch_end", extra, sender=other)

        def connecting(number: int) -> None:
            for _ in range(number):
                bus.connect("epoch_end", extra, sender=SENDER).disconnect()

        return sending(signal), connecting

    (send_alone, connect_alone), (send_crowded, connect_crowded) = prepare([]), prepare(crowd)
    sends = measure({"alone": send_alone, "crowded": send_crowded}, 20_000)
    connects = measure({"alone": connect_alone, "crowded": connect_crowded}, 2_000)
    where = "with 10,000 receivers on other senders / with none"
    return [
        _row(f"`signal.send` {where}", sends["crowded"], sends["alone"]),
        _row(f"connect to one sender {where}", connects["crowded"], connects["alone"]),
    ]


def memory() -> list[str]:
    """Weigh a subscription."""
    functions = receivers(10_000)
    bus, _, _ = make_bus(0)
    tracemalloc.start()
    kept = [bus.connect("epoch_end", function) for function in functions]
    size = tracemalloc.get_traced_memory()[0] / len(kept)
    tracemalloc.stop()
    return ["memory per subscription", f"{size:.0f} bytes", ""]


def _row(name: str, seconds: float, base: float) -> list[str]:
    return [name, f"{seconds * 1e9:,.0f} ns / {base * 1e9:,.0f} ns", f"{seconds / base:.2f}x"]


def main() -> None:
    """Print the tables."""
    peers = ("blinker", "psygnal", "pluggy", "pyee", "pypubsub", "django")
    print(versions(*peers), "\n")
    print(dispatch(), "\n")
    print(table(["", "time", "ratio"], [plain(), filtered(), *changing(), *crowded(), memory()]))


if __name__ == "__main__":
    main()
