"""Corners that only a reader of the code would think of."""

from __future__ import annotations

import functools
import itertools
import logging
import weakref
from typing import Any

import pytest

from eventbus import Bus, Signal, SubscriptionGroup, background, guard, plan
from eventbus.counts import SendCount


@pytest.fixture
def bus() -> Bus:
    """Give a bus with one point."""
    bus = Bus()
    bus.declare("p", ("x",))
    return bus


class Sender:
    pass


def test_a_counter_is_added_to_the_payload(bus: Bus) -> None:
    """count= names a key of the payload, and adds it where it is not there."""
    assert bus.declare("q", ("x",), count="step").payload == ("x", "step")
    assert bus.declare("r", ("step", "x"), count="step").payload == ("step", "x")
    assert bus.signal("q").index == "step"


def test_order_of_one_sender(bus: Bus) -> None:
    """bus.order(point, sender) lists who hears that sender, and nobody while the point is muted."""
    bus.connect("p", lambda: None, name="any")
    bus.connect("p", lambda: None, name="own", sender="s")
    assert [s.name for s in bus.order("p", "s")] == ["any", "own"]
    assert [s.name for s in bus.order("p", "t")] == ["any"]
    with bus.signal("p").muted():
        assert not bus.order("p", "s")


def test_a_sender_gets_its_own_receivers_while_plans_are_cold(bus: Bus) -> None:
    """A send that was cached before the sender had receivers of its own hands it on."""
    signal = bus.signal("p")
    for value in (1, 2):
        bus.connect("p", lambda x, v=value: v)
    assert len(signal.send("other", x=0)) == 2
    sender = Sender()
    bus.connect("p", lambda: 3, sender=sender)
    for _ in range(20):
        assert [v for _, v in signal.send(sender, x=0)] == [1, 2, 3]
        assert [v for _, v in signal.send("other", x=0)] == [1, 2]


def test_code_that_another_bus_made_is_shared() -> None:
    """A plan that waits for its code takes what another bus's plan of the same shape made."""
    buses = []
    for _ in range(2):
        bus = Bus()
        bus.declare("shared_shape", ("x",))
        for value in (1, 2):
            bus.connect("shared_shape", lambda x, v=value: (x, v))
        bus.send("shared_shape", x=0)
        buses.append(bus)
    for bus in (*buses, *buses):
        for _ in range(20):
            assert [v for _, v in bus.send("shared_shape", x=0)] == [(0, 1), (0, 2)]


def test_after_a_fork_all_starts_anew(bus: Bus) -> None:
    """What runs in a forked child leaves bus, plans and workers usable; queues are empty."""
    heard: list[int] = []
    bus.connect("p", lambda x: heard.append(x))
    bus.connect("p", lambda x: heard.append(-x), background=True)
    bus.send("p", x=1)
    bus.flush(5)
    guard._renew()
    plan._after_fork()
    background._after_fork()
    bus.connect("p", lambda x: heard.append(10 * x))
    bus.send("p", x=2)
    bus.flush(5)
    assert sorted(heard) == [-2, -1, 1, 2, 20]


