"""Threads and forks."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eventbus import Bus, Signal


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    """Let threads interrupt each other as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def in_threads(count: int, work: Callable[[int], object]) -> list[BaseException]:
    """Run ``work(number)`` in threads that start together, and return what they raised."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 -- it is what is asked for
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


class Ear:
    def __init__(self) -> None:
        self.count = 0

    def hear(self, x: int) -> None:
        self.count += 1

    def plain(self, sender: object, x: int) -> None:
        self.count += 1


def hammer(rounds: int) -> None:
    """Connect, send and disconnect from eight threads; nothing may be lost or left over."""
    bus = Bus()
    signal = bus.declare("p", ("x",))
    steady = Ear()
    bus.connect("p", steady.hear)
    lost: list[int] = []

    def work(number: int) -> None:
        sender = f"s{number}"
        emitter = signal.emitter(sender)
        for i in range(rounds):
            ear = Ear()
            if i % 4 == 0:
                handle: Any = bus.connect("p", ear.hear, weak=True, sender=sender)
                emitter.send(i)
            elif i % 4 == 1:
                handle = bus.connect("p", ear.hear)
                bus.send("p", sender, x=i)
            elif i % 4 == 2:
                signal.connect(ear.plain, sender)
                signal.send(sender, x=i)
                handle = None
            else:
                handle = bus.connect("p", ear.hear, weak=True)
                emitter.send(i)
            if not ear.count:
                lost.append(i)
            if i % 8 < 4:
                if handle is None:
                    signal.disconnect(ear.plain, sender)
                else:
                    handle.disconnect()
            elif i % 4 == 1:
                bus.disconnect(ear.hear)
            del ear  # the weak ones go without a disconnect

    raised: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, raised.append
    try:
        errors = in_threads(8, work)
    finally:
        sys.unraisablehook = hook
    assert not errors
    assert not raised
    assert not lost
    assert len(bus.subscriptions()) == 1
    assert len(signal.ids) == 1
    senders = signal._senders
    assert not senders.addressed
    assert not senders._kept
    assert senders.by_value == 0
    assert steady.count == 8 * rounds


def test_threads_lose_nothing() -> None:
    """8 threads connect, send, disconnect, strong and weak: no exception, none lost or left."""
    hammer(300)


@pytest.mark.slow
def test_threads_lose_nothing_for_long() -> None:
    """The same for a million rounds each."""
    hammer(1_000_000)


def test_no_send_misses_a_connection_made_before() -> None:
    """Plans made while another thread connects are never kept stale."""
    bus = Bus()
    signal = bus.declare("p", ("x",))
    emitters = [signal.emitter(f"s{i}") for i in range(4)]
    stop = threading.Event()
    missed: list[int] = []

    def sends(number: int) -> None:
        if number < 4:
            while not stop.is_set():
                emitters[number].send(0)
                signal.send("other", x=0)
            return
        for i in range(1, 300):
            heard: list[int] = []
            handle = bus.connect("p", lambda x, heard=heard: heard.append(x))
            for emitter in emitters:
                emitter.send(i)
            signal.send("another", x=i)
            if heard.count(i) < 5:
                missed.append(i)
            handle.disconnect()
            heard.clear()
            for emitter in emitters:
                emitter.send(i)
            if heard.count(i):
                missed.append(-i)
        stop.set()

    assert not in_threads(5, sends)
    assert not missed


def test_no_lock_is_held_while_a_receiver_runs() -> None:
    """Two receivers that wait for each other's threads to connect and send do not deadlock."""
    bus = Bus()
    bus.declare("a")
    bus.declare("b")
    ready = {"a": threading.Event(), "b": threading.Event()}
    done: list[str] = []

    def crosses(signal: str) -> None:
        other = "b" if signal == "a" else "a"
        ready[signal].set()
        assert ready[other].wait(5)
        bus.connect(other, lambda: None).disconnect()
        bus.signal(other).emitter("s")
        done.append(signal)

    bus.connect(["a", "b"], crosses)
    assert not in_threads(2, lambda number: bus.send("ab"[number]))
    assert sorted(done) == ["a", "b"]


def test_scopes_belong_to_their_thread() -> None:
    """A scope ends what its own thread connected, not what others did meanwhile."""
    bus = Bus()
    bus.declare("p")
    with bus.scope():
        bus.connect("p", lambda: None)
        assert not in_threads(1, lambda _: bus.connect("p", lambda: None, name="other"))
        assert len(bus.subscriptions()) == 2
    assert [s.name for s in bus.subscriptions()] == ["other"]


def test_two_senders_in_two_threads_do_not_disturb_each_other() -> None:
    """Each thread's sender is heard by its own receivers and no others."""
    bus = Bus()
    bus.declare("p", ("x",))
    heard: dict[int, list[int]] = {0: [], 1: []}

    def work(number: int) -> None:
        sender = Ear()
        bus.connect("p", lambda x: heard[number].append(x), sender=sender)
        emitter = bus.signal("p").emitter(sender)
        for _ in range(500):
            emitter.send(number)

    assert not in_threads(2, work)
    assert heard == {0: [0] * 500, 1: [1] * 500}


def test_open_points_are_declared_once() -> None:
    """Of threads that name a new point at once, all get the same signal."""
    for _ in range(50):
        bus = Bus(open=True)
        found: list[Signal] = []

        def work(_: int, bus: Bus = bus, found: list[Signal] = found) -> None:
            found.append(bus.signal("p"))

        assert not in_threads(4, work)
        assert len(set(map(id, found))) == 1


def test_patterns_and_declarations_in_threads() -> None:
    """A pattern connected while points are declared reaches each of them exactly once."""
    for _ in range(30):
        bus = Bus()
        heard: list[str] = []

        def work(number: int, bus: Bus = bus, heard: list[str] = heard) -> None:
            if number:
                bus.connect("*", lambda signal: heard.append(signal))
                return
            for i in range(10):
                bus.declare(f"p{i}")

        assert not in_threads(2, work)
        for point in bus.points:
            bus.send(point)
        assert heard == list(bus.points)


def test_counting_sends_in_threads() -> None:
    """every=n at a point without an index loses no count between threads."""
    bus = Bus()
    bus.declare("p")
    heard: list[int] = []
    bus.connect("p", lambda: heard.append(1), every=10)
    assert not in_threads(4, lambda _: [bus.send("p", "s") for _ in range(500)])
    assert len(heard) == 200


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX, where it is loaded
def test_fork_while_a_lock_is_held() -> None:
    """A child forked while another thread changes the bus can use it: locks and workers are new."""
    bus = Bus()
    bus.declare("p", ("x",))
    heard: list[int] = []
    release, held = threading.Event(), threading.Event()
    bus.connect("p", lambda x: heard.append(x), background=True)
    bus.send("p", x=0)
    bus.flush(5)

    def hold() -> None:
        with bus._guard:
            held.set()
            release.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(5)
    pid = os.fork()
    if not pid:  # the child: any failure is its exit status
        status = 1
        try:
            bus.connect("p", lambda x: heard.append(-x))
            bus.send("p", x=7)
            bus.flush(5)
            status = 0 if sorted(heard) == [-7, 0, 7] else 2
        finally:
            os._exit(status)
    release.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    bus.send("p", x=1)
    bus.flush(5)
    assert heard == [0, 1]
