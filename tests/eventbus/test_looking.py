"""Profiles, reports, tables, recording, and the pytest plugin."""

from __future__ import annotations

import importlib.util
import time
from typing import Any

import pytest

from eventbus import Bus, Stats, Subscription
from eventbus.testing import Recorder, record

pytest_plugins = ["pytester"]


@pytest.fixture
def declared() -> Bus:
    """Give a bus with one point."""
    bus = Bus()
    bus.declare("p", ("x",))
    return bus


def slow(x: int) -> None:
    time.sleep(0.002)


def quick(x: int) -> None:
    if x == 3:
        raise OSError


def connected(bus: Bus, receiver: Any, **options: Any) -> Subscription:
    handle = bus.connect("p", receiver, **options)
    assert isinstance(handle, Subscription)
    return handle


@pytest.mark.parametrize("options", [{}, {"weak": True}, {"when": lambda x: True}, {"every": 1}])
def test_profile_counts_and_times(declared: Bus, options: Any) -> None:
    """Inside bus.profile() each subscription's calls, errors and seconds are counted."""
    signal = declared.signal("p")
    emitter = signal.emitter("s")
    one = connected(declared, slow, **options)
    two = connected(declared, quick, errors="warn")
    silent = connected(declared, lambda: None)
    silent.mute()
    emitter.send(0)
    with declared.profile(), declared.profile():
        for x in range(5):
            emitter.send(x)
        declared.send("p", x=5)
    emitter.send(6)
    assert (one.stats.calls, one.stats.errors) == (6, 0)
    assert (two.stats.calls, two.stats.errors) == (6, 1)
    assert silent.stats.calls == 0
    assert one.stats.total > 0.012
    assert 0.002 < one.stats.maximum < one.stats.total
    assert "6 calls, 0 errors, " in str(one.stats)


def test_stats_say_when_nothing_was_counted(declared: Bus) -> None:
    """Without a profile, stats say so; a call that was not made has no mean."""
    assert str(connected(declared, slow).stats) == (
        "0 errors; calls are counted only inside bus.profile()"
    )
    assert "0 calls, 0 errors, 0.000000 s in all, 0.000000 s mean" in str(Stats(profiled=True))
    assert declared.report() == "nothing was profiled: send inside `with bus.profile():`"


def test_profile_holds_for_points_declared_later(declared: Bus) -> None:
    """A point that is declared inside the block is profiled too."""
    with declared.profile():
        declared.declare("late")
        handle: Any = declared.connect("late", lambda: None)
        declared.send("late")
    assert handle.stats.calls == 1


@pytest.mark.parametrize("rich", [True, False])
def test_report_is_sorted_by_time(
    declared: Bus, rich: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bus.report() lists who slows the sender, dearest first, drawn by rich or in plain columns."""
    if not rich:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    declared.connect("p", quick)
    declared.connect("p", slow)
    with declared.profile():
        declared.send("p", x=1)
    lines = declared.report().splitlines()
    assert [w for w in ("calls", "errors", "share", "max us") if w not in "\n".join(lines)] == []
    first, second = (next(i for i, li in enumerate(lines) if n in li) for n in ("slow", "quick"))
    assert first < second
    assert "test_looking.py:" in lines[first]
    assert "1" in str(declared.order("p"))


def test_plain_tables_have_titles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A title stands above the columns."""
    from eventbus.tables import table

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert table(("a", "bb"), [("1", "2")], "T").splitlines() == ["T", "a  bb", "-  --", "1  2"]


def test_record_gives_plain_lists(declared: Bus) -> None:
    """record(bus) holds (point, payload) pairs as they were when sent."""
    declared.declare("q")
    with record(declared) as recorded:
        logs = {"loss": 1}
        declared.send("p", x=logs)
        logs["loss"] = 2
        declared.send("q")
    declared.send("q")
    assert recorded == [("p", {"x": {"loss": 1}}), ("q", {})]
    assert recorded.points == ["p", "q"]
    assert recorded.values("x") == [{"loss": 1}]


def test_record_some_points_of_one_sender(declared: Bus) -> None:
    """Points, patterns and a sender limit what is recorded; it comes last in the order."""
    declared.declare("q", ("x",))
    with record(declared, "p", sender="s") as one, record(declared, "q*") as two:
        assert len(declared.subscriptions()) == 2
        for point in ("p", "q"):
            declared.send(point, "s", x=1)
            declared.send(point, "t", x=2)
    assert one == [("p", {"x": 1})]
    assert two.values("x") == [1, 2]
    assert not declared.subscriptions()


def test_the_bus_fixture_is_fresh_and_open(bus: Bus, recorded: Recorder) -> None:
    """The plugin's fixtures: an open bus without points, and what it sends."""
    assert bus.points == ()
    bus.send("saved", size=3)
    assert recorded == [("saved", {"size": 3})]


def test_the_plugin_works_elsewhere(pytester: pytest.Pytester) -> None:
    """A project that has the package installed gets the fixtures without any configuration."""
    pytester.makepyfile(
        """
        def test_saved(bus, recorded):
            bus.send("saved", size=3)
            assert recorded.points == ["saved"]
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)


def test_repr_of_a_bus(declared: Bus) -> None:
    """It counts points and subscriptions."""
    declared.connect("p", slow, sender="s")
    assert repr(declared) == "<Bus: 1 points, 1 subscriptions>"
