"""Catch-alls, and cells that are run again."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from typing import Any

import pytest

from eventbus import ANY, BindingError, Bus


@pytest.fixture
def bus() -> Bus:
    """Give a bus with three points."""
    bus = Bus()
    for name in ("train_begin", "test_begin", "test_end"):
        bus.declare(name)
    return bus


def test_patterns_hear_what_matches(bus: Bus) -> None:
    """A star hears all, "test_*" those with the prefix, also points declared later."""
    heard: list[tuple[str, str]] = []
    for pattern in ("*", "test_*", "on_test_*"):
        bus.connect(pattern, lambda signal, p=pattern: heard.append((p, signal)))
    bus.declare("test_late")
    for point in bus.points:
        bus.send(point)
    assert [p for p, s in heard if s == "test_late"] == ["*", "test_*", "on_test_*"]
    assert [s for p, s in heard if p == "*"] == list(bus.points)
    assert [s for p, s in heard if p == "test_*"] == ["test_begin", "test_end", "test_late"]


def test_a_receiver_of_overlapping_patterns_is_called_once(bus: Bus) -> None:
    """Points that several names of one connect match are connected once."""
    heard: list[str] = []
    bus.connect(["test_*", "*", "test_end"], lambda signal: heard.append(signal))
    bus.declare("test_late")
    bus.send("test_end")
    bus.send("test_late")
    assert heard == ["test_end", "test_late"]


@pytest.mark.parametrize("end", ["handle", "receiver", "text", "scope", "connected"])
def test_patterns_end(bus: Bus, end: str) -> None:
    """Once ended, by any means, a pattern takes in no further points."""
    heard: list[str] = []

    def receiver(signal: str) -> None:
        heard.append(signal)

    if end == "scope":
        with bus.scope():
            bus.connect("test_*", receiver)
    elif end == "connected":
        with bus.connected("test_*", receiver):
            pass
    else:
        handle = bus.connect("test_*", receiver)
        if end == "handle":
            handle.disconnect()
        else:
            bus.disconnect(receiver, "test_*" if end == "text" else "*")
    bus.declare("test_late")
    bus.send("test_end")
    bus.send("test_late")
    assert not heard
    assert not tuple(bus._patterns)


def test_ending_by_sender_leaves_the_others(bus: Bus) -> None:
    """bus.disconnect with a sender ends the pattern of that sender alone."""
    heard: list[object] = []

    def receiver(sender: object) -> None:
        heard.append(sender)

    class Keeper:
        def __init__(self) -> None:
            self.__emitters__: dict[Any, Any] = {}

    keeper = Keeper()
    for sender in (ANY, "s", keeper):
        bus.connect("*", receiver, sender=sender)
    bus.disconnect(receiver, sender="s")
    bus.declare("late")
    bus.send("late", "s")
    bus.send("late", keeper)
    assert heard == ["s", keeper, keeper]
    bus.disconnect(receiver)
    bus.declare("later")
    bus.send("later", keeper)
    assert len(heard) == 3


def test_a_later_point_that_does_not_fit_is_not_declared(bus: Bus) -> None:
    """A catch-all that requires what a new point lacks makes declaring it an error, wholly."""
    heard: list[str] = []
    bus.connect("late_*", lambda: heard.append("first"))
    bus.declare("late_one", ("logs",))
    bus.connect("late_*", lambda logs: heard.append("second"))
    with pytest.raises(BindingError, match="requires 'logs', which 'late_two' does not carry"):
        bus.declare("late_two", ("x",), aliases=("two",))
    assert "late_two" not in bus
    assert "two" not in bus
    bus.declare("late_two", ("logs",), aliases=("two",))
    bus.send("two", logs={})
    assert heard == ["first", "second"]


def test_a_pattern_that_does_not_fit_connects_nothing(bus: Bus) -> None:
    """When one of the points that match cannot be connected, none is, and the pattern is gone."""
    bus.declare("test_x", ("logs",))
    with pytest.raises(BindingError):
        bus.connect("test_*", lambda logs: None)
    bus.declare("test_y", ("logs",))
    assert not bus.subscriptions()


def test_patterns_of_one_sender_are_held_weakly(bus: Bus) -> None:
    """A pattern ends with its sender, and one that cannot be held is refused."""

    class Sender:
        pass

    sender = Sender()
    bus.connect("*", lambda: None, sender=sender)
    del sender
    assert not tuple(bus._patterns)
    with pytest.raises(TypeError, match="can be neither weakly held nor safely compared"):
        bus.connect("zzz*", lambda: None, sender=1.5)
    with pytest.raises(ValueError, match="is held for points yet to come: not weakly"):
        bus.connect("*", lambda: None, weak=True)
    other = Sender()
    own = Bus()
    own.connect("*", lambda: None, sender=other)
    del own, other  # the bus first


@pytest.mark.parametrize("pattern", ["*_end", "te*st", "**"])
def test_bad_patterns(bus: Bus, pattern: str) -> None:
    """A pattern is "*" or a prefix; anything else is refused."""
    with pytest.raises(
        ValueError, match="a pattern is '\\*' or a prefix with one '\\*' at its end"
    ):
        bus.connect(pattern, lambda: None)


def test_special_characters_are_no_patterns(bus: Bus) -> None:
    """Only a final star has a meaning."""
    heard: list[str] = []
    bus.connect("te[st]_*", lambda signal: heard.append(signal))
    bus.send("test_end")
    assert not heard


def cell(source: str, space: dict[str, Any]) -> None:
    """Run a cell as a notebook does, in __main__."""
    exec(source, space)  # noqa: S102


CELL = """
@bus.on({points!r}{more})
def report(signal):
    heard.append(({number}, signal))
