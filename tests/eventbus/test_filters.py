"""every, at, start, stop, when and once; muting."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventbus import BindingError, Bus, Signal


@pytest.fixture
def bus() -> Bus:
    """Give a bus with a counted point, and one that counts its sends."""
    bus = Bus()
    bus.declare("counted", ("step", "x"), count="step")
    bus.declare("bare", ("x",))
    return bus


def fired(bus: Bus, point: str = "counted", sends: int = 12, **options: Any) -> list[int]:
    """Send 0, 1, 2, ... through every door in turn, and return where the receiver was called."""
    heard: list[int] = []
    bus.connect(point, lambda x: heard.append(x), **options)
    emitter = bus.signal(point).emitter("s")
    for i in range(sends):
        payload = {"x": i} if point == "bare" else {"step": i, "x": i}
        if i % 2:
            emitter.send(**payload)
        else:
            bus.send(point, "s", **payload)
    return heard


@settings(max_examples=60, deadline=None)
@given(
    every=st.none() | st.integers(1, 5),
    start=st.none() | st.integers(0, 6),
    length=st.none() | st.integers(1, 6),
    at=st.none() | st.integers(0, 12) | st.sets(st.integers(0, 12), min_size=1),
    odd=st.booleans(),
    point=st.sampled_from(["counted", "bare"]),
)
def test_filters_combine(
    every: int | None,
    start: int | None,
    length: int | None,
    at: int | set[int] | None,
    odd: bool,
    point: str,
) -> None:
    """A receiver fires where all of its filters agree, counted from 0, half-open as range."""
    bus = Bus()
    bus.declare("counted", ("step", "x"), count="step")
    bus.declare("bare", ("x",))
    stop = None if length is None else (start or 0) + length
    options: dict[str, Any] = {"every": every, "start": start, "stop": stop, "at": at}
    if odd:
        options["when"] = lambda x: x % 2
    expected = [
        i
        for i in range(12)
        if (every is None or (i + 1) % every == 0)
        and i >= (start or 0)
        and (stop is None or i < stop)
        and (at is None or i in ({at} if isinstance(at, int) else at))
        and (not odd or i % 2)
    ]
    assert fired(bus, point, **options) == expected


def test_every_holds_its_phase(bus: Bus) -> None:
    """every=n goes by the point's own index, so that a resumed run fires where it would have."""
    heard: list[int] = []
    bus.connect("counted", lambda step: heard.append(step), every=5)
    for step in range(7, 20):
        bus.send("counted", step=step, x=0)
    assert heard == [9, 14, 19]


def test_sends_are_counted_per_sender_by_identity(bus: Bus) -> None:
    """Without an index each sender's sends are counted alone, also those of equal senders."""

    @dataclass(frozen=True)
    class Equal:
        n: int = 0

    @dataclass
    class Unhashable:
        n: int = 0

    for kind in (Equal, Unhashable):
        heard: list[object] = []
        with bus.connected("bare", lambda sender, heard=heard: heard.append(sender), every=2):
            first, second = kind(), kind()
            for _ in range(2):
                bus.send("bare", first, x=0)
                bus.send("bare", second, x=0)
            assert len(heard) == 2
            assert heard[0] is first
            assert heard[1] is second


def test_counts_die_with_their_sender(bus: Bus) -> None:
    """A new sender at a dead one's address is counted from the start; nothing piles up."""

    class Sender:
        pass

    heard: list[int] = []
    handle: Any = bus.connect("bare", lambda x: heard.append(x), at=0)
    for i in range(50):
        bus.send("bare", Sender(), x=i)
    assert heard == list(range(50))
    counter = handle._extra["n"].cell_contents
    assert not counter._senders
    assert not counter._counts
    del handle, counter


def test_senders_that_cannot_be_told_apart_are_counted_as_one(bus: Bus) -> None:
    """Tuples and floats may send; they share one count. str, int and None have their own."""
    heard: list[object] = []
    bus.connect("bare", lambda sender: heard.append(sender), every=2)
    for sender in ((1, 2), 1.5, "a", "a", 0, False, None, None):
        bus.send("bare", sender, x=0)
    assert heard == [1.5, "a", False, None]


def test_when_binds_like_a_receiver(bus: Bus) -> None:
    """when= takes payload by name, and is refused where it asks for what is not carried."""
    assert fired(bus, when=lambda step, sender: step == 3 and sender == "s") == [3]
    with pytest.raises(BindingError, match="requires 'epoch'"):
        bus.connect("counted", lambda: None, when=lambda epoch: epoch)


def test_when_may_end_its_own_subscription(bus: Bus) -> None:
    """A predicate that disconnects or mutes its subscription keeps it from being called."""
    for act in ("disconnect", "mute"):
        for weak in (False, True):
            ends_itself(bus, act, weak)


def ends_itself(bus: Bus, act: str, weak: bool) -> None:
    heard: list[int] = []

    def receiver(x: int) -> None:
        heard.append(x)

    def predicate() -> bool:
        getattr(handle, act)()
        return True

    handle = bus.connect("counted", receiver, when=predicate, weak=weak)
    bus.send("counted", step=0, x=0)
    bus.signal("counted").emitter("s").send(0, 0)
    assert not heard
    handle.disconnect()


def test_when_is_not_asked_for_muted_receivers(bus: Bus) -> None:
    """A muted receiver's predicate is not called."""
    asked: list[int] = []
    bus.connect("counted", lambda: None, when=lambda x: asked.append(x)).mute()
    bus.send("counted", step=0, x=0)
    assert not asked


