"""What type checkers make of the public names. Checked by mypy and pyright, not run by pytest.

Lines that must be refused carry an ignore comment, which a checker reports if it is not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

from eventbus import Bus, Emitter, Order, Signal, Stats, Subscription, SubscriptionGroup
from eventbus.testing import Recorder, record

bus = Bus(sender="loop")
assert_type(bus.declare("epoch_end", ("epoch", "logs"), count="epoch"), Signal)


@bus.on("epoch_end", every=2, priority="LOW", when=lambda epoch: epoch > 3)
def report(epoch: int, logs: dict[str, float]) -> str:
    return f"{epoch}: {logs}"


@bus.on("epoch_end")
async def coroutine(epoch: int) -> int:
    return epoch


class Watch:
    @bus.on("epoch_end", "test_*", once=True)
    def note(self, signal: str) -> bool:
        return bool(signal)


# decorated functions and methods keep their types
assert_type(report(1, {}), str)
assert_type(Watch().note("x"), bool)
report("1", {})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def awaits() -> None:
    assert_type(await coroutine(1), int)
    assert_type(
        await bus.send_async("epoch_end", epoch=1, logs={}), list[tuple[Callable[..., Any], Any]]
    )


# handles
assert_type(bus.connect("epoch_end", report), Subscription | SubscriptionGroup)
assert_type(bus.attach(Watch()), SubscriptionGroup)
for subscription in bus.attach(Watch()):
    assert_type(subscription, Subscription)
    assert_type(subscription.stats, Stats)
    assert_type(subscription.active, bool)
    assert_type(subscription.muted, bool)
    assert_type(subscription.disconnect(), None)
with bus.connected("epoch_end", report, weak=True) as handle:
    assert_type(handle, Subscription | SubscriptionGroup)

# options are known by name and type
bus.connect("epoch_end", report, evry=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
bus.connect("epoch_end", report, every="2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
bus.on("epoch_end", errors="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
bus.connect("epoch_end", 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

# both doors
signal = bus.signal("epoch_end")
assert_type(signal, Signal)
assert_type(signal.send("s", epoch=1, logs={}), list[tuple[Callable[..., Any], Any]])
assert_type(bus.send("epoch_end", "s", epoch=1), list[tuple[Callable[..., Any], Any]])
emitter = signal.emitter("s")
assert_type(emitter, Emitter)
assert_type(emitter.live, bool)
assert_type(emitter.send_all(1, {}), list[BaseException])

# blinker's own methods
assert_type(signal.connect(report)(1, {}), str)
assert_type(signal.receivers, dict[object, Callable[..., Any]])

# looking
assert_type(bus.order("epoch_end"), Order)
assert_type(bus.subscriptions(), tuple[Subscription, ...])
assert_type(bus.points, tuple[str, ...])
assert_type(bus.report(), str)
with bus.scope(), bus.profile(), record(bus, "test_*") as recorded:
    assert_type(recorded, Recorder)
    assert_type(recorded.points, list[str])
