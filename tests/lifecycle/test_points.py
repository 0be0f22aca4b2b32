"""The table of points, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventbus import Bus
from lifecycle import POINTS, Loop, Point, bus
from lifecycle.points import declare, page

DOCS = Path(__file__).parents[2] / "docs" / "points.md"


def test_the_default_bus_has_every_point() -> None:
    """The default bus carries exactly the points of the table."""
    assert bus.points[: len(POINTS)] == tuple(point.name for point in POINTS)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_a_point_is_declared_with_its_payload(point: Point) -> None:
    """Each declared signal has the payload, the index and the meaning of the table."""
    signal = declare(Bus(sender="loop")).signal(point.name)
    assert signal.payload == point.payload
    assert signal.index == point.index
    assert signal.__doc__ == point.meaning
    assert point.index is None or point.index in point.payload


@pytest.mark.parametrize("alias", ["batch_begin", "on_batch_begin", "on_train_batch_begin"])
def test_keras_names_mean_the_train_batch(alias: str) -> None:
    """Keras's names of the batch points, with ``on_`` or without, are understood."""
    assert bus.signal(alias).name == "train_batch_begin"


@pytest.mark.parametrize(
    ("point", "first"),
    [
        ("train_begin", ("logs",)),
        ("epoch_end", ("epoch", "logs")),
        ("train_batch_end", ("batch", "logs")),
        ("test_batch_begin", ("batch", "logs")),
        ("predict_batch_end", ("batch", "logs")),
    ],
)
def test_payloads_begin_as_keras_passes_them(point: str, first: tuple[str, ...]) -> None:
    """The payload begins with what Keras passes by position."""
    assert (bus.signal(point).payload or ())[: len(first)] == first


def test_the_documentation_is_up_to_date() -> None:
    """docs/points.md holds the table rendered from the code."""
    assert DOCS.read_text() == page()


def test_a_bus_of_ones_own_gets_the_points() -> None:
    """A loop declares its points on a bus that lacks them, once."""
    own = Bus(sender="loop")
    Loop(bus=own)
    Loop(bus=own)
    assert "epoch_end" in own
