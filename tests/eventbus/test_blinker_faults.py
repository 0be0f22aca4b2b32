"""What blinker 1.9 does that nobody wants, and our signals do not do. One test for each fault."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import threading
import weakref
from typing import Any

import blinker
import pytest

from eventbus import ANY, Bus, Signal


@pytest.fixture
def signal() -> Signal:
    """Give a signal of an open bus, used by blinker's own methods."""
    return Bus(open=True).signal("p")


class Sender:
    pass


def test_01_receivers_are_told_apart_like_blinkers(signal: Signal) -> None:
    """A method object made anew is the same receiver; equal int and bool are the same sender."""

    class Ear:
        def hear(self, sender: object) -> object:
            return sender

    ear, other = Ear(), Ear()
    signal.connect(ear.hear, 1)
    signal.connect(ear.hear, 1)
    signal.connect(other.hear, 1)
    assert len(signal.send(True)) == 2
    signal.disconnect(ear.hear, 1)
    assert len(signal.send(1)) == 1


@pytest.mark.parametrize("sender", [0, False])
def test_02_zero_and_false_are_senders(signal: Signal, sender: object) -> None:
    """connect(sender=0) hears 0 alone; blinker asserts, and then hears everybody."""
    heard: list[object] = []
    signal.connect(heard_by := lambda s: heard.append(s), sender=sender)
    for other in (1, None, "", "x", Sender()):
        signal.send(other)
    assert heard == []
    signal.send(sender)
    assert heard == [sender]
    del heard_by


def test_03_unholdable_senders_are_refused(signal: Signal) -> None:
    """A sender that cannot be held weakly is refused: no new object inherits its messages."""

    class Slots:
        __slots__ = ()

    unfit: list[object] = [[], (1, 2), 1.5, Slots()]
    for sender in unfit:
        with pytest.raises(TypeError, match="can be neither weakly held nor safely compared"):
            signal.connect(print, sender)


def test_04_connect_checks_and_keeps_its_word(signal: Signal) -> None:
    """What is not callable is refused at connect; another connect does not weaken the first."""
    with pytest.raises(TypeError, match="must be callable"):
        signal.connect(5, weak=False)  # type: ignore[type-var]
    heard: list[object] = []

    def receiver(sender: object) -> None:
        heard.append(sender)

    signal.connect(receiver, weak=False)
    signal.connect(receiver, sender="a")
    del receiver
    gc.collect()
    signal.send("b")
    assert heard == ["b"]


def test_05_receiver_connected_fires_and_undoes(signal: Signal) -> None:
    """The watchers' signals are of our class; any exception of a watcher undoes the connection."""
    assert type(signal.receiver_connected) is Signal
    assert type(signal.receiver_disconnected) is Signal

    def refuses(signal: object, **payload: object) -> None:
        raise KeyError

    signal.receiver_connected.connect(refuses)
    with pytest.raises(KeyError):
        signal.connect(lambda sender: None, weak=False)
    assert not signal.receivers


def test_06_connected_to_leaves_what_was_there(signal: Signal) -> None:
    """A receiver that was connected before stays as it was, weak and for every sender."""

    def receiver(sender: object) -> object:
        return sender

    signal.connect(receiver)
    signal.connect(receiver, "other")
    with signal.connected_to(receiver):
        pass
    with signal.connected_to(receiver, "third"):
        assert len(signal.send("third")) == 1
    assert len(signal.send("any")) == 1
    assert all(s.weak for s in signal.subscriptions())
    signal.disconnect(receiver)
    with signal.connected_to(receiver, "one"):
        assert [len(signal.send(s)) for s in ("one", "two")] == [1, 0]
    assert not signal.receivers


def test_07_muted_nests(signal: Signal) -> None:
    """The inner of two blocks does not end the outer."""
    signal.connect(receiver := lambda sender: sender)
    with signal.muted():
        with signal.muted():
            pass
        assert signal.send() == []
    assert len(signal.send()) == 1
    del receiver


