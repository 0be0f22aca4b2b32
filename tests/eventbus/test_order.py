"""Who runs before whom."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventbus import PRIORITIES, Bus, OrderError, Subscription


class Want(NamedTuple):
    name: str
    priority: int
    after: tuple[str, ...]
    before: tuple[str, ...]


names = st.sampled_from("abcdef")
wants = st.lists(
    st.builds(
        Want,
        names,
        st.sampled_from([50, 50, 50, 0, 30, 70, 100]),
        st.lists(names, max_size=2).map(tuple),
        st.lists(names, max_size=2).map(tuple),
    ),
    max_size=7,
)
plain_wants = wants.map(lambda several: [w._replace(after=(), before=()) for w in several])


def model(several: list[Want]) -> list[int] | None:
    """Take, again and again, the one with the lowest place that waits for none; None: a cycle."""
    count = range(len(several))
    waits: dict[int, set[int]] = {i: set() for i in count}
    pulls: dict[int, set[int]] = {i: set() for i in count}
    for i in count:
        for j in count:
            if i != j and several[j].name in several[i].after:
                waits[i].add(j)
            if i != j and several[j].name in several[i].before:
                waits[j].add(i)
                pulls[i].add(j)

    def place(i: int, seen: frozenset[int] = frozenset()) -> tuple[int, int]:
        ahead = [place(j, seen | {i}) for j in pulls[i] if j not in seen]
        return min([(several[i].priority, i), *ahead])

    order: list[int] = []
    left = set(count)
    while left:
        free = [i for i in left if not waits[i] & left]
        if not free:
            return None
        order.append(min(free, key=lambda i: (place(i), several[i].priority, i)))
        left.remove(order[-1])
    return order


def connect_all(bus: Bus, several: list[Want]) -> list[Subscription]:
    handles = []
    for want in several:
        handle = bus.connect(
            "p",
            lambda: None,
            name=want.name,
            priority=want.priority,
            after=want.after,
            before=want.before,
        )
        assert isinstance(handle, Subscription)
        handles.append(handle)
    return handles


@settings(max_examples=200, deadline=None)
@given(plain_wants)
def test_ascending_priority_then_connection_order(several: list[Want]) -> None:
    """Without names, receivers run by priority, those of one priority as they were connected."""
    bus = Bus()
    bus.declare("p")
    handles = connect_all(bus, several)
    ranked = sorted(range(len(several)), key=lambda i: several[i].priority)
    assert list(bus.order("p")) == [handles[i] for i in ranked]


@settings(max_examples=300, deadline=None)
@given(wants)
def test_names_override_priority(several: list[Want]) -> None:
    """With after= and before=, the order is the model's; a cycle is an error that adds nothing."""
    bus = Bus()
    bus.declare("p")
    done: list[Want] = []
    handles: list[Subscription] = []
    for want in several:
        expected = model([*done, want])
        if expected is None:
            with pytest.raises(OrderError, match="close a cycle between"):
                connect_all(bus, [want])
        else:
            done.append(want)
            handles += connect_all(bus, [want])
            assert list(bus.order("p")) == [handles[i] for i in expected]
    heard: list[int] = []
    other = Bus()
    other.declare("p")
    for i, want in enumerate(done):
        options: Any = want._asdict()
        other.connect("p", lambda i=i: heard.append(i), **options)
    other.send("p")
    other.signal("p").emitter("x").send()
    assert heard == 2 * (model(done) or [])


def test_equal_priority_runs_in_connection_order_every_time() -> None:
    """A hundred buses send to the same receivers in the same order, which is the connect order."""
    for _ in range(100):
        bus = Bus()
        bus.declare("p")
        heard: list[int] = []
        for i in range(20):
            bus.connect("p", lambda i=i, heard=heard: heard.append(i))
        bus.send("p")
        assert heard == list(range(20))


def test_any_and_own_receivers_share_one_order() -> None:
    """Receivers for any sender and for this one are ordered together, not one kind first."""
    bus = Bus()
    bus.declare("p")
    heard: list[str] = []
    bus.connect("p", lambda: heard.append("own"), sender="s")
    bus.connect("p", lambda: heard.append("any"))
    bus.connect("p", lambda: heard.append("own later"), sender="s")
    bus.connect("p", lambda: heard.append("first"), sender="s", priority="HIGH")
    bus.send("p", "s")
    bus.signal("p").emitter("s").send()
    assert heard == 2 * ["first", "own", "any", "own later"]


def test_consumer_sees_what_the_producer_made() -> None:
    """after="metrics" holds whatever the order of connecting and the priorities."""
    bus = Bus()
    bus.declare("p", ("logs",))
    seen: list[object] = []
    bus.connect("p", lambda logs: seen.append(logs["f1"]), after="metrics", priority="HIGHEST")

    def metrics(logs: dict[str, object]) -> None:
        logs["f1"] = 1

    bus.connect("p", metrics, priority="LOWEST")
    bus.send("p", logs={})
    assert seen == [1]


