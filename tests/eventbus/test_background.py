"""Delivery on a worker."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from eventbus import Bus, QueueFullError
from eventbus import background as module


@pytest.fixture
def bus() -> Iterator[Bus]:
    """Give a bus with one point; nothing is queued afterwards."""
    bus = Bus()
    bus.declare("p", ("x",))
    yield bus
    bus.flush(5)


class Gate:
    """A receiver that waits until it is let go."""

    def __init__(self) -> None:
        self.started, self.open = threading.Event(), threading.Event()
        self.heard: list[object] = []

    def __call__(self, x: object) -> None:
        self.started.set()
        assert self.open.wait(10)
        self.heard.append(x)


def test_delivered_in_order_on_one_worker(bus: Bus) -> None:
    """All background receivers of a bus run in the order of sending, on one other thread."""
    heard: list[tuple[str, int]] = []
    threads: set[int] = set()
    for name in "ab":

        def receiver(x: int, name: str = name) -> None:
            threads.add(threading.get_ident())
            heard.append((name, x))

        bus.connect("p", receiver, background=True)
    for x in range(50):
        bus.send("p", x=x)
    bus.flush(5)
    assert heard == [(name, x) for x in range(50) for name in "ab"]
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_named_workers_do_not_wait_for_each_other(bus: Bus) -> None:
    """background="name" delivers on a worker of that name."""
    gate = Gate()
    heard: list[int] = []
    bus.connect("p", gate, background=True)
    bus.connect("p", lambda x: heard.append(x), background="other")
    bus.send("p", x=1)
    deadline = time.monotonic() + 5
    while not heard and time.monotonic() < deadline:
        time.sleep(0.001)
    assert heard == [1]
    assert not gate.heard
    gate.open.set()


def test_payload_is_captured_when_sent(bus: Bus) -> None:
    """Mutable mappings, such as logs, are seen as they were at the send."""
    gate = Gate()
    bus.connect("p", gate, background=True)
    logs = {"loss": 1}
    bus.send("p", x=logs)
    bus.signal("p").emitter("s").send(logs)
    logs["loss"] = 2
    gate.open.set()
    bus.flush(5)
    assert gate.heard == [{"loss": 1}, {"loss": 1}]


def test_results_name_the_receiver(bus: Bus) -> None:
    """In the list that send returns a background receiver stands with None."""

    def receiver(x: int) -> int:
        return x

    bus.connect("p", receiver, background=True)
    handle = bus.connect("p", receiver, background=True, once=True, again=True)
    assert bus.send("p", x=1) == [(receiver, None)] * 2
    assert bus.send("p", x=1) == [(receiver, None)]
    assert not handle.active


def test_once_is_delivered_once(bus: Bus) -> None:
    """A once receiver in the background runs for the send that spent it, handle kept or not."""
    heard: list[int] = []
    handle = bus.connect("p", lambda x: heard.append(x), background=True, once=True)
    bus.connect("p", lambda x: heard.append(x), background=True, once=True)
    bus.send("p", x=1)
    bus.send("p", x=2)
    bus.flush(5)
    assert heard == [1, 1]
    assert not handle.active


def test_disconnecting_drops_what_is_queued(bus: Bus) -> None:
    """After disconnect() no further call starts, queued ones included; mutes hold at the send."""
    gate = Gate()
    bus.connect("p", gate, background=True)
    heard: list[int] = []
    handle = bus.connect("p", lambda x: heard.append(x), background=True)
    bus.send("p", x=1)
    handle.mute()
    bus.send("p", x=2)
    handle.unmute()
    handle.disconnect()
    gate.open.set()
    bus.flush(5)
    assert not heard
    assert gate.heard == [1, 2]


def fill(bus: Bus, monkeypatch: pytest.MonkeyPatch, capacity: int = 3) -> Gate:
    """Occupy the worker and leave room for so many calls."""
    monkeypatch.setattr(module, "CAPACITY", capacity)
    gate = Gate()
    bus.connect("p", gate, background=True, once=True)
    bus.send("p", x="gate")
    assert gate.started.wait(5)
    return gate


def test_overflow_error(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """overflow="error" raises at the send that finds the queue full."""
    gate = fill(bus, monkeypatch)
    heard: list[int] = []
    bus.connect("p", lambda x: heard.append(x), background=True, overflow="error")
    for x in range(3):
        bus.send("p", x=x)
    with pytest.raises(QueueFullError, match=r"the queue of worker 'bus' is full \(3 calls\)"):
        bus.send("p", x=3)
    gate.open.set()
    bus.flush(5)
    assert heard == [0, 1, 2]


def test_overflow_drop_oldest(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """overflow="drop_oldest" drops the receiver's own oldest call, never another's."""
    gate = fill(bus, monkeypatch)
    kept: list[int] = []
    heard: list[int] = []
    handle = bus.connect("p", lambda x: kept.append(x), background=True)
    bus.send("p", x=-1)
    bus.send("p", x=-2)
    handle.mute()
    bus.connect("p", lambda x: heard.append(x), background=True, overflow="drop_oldest")
    for x in range(5):
        bus.send("p", x=x)
    handle.unmute()
    gate.open.set()
    bus.flush(5)
    assert kept == [-1, -2]
    assert heard == [4]


def test_overflow_drop_oldest_without_any_of_its_own(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all that is queued is others', the new call is let in beyond the limit."""
    gate = fill(bus, monkeypatch, capacity=1)
    heard: list[object] = []
    bus.connect("p", lambda x: heard.append(("kept", x)), background=True)
    bus.connect("p", lambda x: heard.append(("new", x)), background=True, overflow="drop_oldest")
    bus.send("p", x=1)
    gate.open.set()
    bus.flush(5)
    assert heard == [("kept", 1), ("new", 1)]


