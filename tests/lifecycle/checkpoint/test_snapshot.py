"""Copies of arrays: theirs alone, and in memory that is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lifecycle import Checkpoint, Loop
from lifecycle.checkpoint import arrays, list_checkpoints, snapshot, store
from lifecycle.checkpoint.snapshot import Snapshots


@pytest.fixture(params=[False, True], ids=["one thread", "several threads"])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Have small arrays be copied by several threads, or by one."""
    if request.param:
        monkeypatch.setattr(snapshot, "ALONE", 1)
        monkeypatch.setattr(snapshot, "PIECE", 100)
    return bool(request.param)


def leaves(*values: Any) -> dict[str, dict[str, arrays.Leaf]]:
    return {"model": {f"w{i}": arrays.leaf(value) for i, value in enumerate(values)}}


@pytest.mark.usefixtures("threads")
def test_a_copy_keeps_what_was_there() -> None:
    """What happens to the arrays afterwards does not reach the copies."""
    values = [np.arange(1000.0), np.arange(7, dtype="u1"), np.zeros(0)]
    snapshots = Snapshots()
    snapshots.prepare(leaves(*values))
    before = [value.tobytes() for value in values]
    taken = snapshots.take(leaves(*values))
    for value in values:
        value[:] = 9
    assert [leaf.data.tobytes() for leaf in taken["model"].values()] == before


@pytest.mark.usefixtures("threads")
def test_memory_is_used_again() -> None:
    """The next copies lie where the last ones were, as far as sizes are the same."""
    snapshots = Snapshots()
    first = snapshots.take(leaves(np.zeros(100), np.zeros(5)))["model"]
    second = snapshots.take(leaves(np.ones(100), np.ones(6)))["model"]
    assert np.shares_memory(first["w0"].data, second["w0"].data)
    assert not np.shares_memory(first["w1"].data, second["w1"].data)
    snapshots.release()
    third = snapshots.take(leaves(np.ones(100)))["model"]
    assert not np.shares_memory(second["w0"].data, third["w0"].data)


def test_what_is_a_copy_already_is_not_copied() -> None:
    """Strided arrays were copied when they became bytes."""
    made = leaves(np.arange(10.0)[::2])
    taken = Snapshots().take(made)
    assert taken["model"]["w0"].data is made["model"]["w0"].data


@pytest.mark.usefixtures("threads")
def test_a_run_with_snapshots(tmp_path: Path) -> None:
    """Each checkpoint holds the values of its own time."""
    weights = np.zeros(500)

    def step(batch: int) -> None:
        weights[:] += batch

    loop = Loop(step, objects={"weights": weights})
    loop.attach(Checkpoint(tmp_path, steps=1, keep=None))
    loop.fit([1] * 5)
    found = [store.read(r.path)[1]["objects"]["weights"][0] for r in list_checkpoints(tmp_path)]
    assert found == [1, 2, 3, 4, 5, 5]