def test_what_fails_at_exit_is_logged(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    """The exit hook logs what surfaces; a second worker of a bus needs no second hook."""

    def fails() -> None:
        raise OSError

    bus.connect("p", fails, background=True)
    bus.connect("p", lambda: None, background="other")
    bus.send("p", x=1)
    with caplog.at_level(logging.ERROR):
        background._at_exit()
    assert "failed while the interpreter was leaving" in caplog.text


def test_a_positional_only_gap_keeps_defaults(bus: Bus) -> None:
    """A positional-only parameter behind one that is not carried keeps its default as well."""

    def receiver(other: int = 7, x: int = 8, /) -> tuple[int, int]:
        return other, x

    bus.connect("p", receiver)
    assert [v for _, v in bus.send("p", x=1)] == [(7, 8)]


def test_inherited_callables_without_code_are_connected(bus: Bus) -> None:
    """A partial in a base class does something, for all one can see."""

    class Base:
        on_p = functools.partial(lambda x: x)

    class Child(Base):
        pass

    bus.attach(Child())
    assert [v for _, v in bus.send("p", x=5)] == [5]


def test_groups_can_be_asked(bus: Bus) -> None:
    """A group is muted when all of it is."""
    bus.declare("q")
    group = bus.connect("*", lambda: None)
    assert isinstance(group, SubscriptionGroup)
    next(iter(group)).mute()
    assert not group.muted
    list(group)[1].mute()
    assert group.muted


def test_a_count_of_another_is_not_dropped() -> None:
    """The late death of a sender does not touch the count of one that took its identity."""
    counter = SendCount()
    sender = Sender()
    assert [counter(sender), counter(sender)] == [0, 1]
    counter.forget(id(sender), weakref.ref(counter))
    assert counter(sender) == 2


def test_an_emitter_of_a_dead_sender_does_not_disturb_a_living_one(bus: Bus) -> None:
    """Sweeping what a dead sender left does not forget the receivers of its successor."""
    signal = bus.signal("p")
    heard: list[int] = []
    first, second = Sender(), Sender()
    old = signal.emitter(first)
    bus.connect("p", lambda x: heard.append(-x), sender=first)
    with bus._guard:  # the sweep is put off until the successor is there
        old.key = id(second)
        for subscription in old.own:
            subscription.end()
        old.bury()
        signal.emitter(second)
    bus.connect("p", lambda x: heard.append(x), sender=second)
    old.drop_dead()
    bus.send("p", second, x=1)
    assert heard == [1]


def test_homes_that_died_are_not_swept(bus: Bus) -> None:
    """What is put off until the lock is free may be gone by then."""
    with bus._guard:
        emitter = bus.signal("p").emitter("gone")
        emitter.bury()
        del emitter
    assert not bus._guard._buried


def test_a_home_says_how_it_changes() -> None:
    """Home is a base class: signals and emitters say what a change means."""
    from eventbus.emitter import Home

    with pytest.raises(NotImplementedError):
        Home.changed(Signal("p"))


def test_long_chains_of_before(bus: Bus) -> None:
    """Each that wants to precede another takes its place, however long the chain."""
    names = "abcdef"
    for name, target in itertools.pairwise(names):
        bus.connect("p", lambda: None, name=name, before=target)
    bus.connect("p", lambda: None, name="f", priority="HIGHEST")
    assert "".join(s.name for s in bus.order("p")) == names


def test_connected_to_ends_only_its_own(bus: Bus) -> None:
    """A receiver connected by name, too, stays connected after connected_to."""
    signal = bus.signal("p")

    def receiver(sender: object, x: int) -> int:
        return x

    bus.connect("p", receiver)
    with signal.connected_to(receiver):
        assert len(signal.send("s", x=1)) == 2
    assert len(signal.send("s", x=1)) == 1


def test_receivers_for_leaves_out_the_dead(bus: Bus) -> None:
    """A receiver that died amid the iteration is not given."""
    signal = bus.signal("p")
    ears: list[Any] = [lambda s, x: 1, lambda s, x: 2]
    for ear in ears:
        signal.connect(ear)
    del ear
    found = signal.receivers_for("s")
    first = next(found)
    ears.pop()
    assert list(found) == []
    assert first is ears[0]


def test_weak_connections_can_be_made_strong(bus: Bus) -> None:
    """Connecting again with weak=False keeps the receiver, in its place."""
    signal = bus.signal("p")

    class Ear:
        def hear(self, sender: object, x: int) -> int:
            return x

    ear = Ear()
    gone = weakref.ref(ear)
    signal.connect(ear.hear)
    signal.connect(ear.hear, weak=False)
    del ear
    assert len(signal.send("s", x=1)) == 1
    (subscription,) = signal.subscriptions()
    assert not subscription.weak
    subscription.disconnect()
    assert gone() is None


def test_a_point_declared_amid_the_connect_of_its_pattern() -> None:
    """It is connected once, by whoever comes first."""

    class Racing(Bus):
        def _matching(self, points: tuple[str, ...]) -> list[Signal]:
            if "late" not in self:
                self.declare("late")  # as another thread would
            return super()._matching(points)

    bus = Racing()
    bus.connect("*", lambda: None)
    assert len(bus.subscriptions()) == 1


def test_watchers_hear_of_disconnects(bus: Bus) -> None:
    """receiver_disconnected is sent where somebody watches."""
    signal = bus.signal("p")
    heard: list[object] = []
    signal.receiver_disconnected.connect(watch := lambda _, receiver, sender: heard.append(sender))
    signal.connect(receiver := lambda sender, x: x)
    signal.disconnect(receiver)
    assert heard == [signal.ANY]
    del watch


def test_a_cold_plan_hands_on_other_senders() -> None:
    """A plan that is no code yet knows of senders with receivers of their own, as code does."""
    bus = Bus()
    signal = bus.declare("cold_plan", ("x",))
    for value in (1, 2):
        bus.connect("cold_plan", lambda x, v=value: (v, x)[0])
    assert len(signal.send("other", x=0)) == 2
    sender = Sender()
    bus.connect("cold_plan", lambda: 3, sender=sender)
    assert [v for _, v in signal.send(sender, x=0)] == [1, 2, 3]


def test_a_receiver_at_a_dead_ones_address_is_another(bus: Bus) -> None:
    """Receivers are found by identity only as long as they live."""
    signal = bus.signal("p")

    def other() -> None:
        """Never be connected."""

    handle = bus.connect("p", lambda: None)
    signal.ids[id(other)] = signal.own[0]  # as if it had that address
    assert list(signal.find(other)) == []
    del signal.ids[id(other)]
    handle.disconnect()


def test_a_weak_receiver_may_outlive_its_bus() -> None:
    """Its death concerns nobody then."""
    bus = Bus(open=True)
    ears = [lambda: None]
    handle = bus.connect("p", ears[0], weak=True)
    del bus
    ears.clear()
    assert not handle.active


def test_an_emitter_whose_place_was_taken_still_sends(bus: Bus) -> None:
    """An emitter that the index does not know any more does no harm."""
    signal = bus.signal("p")
    heard: list[int] = []
    bus.connect("p", lambda x: heard.append(x))
    first, second = Sender(), Sender()
    old = signal.emitter(first)
    old.key = id(second)
    signal.emitter(second)  # and gone
    old.send(1)
    signal._senders.forget_sender(0)
    assert heard == [1]


def test_a_dead_senders_emitter_ends_after_its_successor_came(bus: Bus) -> None:
    """The late end of an emitter does not take that of a new sender at the same address along."""
    signal = bus.signal("p")
    heard: list[int] = []
    for _ in range(100):
        first = Sender()
        old, address = signal.emitter(first), id(first)
        del first
        second = Sender()
        if id(second) == address:
            break
    assert id(second) == address
    bus.connect("p", lambda x: heard.append(x), sender=second)
    del old
    bus.send("p", second, x=1)
    assert heard == [1]
