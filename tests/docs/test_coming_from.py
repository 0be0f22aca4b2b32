"""Every row of docs/coming-from.md runs, or says that it belongs to a later version."""

from __future__ import annotations

import importlib.util
import re
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import lifecycle
from eventbus.testing import record
from lifecycle import Loop
from lifecycle.testing import assert_well_formed

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"
NEEDS = {"TensorBoard(": "tensorboard", "Checkpoint(": "safetensors"}


class Row(NamedTuple):
    """One row of a table."""

    theirs: str
    ours: str

    @property
    def code(self) -> list[str]:
        """The statements of the right-hand column; a remark may follow them after a dash."""
        statements = self.ours.partition(" \N{EN DASH} ")[0]
        return [piece.replace("\\|", "|") for piece in re.findall(r"`([^`]+)`", statements)]

    @property
    def later(self) -> bool:
        """Whether it is not there yet."""
        return self.ours.startswith("*later*")

    @property
    def runs(self) -> bool:
        """Whether the right-hand column is code; otherwise it is later, or on another page."""
        return not self.later and not self.ours.startswith("*see*")


def rows() -> list[Row]:
    """Read the tables' rows."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 2 and cells[1] not in {"here", "---"}:
            found.append(Row(*cells))
    return found


class Model:
    """One weight, and what it takes to save it."""

    def __init__(self) -> None:
        self.weight = [0.0]

    def state_dict(self) -> dict[str, Any]:
        return {"weight": list(self.weight)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weight[:] = state["weight"]


class Optimizer(Model):
    """A learning rate and a momentum."""

    lr, momentum = 0.1, 0.9


class Mine:
    """A callback of the reader's own."""

    def on_epoch_end(self, epoch: int, logs: Any) -> None: ...


def make_loop() -> Loop:
    model = Model()

    def train_step(batch: float) -> dict[str, float]:
        error = batch - model.weight[0]
        model.weight[0] += 0.1 * error
        return {"loss": error**2, "score": -(error**2)}

    def test_step(batch: float) -> dict[str, float]:
        return {"loss": (batch - model.weight[0]) ** 2, "score": 0.0}

    objects = {"model": model, "optimizer": Optimizer()}
    return Loop(train_step, test_step, lambda batch: batch, objects=objects)


def names() -> dict[str, Any]:
    """Return what the page says the code may name."""
    given: dict[str, Any] = {name: getattr(lifecycle, name) for name in lifecycle.__all__}
    return given | {
        "loop": make_loop(),
        "data": [1.0, 2.0, 3.0],
        "val_data": [2.0, 2.0],
        "f": lambda epoch: None,
        "f_step": lambda step: None,
        "Mine": Mine,
        "partial": partial,
    }


@pytest.mark.parametrize(
    "row", [row for row in rows() if row.runs], ids=lambda row: row.theirs[:60]
)
def test_row_runs(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the right-hand column says runs, and a whole run with it is well formed."""
    for name, module in NEEDS.items():
        if name in row.ours and importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    monkeypatch.chdir(tmp_path)
    given = names()
    loop = given["loop"]
    assert row.code, "a row has code or is marked *later*"
    with lifecycle.bus.scope(), record(lifecycle.bus, sender=loop) as trace:
        for statement in row.code:
            exec(statement, given)  # noqa: S102
        if "train_end" not in trace.points:
            loop.fit(given["data"], epochs=2, validation_data=given["val_data"])
    assert_well_formed(trace)
    assert "train_end" in trace.points


def test_later_rows_are_few() -> None:
    """What is not there yet is the exception, and each such row says nothing but that."""
    later = [row for row in rows() if row.later]
    assert len(later) * 4 < len(rows())