def test_overflow_block(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """overflow="block", the default, makes the sender wait for room: nothing is lost."""
    gate = fill(bus, monkeypatch)
    heard: list[int] = []
    bus.connect("p", lambda x: heard.append(x), background=True)
    sender = threading.Thread(target=lambda: [bus.send("p", x=x) for x in range(20)])
    sender.start()
    sender.join(0.05)
    assert sender.is_alive()
    gate.open.set()
    sender.join(5)
    bus.flush(5)
    assert heard == list(range(20))


def test_a_worker_never_waits_for_itself(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A background receiver that sends more than fits, or flushes, does not hang."""
    monkeypatch.setattr(module, "CAPACITY", 2)
    heard: list[int] = []

    def receiver(x: int) -> None:
        heard.append(x)
        if x == 0:
            for i in range(1, 6):
                bus.send("p", x=i)
            bus.flush(5)

    bus.connect("p", receiver, background=True)
    bus.send("p", x=0)
    bus.flush(5)
    assert heard == [0, 1, 2, 3, 4, 5]


def fails(x: object) -> None:
    raise OSError(x)


def test_errors_surface_at_flush(bus: Bus) -> None:
    """Under "raise" an exception comes out of the next flush, with its note; several as a group."""
    bus.connect("p", fails, background=True)
    bus.send("p", x=1)
    with pytest.raises(OSError, match="1") as caught:
        bus.flush(5)
    line = fails.__code__.co_firstlineno
    assert caught.value.__notes__ == [
        f"raised in the background by fails (test_background.py:{line}), a receiver of 'p'"
    ]
    bus.flush(5)
    bus.connect("p", lambda x: 1 / x, background=True)
    bus.send("p", x=0)
    with pytest.raises(ExceptionGroup, match="several background receivers failed") as group:
        bus.flush(5)
    assert [type(e) for e in group.value.exceptions] == [OSError, ZeroDivisionError]


def test_errors_surface_at_the_next_send(bus: Bus) -> None:
    """Or it comes out of the next send that would call the same receiver; the call is not lost."""
    bus.connect("p", fails, background=True, when=lambda x: x != 3)
    healthy: list[int] = []
    bus.connect("p", lambda x: healthy.append(x), background=True, priority="HIGH")
    bus.send("p", x=1)
    with pytest.raises(OSError):
        bus.flush(5)
    bus.send("p", x=2)
    bus._workers.worker("bus").flush(None)
    bus.send("p", x=3)
    with pytest.raises(OSError, match="2"):
        bus.send("p", x=4)
    bus.flush(5)
    assert healthy == [1, 2, 3, 4]


def test_interrupts_in_the_background_surface(bus: Bus) -> None:
    """Even SystemExit ends neither the worker nor silently: it surfaces at flush."""

    def leaves() -> None:
        raise SystemExit(3)

    bus.connect("p", leaves, background=True, errors="warn")
    bus.send("p", x=1)
    with pytest.raises(SystemExit):
        bus.flush(5)


@pytest.mark.parametrize("errors", ["warn", "disconnect"])
def test_errors_follow_the_policy(bus: Bus, errors: Any, caplog: pytest.LogCaptureFixture) -> None:
    """warn and disconnect log in the background; nothing surfaces."""
    handle: Any = bus.connect("p", fails, background=True, errors=errors)
    bus.send("p", x=1)
    bus.flush(5)
    assert handle.stats.errors == 1
    assert handle.active is (errors == "warn")
    assert "fails" in caplog.text


def test_flush_has_a_timeout(bus: Bus) -> None:
    """flush(timeout) raises TimeoutError, naming the workers, while calls are waiting."""
    gate = Gate()
    bus.connect("p", gate, background=True)
    bus.flush(0)
    bus.send("p", x=1)
    with pytest.raises(TimeoutError, match=r"still had calls queued after 0.01 s: \['bus'\]"):
        bus.flush(0.01)
    gate.open.set()


def test_worker_threads_end(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle worker's thread ends; the next call starts another. A dropped bus leaves none."""
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.01)
    heard: list[int] = []
    bus.connect("p", lambda x: heard.append(x), background="idle")
    for x in range(3):
        bus.send("p", x=x)
        deadline = time.monotonic() + 5
        while any(t.name == "eventbus idle" for t in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.005)
    assert heard == [0, 1, 2]


def test_a_dropped_bus_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the worker nor the exit hook keeps a bus or its receivers alive."""
    bus = Bus(open=True)
    gate = Gate()
    gate.open.set()
    gone = weakref.ref(gate)
    bus.connect("p", gate, background=True)
    bus.send("p", x=1)
    bus.flush(5)
    del bus, gate
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"background": 1}, TypeError, "background must be True or the name of a worker, not 1"),
        (
            {"background": True, "overflow": "drop"},
            ValueError,
            "overflow must be one of block, drop_oldest, error, not 'drop'",
        ),
        ({"background": True, "weak": True}, ValueError, "cannot be weak"),
    ],
)
def test_bad_options(bus: Bus, options: Any, kind: type[Exception], message: str) -> None:
    """A wrong option is refused when connecting."""
    with pytest.raises(kind, match=message):
        bus.connect("p", fails, **options)


EXIT = """
import sys, threading, time
from eventbus import Bus, background
background.EXIT_SECONDS = 0.5
bus, other = Bus(open=True), Bus(open=True)
def slow(x):
    time.sleep({seconds})
    if x == 2 and {fails}:
        raise OSError("failed at exit")
    print("heard", x, flush=True)
for each in (bus, other)[:1 + {both}]:
    each.connect("p", slow, background=True)
    for x in range(3):
        each.send("p", x=x)
"""


def leave(**values: object) -> subprocess.CompletedProcess[str]:
    code = EXIT.format(**{"seconds": 0.01, "fails": False, "both": 0, **values})
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_leaving_flushes() -> None:
    """Leaving the interpreter runs what is queued."""
    done = leave()
    assert (done.returncode, done.stdout, done.stderr) == (0, "heard 0\nheard 1\nheard 2\n", "")


def test_leaving_never_hangs() -> None:
    """A receiver that does not return holds up the exit for the limit, once for all buses."""
    started = time.monotonic()
    done = leave(seconds=60, both=1)
    assert time.monotonic() - started < 10
    assert done.returncode == 0
    assert "TimeoutError: background receivers still had calls queued" in done.stderr


def test_errors_at_exit_are_logged() -> None:
    """What a background receiver raises while leaving is not lost."""
    done = leave(fails=True)
    assert done.stdout == "heard 0\nheard 1\n"
    assert "background receivers failed while the interpreter was leaving" in done.stderr
    assert "OSError: failed at exit" in done.stderr


def test_a_signal_alone_has_no_worker() -> None:
    """background needs a bus."""
    from eventbus import Signal
    from eventbus.options import subscribe

    with pytest.raises(ValueError, match="background=True needs a Bus; 'p' stands alone"):
        subscribe(Signal("p"), lambda: None, {"background": True})
