"""References: who is kept alive by whom, and what is left over afterwards. The collector is off."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eventbus import Bus, DuplicateError, Signal


@pytest.fixture(autouse=True)
def _without_collector() -> Iterator[None]:
    """Nothing may depend on a run of the garbage collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def bus() -> Bus:
    """Give a bus with one point."""
    bus = Bus()
    bus.declare("p", ("x",))
    return bus


class Sender:
    pass


class Owner:
    """A sender that keeps its emitters itself, as a loop does."""

    def __init__(self) -> None:
        self.__emitters__: dict[Any, Any] = {}


class Listener:
    def __init__(self, heard: list[object]) -> None:
        self.heard = heard

    def hear(self, x: object) -> None:
        self.heard.append(x)

    def plain(self, sender: object, x: object) -> None:
        self.heard.append(x)

    def __call__(self, x: object) -> None:
        self.heard.append(x)


def sizes(bus: Bus) -> dict[str, int]:
    """Count what the internal maps of a bus hold."""
    found: dict[str, int] = {
        "patterns": len(tuple(bus._patterns)),
        "scopes": len(bus._scopes),
    }
    for signal in bus._signals.values():
        senders = signal._senders
        for name in ("_index", "addressed", "_kept", "_built"):
            found[f"{signal.name}.{name}"] = len(getattr(senders, name))
        found[f"{signal.name}.by_value"] = senders.by_value
        found[f"{signal.name}.own"] = len(signal.own)
        found[f"{signal.name}.ids"] = len(signal.ids)
    return found


@pytest.mark.parametrize("sends", [0, 1, 20])
@pytest.mark.parametrize("kind", ["function", "method", "object"])
def test_weak_receivers_vanish(bus: Bus, kind: str, sends: int) -> None:
    """A weakly held receiver is freed with its last reference and is heard of no more."""
    heard: list[object] = []
    owner: Any = Listener(heard)
    if kind == "function":
        owner = functools.wraps(owner.hear)(lambda x: heard.append(x))
    receiver = owner.hear if kind == "method" else owner
    before = sizes(bus)
    emitter = bus.signal("p").emitter("s")
    bus.connect("p", receiver, weak=True)
    bus.connect("p", receiver, weak=True, sender="s")
    for _ in range(sends):
        bus.send("p", "s", x=1)
        emitter.send(1)
    gone = weakref.ref(owner)
    del owner, receiver
    assert gone() is None
    assert not bus.subscriptions()
    assert not emitter.live
    emitter.send(2)
    del emitter
    assert bus.send("p", x=2) == []
    assert heard == [1] * sends * 4
    assert sizes(bus) == before


def test_strong_is_the_default_of_connect(bus: Bus) -> None:
    """A lambda that nobody else holds is kept by on and connect."""
    heard: list[object] = []
    bus.connect("p", lambda x: heard.append(x))
    bus.on("p")(functools.partial(lambda x, y: heard.append(y), y="partial"))
    bus.send("p", x=1)
    assert heard == [1, "partial"]


def test_weak_is_the_default_of_signal_connect(bus: Bus) -> None:
    """Plain signal.connect keeps blinker's rule: weak; and idempotent."""
    signal = bus.signal("p")

    def receiver(sender: object, x: object) -> None:
        """Receive."""

    signal.connect(receiver)
    signal.connect(receiver)
    assert len(bus.subscriptions()) == 1
    assert bus.subscriptions()[0].weak
    del receiver
    assert not bus.subscriptions()


def test_a_receiver_that_dies_amid_a_send_is_skipped(bus: Bus) -> None:
    """A weak receiver freed by an earlier receiver of the same send is not called; no error."""
    heard: list[object] = []
    listeners = [Listener(heard)]
    bus.connect("p", lambda: listeners.clear(), priority="HIGH")
    for _ in range(20):
        listeners.append(Listener(heard))
        bus.connect("p", listeners[0].hear, weak=True)
        bus.send("p", x=1)
    assert not heard
    assert len(bus.subscriptions()) == 1