def test_a_name_that_comes_later_takes_effect_then() -> None:
    """after= a name that nobody has is no error, and holds from when somebody has it."""
    bus = Bus()
    bus.declare("p")
    heard: list[str] = []
    bus.connect("p", lambda: heard.append("late"), after="early")
    bus.send("p")
    early = bus.connect("p", lambda: heard.append("early"), name="early")
    bus.send("p")
    early.disconnect()
    bus.send("p")
    assert heard == ["late", "early", "late", "late"]


def test_a_cycle_is_refused_where_it_closes() -> None:
    """The connect that closes a cycle raises, names who is in it and changes nothing."""
    bus = Bus()
    bus.declare("p")
    bus.connect("p", lambda: None, name="a", after="b")
    with pytest.raises(OrderError) as caught:
        bus.connect("p", lambda: None, name="b", after="a")
    assert str(caught.value) == "after= and before= close a cycle between a, b"
    assert [s.name for s in bus.order("p")] == ["a"]


def test_cycles_are_found_across_any_and_one_sender() -> None:
    """A receiver for any sender cannot close a cycle with those of one sender."""
    bus = Bus()
    bus.declare("p")
    bus.connect("p", lambda: None, name="a", after="b", sender="s")
    with pytest.raises(OrderError):
        bus.connect("p", lambda: None, name="b", after="a")
    bus.connect("p", lambda: None, name="b")
    with pytest.raises(OrderError):
        bus.connect("p", lambda: None, name="c", before="b", after="a", sender="s")


def test_two_senders_may_order_the_same_names_differently() -> None:
    """What one sender's receivers ask for does not bind another's; all can still be listed."""
    bus = Bus()
    bus.declare("p")
    heard: list[str] = []
    for sender, first, second in (("s", "a", "b"), ("t", "b", "a")):
        bus.connect("p", lambda n=second: heard.append(n), name=second, sender=sender, after=first)
        bus.connect("p", lambda n=first: heard.append(n), name=first, sender=sender)
    bus.send("p", "s")
    bus.send("p", "t")
    assert heard == ["a", "b", "b", "a"]
    assert len(bus.subscriptions("p")) == 4
    assert "4 subscriptions" in repr(bus)


def test_order_prints_who_runs_when_and_why() -> None:
    """bus.order(point) prints place, name, receiver and reason of each."""
    bus = Bus()
    bus.declare("epoch_end", ("logs",))

    def metrics(logs: object) -> None:
        """Receive."""

    def report(logs: object) -> None:
        """Receive."""

    bus.connect("epoch_end", report, after="metrics", before=["end"], priority="HIGH")
    bus.connect("epoch_end", metrics, priority=55).mute()
    lines = str(bus.order("epoch_end")).splitlines()
    first, second = (next(i for i, li in enumerate(lines) if f" {n} " in li) for n in (1, 2))
    assert first < second
    assert "metrics" in lines[first]
    assert "priority 55" in lines[first]
    assert "muted" in lines[first]
    assert "test_order.py:" in lines[first]
    assert "priority HIGH, after metrics, before end" in lines[second]


def test_every_named_priority() -> None:
    """The names are OpenMMLab's, in any case, and run in ascending order of their numbers."""
    bus = Bus()
    bus.declare("p")
    heard: list[str] = []
    for name in reversed(PRIORITIES):
        bus.connect("p", lambda n=name: heard.append(n), priority=name.lower())
    bus.send("p")
    assert heard == list(PRIORITIES)
    assert list(PRIORITIES.values()) == [0, 10, 30, 40, 50, 60, 70, 90, 100]


@pytest.mark.parametrize(
    ("priority", "kind", "message"),
    [
        ("HIHG", ValueError, "priority 'HIHG' is not one of HIGHEST, .*; did you mean 'HIGH'?"),
        (101, ValueError, r"priority must be from 0 \(first\) to 100 \(last\), not 101"),
        (-1, ValueError, "not -1"),
        (True, TypeError, "priority must be a name or an int from 0 to 100, not True"),
        (1.5, TypeError, "not 1.5"),
    ],
)
def test_bad_priorities(priority: Any, kind: type[Exception], message: str) -> None:
    """A priority that is none is refused, with the nearest name."""
    bus = Bus()
    bus.declare("p")
    with pytest.raises(kind, match=message):
        bus.connect("p", lambda: None, priority=priority)
    assert not bus.subscriptions()


@pytest.mark.parametrize("names", [5, [5]])
def test_bad_names(names: Any) -> None:
    """after= and before= take names of subscriptions."""
    bus = Bus()
    bus.declare("p")
    with pytest.raises(TypeError, match=r"after (must be a name|takes the names)"):
        bus.connect("p", lambda: None, after=names)
