"""The examples with PyTorch do what they say."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

from lifecycle import bus  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let examples be imported as they are run, and take what they connect off the bus again."""
    monkeypatch.syspath_prepend(EXAMPLES)
    with bus.scope():
        yield
    for name in ("digits", "digits_torch", "detector"):
        sys.modules.pop(name, None)


def load(name: str, *needs: str) -> Any:
    for needed in needs:
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    return importlib.import_module(name)


def test_digits_are_read_right(tmp_path: Path) -> None:
    """Of the test images at least 98% are; log, curves and checkpoints are there."""
    example = load("digits_torch", "sklearn", "matplotlib")
    history, accuracy = example.train(tmp_path, epochs=8)
    assert accuracy >= 0.98
    assert history["val_worst_class"][-1] > 0.8
    assert {path.name for path in tmp_path.iterdir()} == {"log.csv", "curves.png", "checkpoints"}


def test_the_detector_runs(tmp_path: Path) -> None:
    """A short run of the detector's recipe goes through and can be taken up again."""
    example = load("detector", "pycocotools")
    example.train(tmp_path, epochs=1, pictures=64)
    history = example.train(tmp_path, epochs=2, pictures=64)
    assert history.epochs == [0, 1]
    assert {"val_bbox_map_50", "lr_backbone", "lr_head", "grad_norm"} <= set(history.metrics)
    assert (tmp_path / "checkpoints" / "best").exists()


@pytest.mark.slow
def test_the_detector_finds_shapes(tmp_path: Path) -> None:
    """Its mean average precision at half an overlap is at least 0.80."""
    example = load("detector", "pycocotools")
    history = example.train(tmp_path)
    assert max(history["val_bbox_map_50"]) >= 0.80
