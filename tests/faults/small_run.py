"""A small run that shuffles, saves in the middle of epochs, and writes down what it came to.

Started by the kill test as ``small_run.py FOLDER``; says "ready" once it trains.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lifecycle import EMA, Checkpoint, CSVLogger, EarlyStopping, Loop, ReduceOnPlateau


class Shuffled:
    """Rows in an order drawn from the global generator each time they are gone through."""

    def __init__(self, rows: int, size: int) -> None:
        self.values = np.random.default_rng(0).normal(size=(rows, 8))
        self.size = size

    def __len__(self) -> int:
        return len(self.values) // self.size

    def __iter__(self) -> Iterator[Any]:
        order = np.random.permutation(len(self.values))  # noqa: NPY002 -- as loaders do
        for start in range(0, len(order), self.size):
            yield self.values[order[start : start + self.size]]


def make_loop(folder: Path) -> Loop:
    """Return a loop over a linear model that is trained with noise and momentum."""
    weights = {"w": np.zeros(8), "ballast": np.zeros(1 << 19)}
    momentum = np.zeros(8)
    options = {"lr": 0.1}

    def step(batch: Any) -> dict[str, Any]:
        time.sleep(0.001)
        noise = random.gauss(0, 0.1)
        error = batch @ weights["w"] - batch.sum(axis=1) + noise
        momentum[:] = 0.9 * momentum + batch.T @ error / len(batch)
        weights["w"] -= options["lr"] * momentum
        weights["ballast"] += error[0]
        return {"loss": float((error**2).mean())}

    objects = {"weights": weights, "momentum": momentum, "options": options}
    loop = Loop(step, lambda batch: {"loss": float(batch.sum() ** 2)}, objects=objects)
    loop.attach(
        CSVLogger(folder / "log.csv"),
        EMA("weights", decay=0.9),
        ReduceOnPlateau(options, "lr", monitor="loss", patience=1),
        EarlyStopping("loss", patience=50, restore_best=True),
        Checkpoint(folder / "run", steps=7, every=1, save_best="loss", keep=2),
    )
    return loop


def main(folder: Path) -> None:
    """Train from wherever the last run was killed."""
    folder.mkdir(parents=True, exist_ok=True)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 -- as above
    loop = make_loop(folder)
    loop.on("train_begin", priority="LOWEST")(lambda: print("ready", flush=True))  # noqa: T201
    data = Shuffled(240, 12)
    history = loop.fit(data, epochs=12, validation_data=Shuffled(24, 12), resume="auto")
    np.savez(folder / "final.npz", loop.objects["momentum"], *loop.objects["weights"].values())
    result = {"history": history.to_dict(), "epochs": history.epochs, "outcome": history.outcome}
    (folder / "final.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
