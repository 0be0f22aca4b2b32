"""The digits example, that writes down what it came to.

Started by the kill test as ``digits_run.py FOLDER``; says "ready" once it trains.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from lifecycle import Loop, bus

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import digits


def main(folder: Path) -> None:
    """Train from wherever the last run was killed."""
    last: list[Loop] = []

    @bus.on("train_begin", priority="LOWEST")
    def ready(loop: Loop) -> None:
        last.append(loop)
        print("ready", flush=True)  # noqa: T201

    history, accuracy = digits.train(folder, epochs=25, resume=True)
    objects = last[0].objects
    np.savez(folder / "final.npz", **objects["model"].arrays)
    result = {"history": history.to_dict(), "outcome": history.outcome, "accuracy": accuracy}
    (folder / "final.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