"""


@pytest.fixture
def space(bus: Bus) -> dict[str, Any]:
    """Give the names that a notebook's cells share."""
    return {"__name__": "__main__", "bus": bus, "heard": []}


@pytest.fixture(params=["ps1", "ipython"])
def interactive(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have a person type."""
    if request.param == "ps1":
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    else:
        monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)


@pytest.mark.usefixtures("interactive")
@pytest.mark.parametrize("more", ["", ", sender='s'", ", priority='LOW'"])
@pytest.mark.parametrize(
    "points", [("test_end", "test_end"), ("test_*", "test_*"), ("test_begin", "test_end")]
)
def test_a_cell_that_is_run_again_replaces(
    space: dict[str, Any], points: tuple[str, str], more: str
) -> None:
    """In an interactive session a top-level @on function replaces its former self."""
    for number, each in enumerate(points):
        cell(CELL.format(points=each, more=more, number=number), space)
    bus: Bus = space["bus"]
    bus.declare("test_late")
    for point in bus.points:
        bus.send(point, "s")
    assert {number for number, _ in space["heard"]} == {1}
    assert (1, "test_end") in space["heard"]


@pytest.mark.usefixtures("interactive")
def test_other_functions_are_not_replaced(space: dict[str, Any]) -> None:
    """Stacked decorators, lambdas and functions of modules stay."""
    bus: Bus = space["bus"]

    def make() -> Callable[[], None]:
        @bus.on("test_end")
        def report() -> None:
            """Receive."""

        return report

    make()
    make()
    bus.connect("test_*", lambda: None)
    cell(
        "@bus.on('test_begin')\n@bus.on('test_end')\ndef report(signal): heard.append(signal)",
        space,
    )
    cell("bus.on('test_end')(lambda: None)\nbus.on('test_end')(lambda: None)", space)
    assert len(bus.subscriptions()) == 8


def test_a_script_adds(space: dict[str, Any]) -> None:
    """Outside an interactive session nothing is replaced."""
    for number in range(2):
        cell(CELL.format(points="test_end", more="", number=number), space)
    assert len(space["bus"].subscriptions()) == 2