@pytest.mark.parametrize("make", [Sender, Owner])
@pytest.mark.parametrize("sends", [0, 20])
def test_senders_are_held_weakly(bus: Bus, make: Callable[[], object], sends: int) -> None:
    """A sender is freed with its last reference, and what was connected to it alone as well."""
    before = sizes(bus)
    sender = make()
    listener = Listener([])
    receiver_gone = weakref.ref(listener)
    handle = bus.connect("p", listener, sender=sender)
    bus.connect("*", lambda: None, sender=sender)
    bus.signal("p").connect(listener.plain, sender, weak=False)
    other = bus.connect("p", lambda x: x)
    emitter = bus.signal("p").emitter(sender)
    for _ in range(sends):
        emitter.send(1)
        bus.send("p", sender, x=1)
    gone = weakref.ref(sender)
    del listener, sender, emitter
    assert gone() is None
    assert receiver_gone() is None
    assert not handle.active
    assert bus.subscriptions() == (other,)
    other.disconnect()
    assert sizes(bus) == before


def test_a_receiver_that_refers_to_its_sender_dies_with_it(bus: Bus) -> None:
    """What a loop's own receiver refers to is a cycle within the loop: one collection frees it."""
    sender = Owner()
    bus.connect("p", lambda s=sender: s, sender=sender)
    bus.signal("p").emitter(sender).send(1)
    gone = weakref.ref(sender)
    del sender
    gc.collect()
    assert gone() is None
    assert not bus.subscriptions()


def test_an_emitter_held_on_is_empty_after_its_sender(bus: Bus) -> None:
    """An emitter that outlives its sender is not live and lists nothing."""
    sender = Sender()
    emitter = bus.signal("p").emitter(sender)
    handle = bus.connect("p", lambda x: x, sender=sender)
    assert emitter.live
    del sender
    assert not emitter.live
    assert not handle.active
    assert bus.subscriptions() == ()
    emitter.send(1)


def test_nobody_gets_a_dead_senders_messages(bus: Bus) -> None:
    """A new object at a dead sender's address is another sender: identities are never mistaken."""
    signal = bus.signal("p")
    heard: list[object] = []
    addresses = set()
    for _ in range(200):
        sender = Sender()
        emitter = signal.emitter(sender)
        handle = bus.connect("p", lambda x: heard.append(x), sender=sender)
        address = id(sender)
        del sender
        other = Sender()
        addresses.add(id(other) == address)
        bus.send("p", other, x=1)
        signal.emitter(other).send(1)
        assert not signal.has_receivers_for(other)
        bus.connect("p", lambda x: heard.append("own"), sender=other)
        del emitter, handle
        signal.emitter(other).send(2)
        assert heard == ["own"]
        heard.clear()
        del other
    assert True in addresses  # else this has shown nothing
    assert not bus.subscriptions()


@pytest.mark.parametrize("sender", [(1, 2), 1.5, [], {}, b"bytes"])
def test_senders_that_cannot_be_held_are_refused(bus: Bus, sender: object) -> None:
    """Connecting to a tuple, float or list raises; nothing is connected. It may send, though."""
    with pytest.raises(TypeError) as caught:
        bus.connect("p", lambda x: x, sender=sender)
    assert str(caught.value) == (
        f"{sender!r} cannot be a sender to connect to: a {type(sender).__name__} can be neither "
        "weakly held nor safely compared; use a str, an int, or an object"
    )
    assert not bus.subscriptions()
    bus.connect("p", lambda x: x)
    assert len(bus.send("p", sender, x=1)) == 1


@pytest.mark.parametrize("sender", [0, False, "", None, 12345678901234567890, "text"])
def test_values_are_ordinary_senders(bus: Bus, sender: object) -> None:
    """0, False, None and text are senders like others, told by their value."""
    heard: list[object] = []
    bus.connect("p", lambda x: heard.append(x), sender=sender)
    for _ in range(20):
        bus.send("p", "another", x=1)
        bus.send("p", 1, x=1)
        bus.send("p", Sender(), x=1)
    assert heard == []
    same: object = "".join(sender) if isinstance(sender, str) else sender
    bus.send("p", same, x=2)
    bus.signal("p").emitter(same).send(3)
    assert heard == [2, 3]


