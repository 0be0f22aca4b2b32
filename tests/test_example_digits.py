"""The digits example: real data, a real model, every kind of subscriber."""

from __future__ import annotations

import csv
import struct
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn", reason='the example needs pip install "epochbus[examples]"')
pytest.importorskip("safetensors")
pytest.importorskip("matplotlib")

EXAMPLE = Path(__file__).parents[1] / "examples" / "digits.py"


def run(*arguments: str | Path) -> str:
    """Run Python and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(output: Path) -> list[dict[str, str]]:
    with (output / "log.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Run the whole example once; return its output folder and what it printed."""
    output = tmp_path_factory.mktemp("digits")
    command = ("-m", "lifecycle", "run", "--on", "timer", EXAMPLE, "--output", output)
    return output, run(*command)


def test_it_learns(trained: tuple[Path, str]) -> None:
    """At least 97 of 100 test images are recognised."""
    last = next(line for line in trained[1].splitlines() if line.startswith("test accuracy"))
    assert float(last.split()[2]) >= 0.97


def test_every_class_is_reported(trained: tuple[Path, str]) -> None:
    """The report has each class's accuracy, taken with the best parameters."""
    report = trained[1].partition("validation accuracy by class\n")[2].splitlines()[:10]
    assert [int(line.split()[0]) for line in report] == list(range(10))
    lowest = min(float(line.split()[1].rstrip("%")) for line in report) / 100
    best = min(rows(trained[0]), key=lambda row: float(row["val_loss"]))
    assert float(best["val_worst_class"]) == pytest.approx(lowest, abs=0.0006)


def test_log_has_every_epoch(trained: tuple[Path, str]) -> None:
    """The CSV log has one row per epoch, and in it what other subscribers added to the logs."""
    log = rows(trained[0])
    assert [int(row["epoch"]) for row in log] == list(range(len(log)))
    assert set(log[0]) > {"epoch", "loss", "accuracy", "val_loss", "val_accuracy"}
    assert "val_worst_class" in log[0]  # from the report
    assert "step_time" in log[0]  # from --on timer
    assert float(log[-1]["loss"]) < 0.1 < float(log[0]["loss"])


def test_curves_are_a_picture(trained: tuple[Path, str]) -> None:
    """The learning curves are a PNG file of a sensible size."""
    data = (trained[0] / "curves.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    assert width > height > 200


def test_checkpoints_are_intact(trained: tuple[Path, str]) -> None:
    """The best checkpoint and the latest are there, whole."""
    table = run("-m", "lifecycle", "checkpoints", "verify", trained[0] / "checkpoints")
    assert "best" in table
    assert "latest" in table
    assert "no:" not in table


def test_same_seed_same_run(tmp_path: Path) -> None:
    """Two runs with one seed write the same log to the last digit; another seed does not."""
    logs = []
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        run(EXAMPLE, "--output", tmp_path / name, "--epochs", "2", "--seed", seed)
        logs.append((tmp_path / name / "log.csv").read_bytes())
    assert logs[0] == logs[1] != logs[2]


def test_resumed_run_is_the_same_run(tmp_path: Path) -> None:
    """A run that ended after two epochs and goes on to four logs what one of four does."""
    run(EXAMPLE, "--output", tmp_path / "whole", "--epochs", "4")
    for epochs in ("2", "4"):
        run(EXAMPLE, "--output", tmp_path / "parts", "--epochs", epochs, "--resume")
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
