"""The two doors, errors, depth, and change during a send."""

from __future__ import annotations

import functools
import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from eventbus import DEPTH_LIMIT, Bus, ReentrancyError, SubscriptionGroup
from eventbus import plan as plans
from eventbus.codegen import FILE


def note(heard: list[int], x: int, i: int) -> tuple[int, int]:
    heard.append(i)
    return x, i


COUNTS = [0, 1, 2, 5, 50, 64, 65, 200]


@pytest.fixture
def bus() -> Bus:
    """Give a bus with one point."""
    bus = Bus()
    bus.declare("p", ("x",))
    return bus


@pytest.mark.parametrize("count", COUNTS)
def test_both_doors_call_everybody_in_order(bus: Bus, count: int) -> None:
    """The list of (receiver, value) and the emitter agree for any number, cold and hot."""
    signal = bus.signal("p")
    heard: list[int] = []
    receivers = [functools.partial(note, heard, i=i) for i in range(count)]
    for receiver in receivers:
        bus.connect("p", receiver)
    for sender in (None, "s"):
        emitter = signal.emitter(sender)
        assert emitter.live is bool(count)
        for _ in range(30):
            assert signal.send(sender, x=3) == [(r, (3, i)) for i, r in enumerate(receivers)]
            assert emitter.send(3) is None
            assert heard == 2 * list(range(count))
            heard.clear()


def test_send_without_a_sender(bus: Bus) -> None:
    """The sender may be left out at any temperature; it is None then."""
    bus.connect("p", lambda sender: sender)
    for _ in range(20):
        assert [v for _, v in bus.signal("p").send(x=1)] == [None]
        assert [v for _, v in bus.send("p", x=1)] == [None]


def test_live_says_whether_anybody_listens(bus: Bus) -> None:
    """emitter.live is kept up to date by connects, disconnects and mutes of the signal."""
    signal = bus.signal("p")
    emitter, other = signal.emitter("s"), signal.emitter("t")
    assert repr(emitter) == "<Emitter 'p': 0 of its own, live=False>"
    own = bus.connect("p", lambda: None, sender="s")
    assert (emitter.live, other.live) == (True, False)
    both = bus.connect("p", lambda: None)
    own.disconnect()
    assert (emitter.live, other.live) == (True, True)
    both.disconnect()
    assert (emitter.live, other.live) == (False, False)
    assert signal.emitter("s") is emitter


def failing(x: object) -> None:
    raise KeyError(x)


