"""What the tests of loops share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lifecycle import Logs, Loop
from lifecycle.testing import assert_well_formed


class Trace(list[tuple[str, dict[str, Any]]]):
    """What one loop has sent, as (point, payload); logs are copied as they were then."""

    def receive(self, signal: str, **payload: Any) -> None:
        kept = {k: dict(v) if isinstance(v, Logs) else v for k, v in payload.items()}
        self.append((signal, kept))

    @property
    def points(self) -> list[str]:
        """The names alone."""
        return [point for point, _ in self]

    def of(self, point: str) -> list[dict[str, Any]]:
        """The payloads of one point."""
        return [payload for name, payload in self if name == point]


@pytest.fixture
def trace() -> Iterator[Callable[[Loop], Trace]]:
    """Record what loops send, and check at the end that each trace is well-formed."""
    made: list[Trace] = []

    def record(loop: Loop) -> Trace:
        recorder = Trace()
        loop.connect("*", recorder.receive, priority="LOWEST")
        made.append(recorder)
        return recorder

    yield record
    for each in made:
        assert_well_formed(each)
