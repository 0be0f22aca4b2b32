"""What the tests of PyTorch share; without PyTorch they are skipped."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lifecycle import Loop
from lifecycle.testing import assert_well_formed

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs torch where it is absent."""
    if importlib.util.find_spec("torch") is None:
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="torch is not installed"))


class Trace(list[tuple[str, dict[str, Any]]]):
    """What one loop has sent, as (point, payload)."""

    def receive(self, signal: str, **payload: Any) -> None:
        self.append((signal, payload))

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


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Have torch use one thread, so that sums come in one order and small models are fast."""
    if importlib.util.find_spec("torch") is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
