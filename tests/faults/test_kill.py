"""Runs killed at any instant and resumed end as if they had never been killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lifecycle.checkpoint import store, verify

HERE = Path(__file__).parent

SECONDS = {"small_run.py": 1.2, "digits_run.py": 2.5}
"""About how long each run trains."""


def start(script: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", HERE / script, folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def wait_for_training(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    process.stdout.readline()


def wait_for_a_write(process: subprocess.Popen[str], runs: Path) -> None:
    """Return while a checkpoint is being written, or when the run is over."""
    while process.poll() is None:
        if any(name.startswith(".partial-0") for name in store.names(runs)):
            return


class Killer:
    """Starts a run again and again, kills it, and looks at what it left."""

    def __init__(self, script: str, folder: Path, instants: int) -> None:
        self.script, self.folder, self.instants = script, folder, instants
        self.random = random.Random(instants)  # noqa: S311
        self.runs = 0
        self.kills = self.inside = 0
        self.reference = folder / "reference"
        finish(start(script, self.reference))

    def go(self) -> None:
        while not self.enough:
            self.runs += 1
            folder = self.folder / f"run{self.runs}"
            while not self.finished(folder):
                self.check_latest(folder)
            self.compare(folder)

    @property
    def enough(self) -> bool:
        """Whether it has killed often enough, and a third of that inside of a write."""
        return self.kills >= self.instants and self.inside >= self.instants / 3

    def finished(self, folder: Path) -> bool:
        """Start the run and kill it, unless it ends before; say whether it did."""
        process = start(self.script, folder)
        if self.enough:
            finish(process)
            return True
        eager = 1 if self.kills >= self.instants else 0.6
        in_a_write = self.inside < self.instants / 3 and self.random.random() < eager
        if in_a_write:
            wait_for_training(process)
            time.sleep(self.random.uniform(0, SECONDS[self.script] / 2))
            wait_for_a_write(process, self.checkpoints(folder))
            time.sleep(self.random.uniform(0, 0.002))
        elif self.random.random() < 0.1:
            time.sleep(self.random.uniform(0, 0.5))
        else:
            wait_for_training(process)
            time.sleep(self.random.uniform(0, SECONDS[self.script] / 2))
        process.send_signal(signal.SIGKILL)
        finished = process.wait() == 0
        _, errors = process.communicate()
        assert process.returncode in {0, -signal.SIGKILL}, errors
        self.kills += not finished
        names = store.names(self.checkpoints(folder))
        self.inside += any(name.startswith(".partial-") for name in names)
        return finished

    def checkpoints(self, folder: Path) -> Path:
        return folder / ("run" if self.script == "small_run.py" else "checkpoints")

    def check_latest(self, folder: Path) -> None:
        runs = self.checkpoints(folder)
        if not runs.exists():
            return
        assert [record.problem for record in verify(runs) if not record.intact] == []
        if (runs / store.LATEST).exists():
            store.read(store.locate(runs / store.LATEST))

    def compare(self, folder: Path) -> None:
        with np.load(self.reference / "final.npz") as wanted, np.load(folder / "final.npz") as got:
            assert wanted.files == got.files
            for name in wanted.files:
                assert wanted[name].tobytes() == got[name].tobytes()
        for name in ("final.json", "log.csv"):
            assert (folder / name).read_text() == (self.reference / name).read_text()


def kill(script: str, folder: Path, instants: int) -> None:
    killer = Killer(script, folder, instants)
    killer.go()
    assert killer.enough


def test_a_small_run_killed_ten_times(tmp_path: Path) -> None:
    """Parameters, History and CSV are bit for bit those of a run never killed; 10 instants."""
    kill("small_run.py", tmp_path, 10)


@pytest.mark.slow
def test_a_small_run_killed_a_hundred_times(tmp_path: Path) -> None:
    """Parameters, History and CSV are bit for bit those of a run never killed; 100 instants."""
    kill("small_run.py", tmp_path, 100)


@pytest.mark.slow
def test_the_digits_example_killed_a_hundred_times(tmp_path: Path) -> None:
    """The digits example ends the same, bit for bit, however often it is killed."""
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    kill("digits_run.py", tmp_path, 100)


def test_the_digits_example_killed_ten_times(tmp_path: Path) -> None:
    """The digits example ends the same, bit for bit; 10 instants."""
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    kill("digits_run.py", tmp_path, 10)