def test_an_emitter_need_not_be_kept(bus: Bus) -> None:
    """signal.emitter(sender).send(...) sends although nobody keeps the emitter."""
    heard: list[object] = []
    signal = bus.signal("p")
    sender = Sender()
    signal.emitter("s").send(0)
    bus.connect("p", lambda x: heard.append(x))
    signal.emitter("s").send(1)
    signal.emitter(None).send(2)
    send = signal.emitter(sender).send
    send(3)
    del sender
    send(4)
    assert heard == [1, 2, 3]


def test_no_payload_is_kept(bus: Bus) -> None:
    """After a send the bus refers to nothing that was sent, by any door, hot or cold."""
    bus.declare("open", None)
    signal = bus.signal("p")
    for point in ("p", "open"):
        bus.connect(point, lambda x: None, every=2)
        bus.connect(point, lambda x: None, background=True, when=lambda x: True)
    emitter = signal.emitter("s")
    for _ in range(20):
        payload = Sender()
        gone = weakref.ref(payload)
        bus.send("p", x=payload)
        bus.send("p", payload, x=1)
        emitter.send(payload)
        bus.send("open", x=payload)
        bus.flush(5)
        del payload
        assert gone() is None


def test_sizes_return_to_their_start(bus: Bus) -> None:
    """Ten thousand connects and disconnects with ever new senders leave nothing behind."""
    before = sizes(bus)
    signal = bus.signal("p")

    def plain(sender: object, x: object) -> None:
        """Receive."""

    kept = Sender()
    for i in range(10_000):
        sender: object = (f"s{i}", i, Sender(), kept)[i % 4]
        if i % 3:
            signal.connect(plain, sender)
            if i % 2:
                signal.send(sender, x=i)
            signal.disconnect(plain, sender)
        else:
            handle = bus.connect(("p", "p*")[i % 2], lambda x: x, sender=sender)
            signal.emitter(sender).send(i)
            handle.disconnect()
    del sender
    assert sizes(bus) == before
    assert not signal.receivers


def test_disconnecting_what_never_was_leaves_nothing(bus: Bus) -> None:
    """A disconnect of an unknown receiver makes no buckets."""
    before = sizes(bus)
    bus.signal("p").disconnect(lambda: None, "s")
    with pytest.raises(ValueError, match="is not connected to"):
        bus.disconnect(len, "p")
    assert sizes(bus) == before


def test_a_handle_keeps_no_receiver_alive(bus: Bus) -> None:
    """A disconnected subscription's handle does not refer to the receiver."""
    listener = Listener([])
    gone = weakref.ref(listener)
    handle = bus.connect("p", listener)
    emitter = bus.signal("p").emitter("s")
    emitter.send(1)
    del listener
    handle.disconnect()
    handle.disconnect()
    assert gone() is None
    assert "Listener" in repr(handle)
    assert "(disconnected)" in repr(handle)


def test_a_dropped_bus_is_freed() -> None:
    """A bus with strong and weak receivers, emitters and sends is freed without a collection."""
    bus = Bus()
    signal = bus.declare("p", ("x",))
    listener = Listener([])
    bus.connect("p", listener)
    bus.connect("p", listener.hear, weak=True)
    bus.signal("p").connect(lambda s, x: None, weak=False)
    for _ in range(20):
        bus.send("p", x=1)
    gone = weakref.ref(bus), weakref.ref(signal)
    del bus, signal
    assert [reference() for reference in gone] == [None, None]
    assert listener.heard == [1] * 40


def test_handles_outlive_their_bus(bus: Bus) -> None:
    """Disconnecting and muting after the bus is gone is harmless."""
    own = Bus(open=True)
    handle = own.connect("p", lambda: None)
    del own
    handle.mute()
    handle.unmute()
    handle.disconnect()
    assert not handle.active


def test_the_same_function_twice_is_refused(bus: Bus) -> None:
    """While still connected to the point and sender it raises, naming the three remedies."""

    def receiver(x: object) -> None:
        """Receive."""

    handle = bus.connect("p", receiver)
    with pytest.raises(DuplicateError, match=r"again=True .* loop\.on, or inside bus\.scope\(\)"):
        bus.connect("on_p", receiver)
    bus.connect("p", receiver, sender="s")
    with pytest.raises(DuplicateError, match="is connected to 'p' for 's' already"):
        bus.connect("p", receiver, sender="s")
    bus.connect("p", receiver, again=True)
    assert len(bus.send("p", x=1)) == 2
    handle.disconnect()
    with pytest.raises(DuplicateError):
        bus.connect("p", receiver)
    method = Listener([])
    bus.connect("p", method.hear)
    with pytest.raises(DuplicateError):
        bus.connect("p", method.hear)