def test_once_is_not_spent_by_filters_or_mutes(bus: Bus) -> None:
    """once counts the call, not the sends that a filter or a mute kept from it."""
    heard: list[int] = []
    handle = bus.connect("counted", lambda x: heard.append(x), once=True, when=lambda x: x > 2)
    handle.mute()
    bus.send("counted", step=5, x=5)
    handle.unmute()
    for x in range(6):
        bus.send("counted", step=x, x=x)
    assert heard == [3]
    assert not handle.active


def test_once_is_spent_even_if_it_raises(bus: Bus) -> None:
    """A once receiver that raises is not called again."""
    calls: list[int] = []

    def fails(x: int) -> None:
        calls.append(x)
        raise OSError

    bus.connect("counted", fails, once=True)
    with pytest.raises(OSError):
        bus.send("counted", step=0, x=0)
    bus.send("counted", step=1, x=1)
    assert calls == [0]


def test_once_under_nesting(bus: Bus) -> None:
    """once is claimed before the call: a nested send does not call it again."""
    heard: list[int] = []

    def again(x: int) -> None:
        heard.append(x)
        bus.send("counted", step=x + 1, x=x + 1)

    bus.connect("counted", again, once=True)
    bus.send("counted", step=0, x=0)
    assert heard == [0]


@pytest.mark.parametrize("weak", [False, True])
def test_once_under_threads(weak: bool) -> None:
    """Of two threads that send at once, exactly one calls a once receiver; removal never raises."""
    bus = Bus()
    signal = bus.declare("p")
    for _ in range(200):
        heard: list[int] = []

        def receiver(heard: list[int] = heard) -> None:
            heard.append(1)

        handle = bus.connect("p", receiver, once=True, weak=weak)
        barrier = threading.Barrier(3)

        def race(signal: Signal = signal, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            signal.send("s")

        threads = [threading.Thread(target=race) for _ in range(2)]
        for thread in threads:
            thread.start()
        barrier.wait()
        for thread in threads:
            thread.join()
        handle.disconnect()
        assert heard == [1]
    assert not bus.subscriptions()


def test_mutes_nest(bus: Bus) -> None:
    """k mutes need k unmutes; one too many is an error; a muted receiver is still connected."""
    heard: list[int] = []
    handle = bus.connect("counted", lambda x: heard.append(x))
    for x in range(5):
        getattr(handle, ["mute", "mute", "unmute", "unmute", "mute"][x])()
        bus.send("counted", step=x, x=x)
    assert heard == [3]
    assert handle.active
    assert handle.muted
    assert "muted x1" in repr(handle)
    handle.unmute()
    with pytest.raises(RuntimeError, match="is not muted"):
        handle.unmute()


def test_signal_mutes_nest_and_hold_for_all_threads(bus: Bus) -> None:
    """The inner of two muted() blocks does not end the outer; other threads are silent as well."""
    signal = bus.signal("bare")
    heard: list[int] = []
    bus.connect("bare", lambda x: heard.append(x))
    emitter = signal.emitter("s")
    with signal.muted():
        with signal.muted():
            assert signal.is_muted
        assert not emitter.live
        thread = threading.Thread(target=lambda: bus.send("bare", x=1))
        thread.start()
        thread.join()
        emitter.send(2)
    assert emitter.live
    emitter.send(3)
    assert heard == [3]


def test_is_muted_can_be_set(bus: Bus) -> None:
    """blinker's attribute is_muted works as a switch."""
    signal = bus.signal("bare")
    bus.connect("bare", lambda x: x)
    signal.is_muted = True
    assert bus.send("bare", x=1) == []
    signal.is_muted = True
    signal.is_muted = False
    assert len(bus.send("bare", x=1)) == 1


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"every": 0}, ValueError, "every must be at least 1, not 0"),
        ({"every": True}, TypeError, "every must be an int, not True"),
        ({"every": "2"}, TypeError, "every must be an int, not '2'"),
        ({"start": -1}, ValueError, "start must be at least 0, not -1"),
        ({"start": 3, "stop": 3}, ValueError, "stop=3 must be greater than start=3"),
        ({"stop": 1.5}, TypeError, "stop must be an int"),
        ({"at": "3"}, TypeError, "at must be an int or a collection of ints, not '3'"),
        ({"at": 1.5}, TypeError, "at must be an int or"),
        ({"at": []}, ValueError, "at is empty: the receiver would never be called"),
        ({"at": [1, -1]}, ValueError, "at must be at least 0, not -1"),
        ({"when": 3}, TypeError, "when= of .* must be callable, not 3"),
        ({"errors": "ignore"}, ValueError, 'errors must be "raise", "warn" or "disconnect", not'),
        ({"name": ""}, TypeError, "name must be a non-empty str, not ''"),
        ({"name": 5}, TypeError, "name must be a non-empty str, not 5"),
        ({"evry": 5}, TypeError, "there is no option 'evry'; did you mean 'every'?"),
        ({"zzz": 5}, TypeError, "there is no option 'zzz'; the options are after, again, at"),
    ],
)
def test_bad_filters(bus: Bus, options: Any, kind: type[Exception], message: str) -> None:
    """A wrong option is refused when connecting, saying what was expected, and adds nothing."""
    with pytest.raises(kind, match=message):
        bus.connect("counted", lambda: None, **options)
    with pytest.raises(kind, match=message):
        bus.on("counted", **options)(lambda: None)
    assert not bus.subscriptions()


def test_a_predicate_is_a_plain_function(bus: Bus) -> None:
    """A coroutine function, always true, is refused as when=."""

    async def when() -> bool:
        return False

    with pytest.raises(BindingError, match="must be a plain function, not a coroutine function"):
        bus.connect("counted", lambda: None, when=when)
