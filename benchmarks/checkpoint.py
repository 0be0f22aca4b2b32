"""Saving and resuming 1 GiB of arrays, beside plain file access and torch.save.

Each round does all of them once, one after the other, so that a slow moment of the disk
meets all alike. Prints the medians and their ratios to the floor.

    python benchmarks/checkpoint.py --mebibytes 1024 --rounds 5
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from lifecycle import Loop
from lifecycle.checkpoint import Checkpoint

Arrays = dict[str, Any]


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def plain_write(path: Path, arrays: Arrays) -> None:
    """Write the bytes of the arrays to a new file and have them on the disk."""
    with path.open("xb", buffering=0) as file:
        for array in arrays.values():
            rest = memoryview(array).cast("B")
            while rest:
                rest = rest[file.write(rest) :]
        os.fsync(file.fileno())


def torch_write(path: Path, arrays: Arrays) -> None:
    """Have torch.save write the same arrays, and have them on the disk."""
    import torch  # noqa: PLC0415 -- may not be there

    with path.open("xb") as file:
        torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, file)
        file.flush()
        os.fsync(file.fileno())


class Stall:
    """Measures how long the loop stands still for each save: the gap between two batches."""

    def __init__(self) -> None:
        self.gaps: list[float] = []
        self.last: float | None = None

    def on_train_batch_begin(self) -> None:
        """Note the time since the last batch."""
        now = time.perf_counter()
        if self.last is not None:
            self.gaps.append(now - self.last)

    def on_train_batch_end(self) -> None:
        """Note when the batch's own work was over."""
        self.last = time.perf_counter()


def save(folder: Path, arrays: Arrays, *, background: bool, saves: int) -> list[float]:
    """Return how long the loop stood still for each of several saves."""

    def step(number: int) -> None:
        """Last until the save before is done, as steps between two saves usually do."""
        latest = folder / "latest"
        while number and not (latest.exists() and latest.read_text().startswith(f"{number:06d}")):
            time.sleep(0.05)
        if background:  # for memory to be got, before the first; for old files to be removed
            time.sleep(0.5 if number else 3)

    loop = Loop(step, objects={"model": arrays})
    stall = Stall()
    loop.attach(stall, priority="HIGHEST")
    loop.attach(Checkpoint(folder, steps=1, keep=1, background=background))
    loop.fit(range(saves + 1))
    return stall.gaps


def resume(folder: Path, arrays: Arrays) -> None:
    loop = Loop(lambda _: None, objects={"model": arrays})
    loop.attach(Checkpoint(folder, background=False))  # no memory for saves to be got
    loop.fit([], resume=folder)


def round_of(folder: Path, arrays: Arrays, times: dict[str, list[float]]) -> None:
    def note(name: str, seconds: float) -> None:
        times.setdefault(name, []).append(seconds)

    note("plain write + fsync", timed(lambda: plain_write(folder / "plain", arrays)))
    gaps = save(folder / "run", arrays, background=False, saves=1)
    note("save, synchronous", gaps[0])
    shutil.rmtree(folder / "run")
    if find_spec("torch"):
        note("torch.save + fsync", timed(lambda: torch_write(folder / "torch", arrays)))
    first, *later = save(folder / "run", arrays, background=True, saves=3)
    note("stall of a background save, first", first)
    times.setdefault("stall of a background save, later", []).extend(later)
    other = {name: np.ones_like(array) for name, array in arrays.items()}
    note("read the bytes", timed((folder / "plain").read_bytes))
    note("resume", timed(lambda: resume(folder / "run", other)))
    assert all(np.array_equal(array, other[name]) for name, array in arrays.items())
    for each in folder.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", help="where to write; the system's temporary folder if not")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    count = 32
    size = options.mebibytes * (1 << 20) // count // 4
    arrays = {f"weight{i}": random.random(size, np.float32) for i in range(count)}
    times: dict[str, list[float]] = {}
    gc.disable()
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        for _ in range(options.rounds):
            round_of(Path(folder), arrays, times)
    median = {name: statistics.median(each) for name, each in times.items()}
    print(f"{options.mebibytes} MiB in {count} arrays, median of {options.rounds} rounds\n")
    for name, seconds in median.items():
        print(f"{name:36} {seconds:7.3f} s   (best {min(times[name]):.3f})")
    rate = median["plain write + fsync"] / median["save, synchronous"]
    print(f"\nsynchronous save: {rate:.0%} of the rate of a plain write (target: at least 80%)")
    for which in ("first", "later"):
        stall = median[f"stall of a background save, {which}"] / median["save, synchronous"]
        print(f"stall, {which}: {stall:.1%} of a synchronous save (target: at most 15%)")
    print(f"resume: {median['resume'] / median['read the bytes']:.2f}x of reading (target: 1.2x)")


if __name__ == "__main__":
    main()
