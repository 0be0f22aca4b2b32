"""The torch example killed at any instant and resumed ends as if it had never been killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
for needed in ("sklearn", "matplotlib", "safetensors"):
    pytest.importorskip(needed, reason=f"{needed} is not installed")

SCRIPT = Path(__file__).with_name("kill_run.py")


def start(folder: Path) -> subprocess.Popen[str]:
    """Start the run, and return once it trains or has ended."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", SCRIPT, folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors


def kill(folder: Path, instants: int) -> None:
    """Kill the run at so many instants, resume it each time, and compare it with a whole one."""
    numbers = random.Random(instants)  # noqa: S311 -- instants, no secrets
    began = time.monotonic()
    process = start(folder / "whole")
    trained = time.monotonic()
    finish(process)
    seconds = time.monotonic() - trained
    assert trained > began
    kills = runs = 0
    while kills < instants:
        runs += 1
        broken = folder / f"run{runs}"
        while True:
            process = start(broken)
            if kills < instants:
                time.sleep(numbers.uniform(0, seconds / 2))
                process.send_signal(signal.SIGKILL)
            _, errors = process.communicate(timeout=300)
            assert process.returncode in {0, -signal.SIGKILL}, errors
            if process.returncode == 0:
                break
            kills += 1
        compare(folder / "whole", broken)


def compare(whole: Path, broken: Path) -> None:
    wanted, got = (torch.load(each / "final.pt", weights_only=True) for each in (whole, broken))
    assert wanted.keys() == got.keys()
    assert [name for name, value in wanted.items() if not torch.equal(value, got[name])] == []
    for name in ("final.json", "log.csv"):
        assert (broken / name).read_text() == (whole / name).read_text()


def test_killed_three_times(tmp_path: Path) -> None:
    """Parameters, momentum, EMA, scaler, schedule, History and CSV are equal; 3 instants."""
    kill(tmp_path, 3)


@pytest.mark.slow
def test_killed_thirty_times(tmp_path: Path) -> None:
    """Parameters, momentum, EMA, scaler, schedule, History and CSV are equal; 30 instants."""
    kill(tmp_path, 30)