def test_08_the_sender_is_no_payload() -> None:
    """send(sender=x) is an error, as is a second positional; wrappers' names too where unused."""
    bus = Bus(open=True)
    bus.declare("declared", ("value",))
    heard: list[object] = []
    for point in ("open", "declared"):
        bus.connect(point, lambda value: heard.append(value))
        for _ in range(20):
            with pytest.raises(TypeError):
                bus.signal(point).send(sender="x", value=1)
            with pytest.raises(TypeError):
                bus.signal(point).send("x", "y", value=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        bus.send("declared", "x", value=1, _sync_wrapper=None)
    assert not heard
    bus.send("declared", "x", value=1)
    assert heard == [1]


def test_08_a_further_payload_key_breaks_no_receiver() -> None:
    """Receivers connected by name take what they name; new keys do not concern them."""
    bus = Bus(open=True)
    bus.connect("p", lambda value: value)
    assert [v for _, v in bus.send("p", value=1, new_key=2)] == [1]


def test_09_errors_say_where_and_need_not_stop_the_rest() -> None:
    """The exception is noted with receiver and point; by policy the others run and give results."""
    bus = Bus()
    bus.declare("p")

    def fails() -> None:
        raise OSError

    bus.connect("p", lambda: 1)
    handle = bus.connect("p", fails)
    bus.connect("p", lambda: 2)
    with pytest.raises(OSError) as caught:
        bus.send("p")
    assert "fails" in caught.value.__notes__[0]
    assert "'p'" in caught.value.__notes__[0]
    handle.disconnect()
    bus.connect("p", fails, errors="disconnect")
    assert [v for _, v in bus.send("p")] == [1, 2]


def test_10_order_is_connection_order(signal: Signal) -> None:
    """Two hundred sends call six receivers as they were connected, any and own senders mixed."""
    heard: list[int] = []
    receivers = [lambda sender, i=i: heard.append(i) for i in range(6)]
    for i, receiver in enumerate(receivers):
        signal.connect(receiver, "s" if i % 2 else ANY)
    for _ in range(200):
        heard.clear()
        signal.send("s")
        assert heard == list(range(6))


def test_11_a_disconnect_by_sender_holds_in_a_send_under_way(signal: Signal) -> None:
    """A receiver that is disconnected by sender is not called later in the same send."""
    heard: list[object] = []

    def late(sender: object) -> None:
        heard.append(sender)

    def first(sender: object) -> None:
        signal.disconnect(late, "s")

    signal.connect(first)
    signal.connect(late, "s")
    signal.send("s")
    assert not heard
    assert list(signal.receivers_for(ANY)) == [first]


def test_12_has_receivers_for_is_true_of_the_living_only(signal: Signal) -> None:
    """Neither an emptied bucket nor a dead receiver counts."""
    signal.connect(receiver := lambda sender: sender, "s")
    assert signal.has_receivers_for("s")
    assert not signal.has_receivers_for("t")
    signal.disconnect(receiver, "s")
    assert not signal.has_receivers_for("s")
    signal.connect(receiver, "s")
    del receiver
    assert not signal.has_receivers_for("s")


def test_13_disconnect_is_never_a_silent_no_op(signal: Signal) -> None:
    """By sender, an any-sender connection cannot be ended: that raises; nothing leaks."""
    signal.connect(receiver := lambda sender: sender, weak=False)
    with pytest.raises(
        ValueError, match="is connected to 'p' for any sender and would still hear 's'"
    ):
        signal.disconnect(receiver, "s")
    assert len(signal.send("s")) == 1
    signal.disconnect(receiver)
    signal.connect(receiver, "s", weak=False)
    signal.disconnect(receiver, "s")
    assert not signal.receivers
    sender = Sender()
    signal.connect(receiver, sender, weak=False)
    del sender
    assert not signal.receivers


def test_14_bookkeeping_does_not_grow(signal: Signal) -> None:
    """A thousand senders that came and went leave nothing."""

    def receiver(sender: object) -> None:
        """Receive."""

    for i in range(1000):
        signal.connect(receiver, f"s{i}")
        signal.disconnect(receiver, f"s{i}")
    assert not signal._senders.all()
    assert not signal._senders._index


def test_15_threads_may_connect_while_others_send(signal: Signal) -> None:
    """No exception, nothing left: see test_threads.py, which does it at length."""
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(300):
                signal.connect(receiver := lambda sender: None, f"s{i % 3}")
                signal.send(f"s{i % 3}")
                if i % 2:
                    signal.disconnect(receiver)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert not signal.receivers


def test_16_async_is_decided_before_anybody_is_called(signal: Signal) -> None:
    """A missing wrapper raises first; an object with an async __call__ is known for what it is."""
    heard: list[str] = []

    class Async:
        async def __call__(self, sender: object) -> str:
            return "awaited"

    receiver = Async()
    signal.connect(receiver)
    assert asyncio.run(signal.send_async("s")) == [(receiver, "awaited")]
    signal.connect(plain := lambda sender: heard.append("plain"))
    with pytest.raises(RuntimeError):
        signal.send("s")
    with pytest.raises(RuntimeError):
        asyncio.run(signal.send_async("s"))
    assert not heard
    del plain


def test_17_a_signal_with_weak_receivers_is_in_no_cycle() -> None:
    """It is freed with its last reference; see test_lifetime.py."""
    gc.collect()
    gc.disable()
    try:
        signal = Signal("p")
        signal.connect(receiver := lambda sender: sender)
        signal.send("s")
        gone = weakref.ref(signal)
        del signal
        assert gone() is None
    finally:
        gc.enable()
    del receiver


def test_18_copies_are_refused(signal: Signal) -> None:
    """Rather than sharing or losing connections: see test_lifetime.py."""
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            attempt(signal)


def test_19_signals_can_be_looked_into(signal: Signal) -> None:
    """Subscriptions are listed in order, with readable names; typing is tested in typed_api.py."""
    signal.connect(receiver := lambda sender: sender)
    (subscription,) = signal.subscriptions()
    assert "<lambda>" in repr(subscription)
    assert "'p'" in repr(signal)
    assert list(signal.receivers.values()) == [receiver]


def test_blinkers_api_is_all_there(signal: Signal) -> None:
    """Every public name of blinker's signals is there, and a Signal is a blinker signal."""
    assert isinstance(signal, blinker.NamedSignal)
    for name in vars(blinker.Signal) | vars(blinker.NamedSignal):
        if not name.startswith("_"):
            assert hasattr(signal, name), name


def test_connect_via(signal: Signal) -> None:
    """blinker's decorator works, strong unless told otherwise."""
    heard: list[Any] = []

    @signal.connect_via("s", weak=True)
    def receiver(sender: object, **payload: object) -> None:
        heard.append(payload)

    signal.send("s", x=1)
    signal.send("t", x=2)
    assert heard == [{"x": 1}]
