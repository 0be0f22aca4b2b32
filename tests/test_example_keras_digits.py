"""The Keras example: subscribers written for our own loop, in Keras's fit."""

from __future__ import annotations

import csv
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDED = ("keras", "jax", "sklearn", "matplotlib", "safetensors")

if any(importlib.util.find_spec(module) is None for module in NEEDED):
    pytest.skip(f"needs {', '.join(NEEDED)}", allow_module_level=True)


def test_it_trains_with_the_subscribers_of_the_digits_example(tmp_path: Path) -> None:
    """One command leaves a log with the report's metric, curves and checkpoints, and learns."""
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "examples" / "keras_digits.py")),
            *("--epochs", "4", "--output", str(tmp_path / "run")),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "validation accuracy by class" in done.stdout
    rows = list(csv.DictReader((tmp_path / "run" / "log.csv").read_text().splitlines()))
    assert len(rows) == 4
    assert float(rows[-1]["val_accuracy"]) > 0.9
    assert 0 < float(rows[-1]["val_worst_class"]) <= float(rows[-1]["val_accuracy"])
    assert (tmp_path / "run" / "curves.png").stat().st_size > 1000
    assert any((tmp_path / "run" / "checkpoints").iterdir())