def test_a_fresh_bound_method_disconnects(bus: Bus) -> None:
    """bus.disconnect(obj.method) finds it although each access makes a new method object."""
    listener = Listener([])
    bus.connect("p", listener.hear)
    bus.signal("p").connect(listener.hear)
    bus.disconnect(listener.hear)
    assert not bus.subscriptions()


def test_partials_disconnect(bus: Bus) -> None:
    """The same partial object disconnects, as does its handle."""
    partial = functools.partial(lambda x, y: None, y=1)
    bus.connect("p", partial)
    bus.disconnect(partial)
    bus.connect("p", partial).disconnect()
    assert not bus.subscriptions()


def test_a_destructor_may_disconnect(bus: Bus) -> None:
    """A receiver whose __del__ disconnects others, freed amid a disconnect, causes no deadlock."""

    class Resource:
        def __init__(self) -> None:
            self.other = bus.connect("p", lambda: None)

        def __call__(self) -> None:
            pass

        def __del__(self) -> None:
            self.other.disconnect()
            bus.send("p", x=1)

    def run() -> None:
        handle = bus.connect("p", Resource())
        handle.disconnect()
        weak = Resource()
        bus.connect("p", weak, weak=True)
        del weak
        bus.connect("p", Resource(), once=True)
        bus.send("p", x=1)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive(), "deadlock"
    assert not bus.subscriptions()
    assert not bus.signal("p").ids


def test_interrupting_a_change(bus: Bus) -> None:
    """Amid another change a disconnect is put off until that is done; a connect is refused."""
    signal = bus.signal("p")
    handle = bus.connect("p", lambda: None)
    with bus._guard:
        handle.disconnect()
        assert not handle.active
        with pytest.raises(RuntimeError, match="interrupted this thread while it was changing"):
            bus.connect("p", lambda: None)
        weak = Listener([])
        assert len(signal.own) == 1
        del weak
    assert not signal.own
    assert not signal.ids


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_are_refused(bus: Bus, copier: Callable[[object], object]) -> None:
    """Bus, signal, subscription and emitter refuse copying and pickling, each with the reason."""
    handle = bus.connect("p", lambda: None)
    for thing, message in (
        (bus, "a Bus cannot be copied or pickled: its connections, locks and workers belong"),
        (
            bus.signal("p"),
            "signal 'p' cannot be copied or pickled: .* declare the point on another",
        ),
        (handle, "a Subscription belongs to its bus and cannot be copied or pickled"),
        (bus.signal("p").emitter("s"), "the emitter of 'p' cannot be copied or pickled"),
    ):
        with pytest.raises(TypeError, match=message):
            copier(thing)


SCRIPT = """
import gc, sys
from eventbus import Bus
gc.disable()
bus = Bus(open=True)
class Sender: pass
class Hears:
    def hear(self, x=None): pass
    def __del__(self): pass
keep = [Hears() for _ in range(50)]
senders = [Sender() for _ in range(50)]
for h, s in zip(keep, senders):
    bus.connect("p", h.hear, weak=True)
    bus.signal("p").connect(h.hear, s)
    bus.connect("*", lambda: None, sender=s, again=True)
for _ in range(10):
    bus.send("p", senders[0]); bus.signal("p").emitter(senders[1]).send()
cycle = [bus, keep, senders]; cycle.append(cycle)
sys.modules["kept"] = cycle
"""


def test_leaving_with_live_receivers_is_silent() -> None:
    """A script that exits with live weak receivers and senders writes nothing to stderr."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_signals_can_be_subclassed() -> None:
    """A subclass may override send; it is called each time."""
    sent: list[object] = []

    class Noted(Signal):
        def send(self, sender: object = None, /, **payload: Any) -> list[tuple[Any, Any]]:
            sent.append(sender)
            return super().send(sender, **payload)

    signal = Noted("p")
    signal.connect(lambda sender: None, weak=False)
    for _ in range(20):
        assert len(signal.send("s")) == 1
    assert sent == ["s"] * 20
