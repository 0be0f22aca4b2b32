"""The names that editors complete."""

from __future__ import annotations

from typing import get_args

from lifecycle.names import PointName
from lifecycle.points import POINTS


def test_the_literal_names_are_those_of_the_table_and_their_aliases() -> None:
    """A point added to the table must be added to the type, and the other way round."""
    table = {name for point in POINTS for name in (point.name, *point.aliases)}
    assert set(get_args(PointName)) == table
