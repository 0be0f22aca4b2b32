"""Fixtures for tests of code that sends or subscribes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from eventbus.bus import Bus
    from eventbus.testing import Recorder


@pytest.fixture
def bus() -> Bus:
    """Give a fresh bus, on which points are declared when they are first used."""
    from eventbus.bus import Bus  # noqa: PLC0415 -- keeps pytest's start-up light

    return Bus(open=True)


@pytest.fixture
def recorded(bus: Bus) -> Iterator[Recorder]:
    """Give what the ``bus`` fixture sends, as (point, payload) pairs."""
    from eventbus.testing import record  # noqa: PLC0415

    with record(bus) as recorder:
        yield recorder