@pytest.mark.parametrize("count", [1, 5, 200])
@pytest.mark.parametrize("sends", [1, 20])
def test_errors_raise_at_once_with_a_note(bus: Bus, count: int, sends: int) -> None:
    """The exception comes out as itself, with one note of receiver and point; no other runs."""
    heard: list[int] = []
    for i in range(count // 2):
        bus.connect("p", lambda x, i=i: heard.append(i))
    bus.connect("p", failing)
    for i in range(count // 2, count):
        bus.connect("p", lambda x, i=i: heard.append(i))
    doors: list[Callable[[], object]] = [
        lambda: bus.send("p", x=1),
        lambda: bus.signal("p").emitter("s").send(1),
    ]
    for _ in range(sends):
        for door in doors:
            heard.clear()
            with pytest.raises(KeyError) as caught:
                door()
            assert heard == list(range(count // 2))
            line = failing.__code__.co_firstlineno
            assert caught.value.__notes__ == [
                f"raised by failing (test_send.py:{line}), a receiver of 'p'"
            ]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("errors", ["raise", "warn", "disconnect"])
def test_what_ends_the_program_always_comes_out(
    bus: Bus, kind: type[BaseException], errors: Any
) -> None:
    """No policy swallows KeyboardInterrupt, SystemExit and the like."""

    def stops() -> None:
        raise kind

    handle = bus.connect("p", stops, errors=errors)
    with pytest.raises(kind):
        bus.send("p", x=1)
    assert handle.active


@pytest.mark.parametrize("errors", ["warn", "disconnect"])
@pytest.mark.parametrize("sends", [1, 20])
def test_policies_keep_errors_from_the_sender(
    bus: Bus, errors: Any, sends: int, caplog: pytest.LogCaptureFixture
) -> None:
    """warn logs the traceback and goes on; disconnect also drops the subscription."""
    bus.connect("p", lambda x: "before")
    handle: Any = bus.connect("p", failing, errors=errors)
    bus.connect("p", lambda x: "after")
    for _ in range(sends):
        assert [v for _, v in bus.send("p", x=1)] == ["before", "after"]
    bus.signal("p").emitter("s").send(1)
    assert handle.active is (errors == "warn")
    assert handle.stats.errors == (sends + 1 if errors == "warn" else 1)
    record = caplog.records[0]
    assert (record.name, record.levelno) == ("eventbus", logging.ERROR)
    end = "; it is disconnected" if errors == "disconnect" else ""
    line = failing.__code__.co_firstlineno
    assert record.message == f"failing (test_send.py:{line}) of 'p' raised KeyError{end}"
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError


def test_n_receivers_with_k_failing_all_run(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    """With errors="warn" all run, the failed are absent from the results and counted."""
    handles: list[Any] = [
        bus.connect("p", failing if i % 3 == 0 else (lambda x, i=i: i), errors="warn", again=True)
        for i in range(10)
    ]
    assert [v for _, v in bus.send("p", x=1)] == [1, 2, 4, 5, 7, 8]
    assert [h.stats.errors for h in handles] == [1, 0, 0, 1, 0, 0, 1, 0, 0, 1]
    assert len(caplog.records) == 4


def test_a_returned_exception_is_a_value(bus: Bus) -> None:
    """A receiver that returns an exception has not failed."""
    bus.connect("p", lambda: OSError(), errors="warn")
    ((_, value),) = bus.send("p", x=1)
    assert isinstance(value, OSError)


def test_send_all_lets_everybody_hear(bus: Bus) -> None:
    """emitter.send_all calls every receiver, whoever fails, and returns the exceptions."""
    heard: list[int] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    bus.connect("p", failing)
    bus.connect("p", lambda x: heard.append(x))
    bus.connect("p", interrupted)
    bus.connect("p", lambda x: heard.append(x), once=True)
    emitter = bus.signal("p").emitter("s")
    assert [type(e) for e in emitter.send_all(1)] == [KeyError, KeyboardInterrupt]
    assert heard == [1, 1]
    assert "raised by failing" in emitter.send_all(2)[0].__notes__[0]
    with pytest.raises(TypeError):
        emitter.send_all()
    assert heard == [1, 1, 2]


def test_generated_frames_are_readable(bus: Bus) -> None:
    """A traceback shows the line of the plan that called the receiver, under the point's name."""
    bus.connect("p", lambda x: x)
    bus.connect("p", failing)
    for _ in range(20):
        with pytest.raises(KeyError) as caught:
            bus.signal("p").emitter("s").send(1)
    frames = traceback.extract_tb(caught.value.__traceback__)
    frame = next(f for f in frames if f.filename.startswith(FILE))
    assert frame.name == "p"
    assert frame.line == "_r1(x)"


def test_the_cache_of_code_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ever new shapes do not pile up: old code and its source text are dropped."""
    cache = plans.Cache()
    monkeypatch.setattr(plans, "cache", cache)
    monkeypatch.setattr(plans.Cache, "SIZE", 20)
    bus = Bus()
    for i in range(60):
        bus.declare(f"p{i}", (f"x{i}",))
        bus.connect(f"p{i}", lambda: None)
        bus.connect(f"p{i}", lambda: None)
        for _ in range(20):
            bus.send(f"p{i}", **{f"x{i}": i})
        assert len(cache._known) <= 20


def test_nested_sends_have_a_named_limit(bus: Bus) -> None:
    """A receiver that causes what it listens to gets ReentrancyError, long before Python's own."""
    depths: list[int] = []

    def again(x: int) -> None:
        depths.append(x)
        bus.send("p", x=x + 1)

    handle = bus.connect("p", again)
    for _ in range(100):
        depths.clear()
        with pytest.raises(
            ReentrancyError, match="'p' was sent from inside its own receivers more"
        ):
            bus.send("p", x=1)
        assert depths == list(range(1, DEPTH_LIMIT + 1))
    handle.disconnect()
    assert issubclass(ReentrancyError, RecursionError)

    def nests(x: int) -> None:
        if x < DEPTH_LIMIT:
            bus.signal("p").emitter("s").send(x + 1)

    bus.connect("p", nests)
    for _ in range(20):
        bus.signal("p").emitter("s").send(1)


def test_two_linked_values_end(bus: Bus) -> None:
    """Two points that send each other meet the limit as well."""
    bus.declare("q", ("x",))
    bus.connect("p", lambda x: bus.send("q", x=x))
    bus.connect("q", lambda x: bus.send("p", x=x))
    with pytest.raises(ReentrancyError):
        bus.send("p", x=1)


def test_limit_with_a_wrong_hint(bus: Bus) -> None:
    """The count of depth that threads share is only a hint: a drift does not refuse a good send."""
    signal = bus.signal("p")
    bus.connect("p", lambda x: x)
    emitter = signal.emitter("s")
    for drift in (DEPTH_LIMIT + 5, -1000):
        for context in (emitter.context, signal._context):
            context["_depth"].cell_contents = drift
        for _ in range(20):
            emitter.send(1)
            assert len(bus.send("p", x=1)) == 1


def test_three_that_remove_themselves_all_run(bus: Bus) -> None:
    """A receiver that disconnects itself does not make the next one be skipped."""
    heard: list[int] = []
    handles: list[Any] = []
    for i in range(3):
        handles.append(
            bus.connect("p", lambda x, i=i: (handles[i].disconnect(), note(heard, x, i)))
        )
    bus.send("p", x=1)
    bus.send("p", x=1)
    assert heard == [0, 1, 2]


def test_connecting_during_a_send_joins_from_the_next(bus: Bus) -> None:
    """What is connected by a receiver is not called in this send, and each old one exactly once."""
    heard: list[str] = []

    def first(x: object) -> None:
        heard.append("first")
        bus.connect("p", lambda: heard.append("new"), priority="HIGHEST")
        bus.connect("p", lambda: heard.append("last"), priority="LOWEST")

    bus.connect("p", first, once=True)
    bus.connect("p", lambda: heard.append("old"))
    bus.send("p", x=1)
    assert heard == ["first", "old"]
    bus.send("p", x=1)
    assert heard == ["first", "old", "new", "old", "last"]


@pytest.mark.parametrize("own", [False, True])
def test_disconnecting_during_a_send_holds_at_once(bus: Bus, own: bool) -> None:
    """After disconnect() returns no call starts, also later in the same send, by sender too."""
    heard: list[int] = []
    options: Any = {"sender": "s"} if own else {}
    bus.connect("p", lambda: later.disconnect())
    later = bus.connect("p", lambda x: heard.append(x), **options)
    bus.send("p", "s", x=1)
    assert not heard


def test_nested_sends_see_values_depth_first(bus: Bus) -> None:
    """A send inside a receiver is immediate: later receivers get the inner value first."""
    heard: list[tuple[str, int]] = []

    def a(x: int) -> None:
        heard.append(("a", x))
        if x == 1:
            bus.send("p", x=2)

    bus.connect("p", a)
    bus.connect("p", lambda x: heard.append(("b", x)))
    bus.send("p", x=1)
    assert heard == [("a", 1), ("a", 2), ("b", 2), ("b", 1)]


def test_a_signal_can_be_forwarded(bus: Bus) -> None:
    """One point may send another; a cycle ends with the named error."""
    bus.declare("q", ("x",))
    heard: list[int] = []
    bus.connect("q", lambda x: heard.append(x))
    bus.connect("p", lambda x, sender: bus.send("q", sender, x=x))
    bus.connect("p", bus.signal("q").emitter("s").send)
    bus.send("p", x=1)
    assert heard == [1, 1]


def test_group_handles(bus: Bus) -> None:
    """Connecting several points gives one handle: iterable, muted and disconnected as one."""
    bus.declare("q", ("x",))
    heard: list[str] = []
    group = bus.connect(["p", "on_q", "p"], lambda signal: heard.append(signal))
    assert isinstance(group, SubscriptionGroup)
    assert [s.point for s in group] == ["p", "q"]
    assert len(group) == 2
    group.mute()
    bus.send("p", x=1)
    group.unmute()
    bus.send("q", x=1)
    assert heard == ["q"]
    assert group.active
    assert repr(group).startswith("<SubscriptionGroup <Subscription 'p' -> ")
    group.disconnect()
    assert not group.active
    assert not bus.subscriptions()


def test_repr_of_a_subscription(bus: Bus) -> None:
    """It shows point, receiver with its place, name if given, and priority."""
    line = failing.__code__.co_firstlineno
    assert (
        repr(bus.connect("p", failing, name="f", priority="LOW"))
        == f"<Subscription 'p' -> failing (test_send.py:{line}) as 'f' at LOW>"
    )
    handle = bus.connect("p", failing, again=True, priority=33)
    assert repr(handle) == f"<Subscription 'p' -> failing (test_send.py:{line}) at 33>"
    handle.disconnect()
    assert repr(handle) == "<Subscription 'p' -> failing at 33 (disconnected)>"


def test_bus_disconnect_by_sender_and_point(bus: Bus) -> None:
    """bus.disconnect ends what it names, and raises where there is nothing to end."""
    bus.declare("q", ("x",))
    bus.connect(["p", "q"], failing, sender="s")
    bus.connect("q", failing)
    bus.disconnect(failing, "q", "s")
    assert len(bus.subscriptions()) == 2
    with pytest.raises(ValueError, match=r"is not connected to \('q',\)|is not connected to 'q'"):
        bus.disconnect(failing, "q", "s")
    bus.disconnect(failing)
    assert not bus.subscriptions()


def test_scope_and_connected(bus: Bus) -> None:
    """What a thread connects inside scope() is gone after, also on errors; scopes nest."""
    with pytest.raises(OSError), bus.scope():  # noqa: PT012
        bus.connect("p", lambda: None)
        with bus.scope():
            bus.on("p*")(lambda: None)
            assert len(bus.subscriptions()) == 2
        assert len(bus.subscriptions()) == 1
        raise OSError
    assert not bus.subscriptions()
    with bus.connected("p", failing, priority="LOW") as handle:
        assert bus.subscriptions() == (handle,)
    assert not bus.subscriptions()
    bus.connect("p", failing)
    with bus.connected("p", failing, again=True):
        pass
    assert len(bus.subscriptions()) == 1


def test_the_on_decorator_returns_the_function(bus: Bus) -> None:
    """@on leaves the function as it was; stacked, each connects."""
    bus.declare("q")

    @bus.on("p", priority="LOW")
    @bus.on("q")
    def receiver() -> None:
        """Receive."""

    receiver()
    assert [s.point for s in bus.subscriptions()] == ["p", "q"]
