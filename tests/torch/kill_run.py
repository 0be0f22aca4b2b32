"""The torch digits example with everything on it, that writes down what it came to.

Started by the kill test as ``kill_run.py FOLDER``; says "ready" once it trains.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import digits
import digits_torch

from lifecycle.checkpoint import Checkpoint

EPOCHS = 3


def main(folder: Path) -> None:
    """Train from wherever the last run was killed."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder.mkdir(exist_ok=True)
    whole = digits.load()
    part = (whole.train[0][:224], whole.train[1][:224])
    loop = digits_torch.make_loop(folder, whole, amp="fp16", accumulate=3)
    loop.detach(loop.subscribers["Checkpoint"])
    loop.attach(Checkpoint(folder / "checkpoints", steps=2, every=1))
    loop.on("train_begin", priority="LOWEST")(lambda: print("ready", flush=True))  # noqa: T201
    history = loop.fit(
        DataLoader(
            digits_torch.Images(part, move=True), batch_size=32, shuffle=True, num_workers=2
        ),
        epochs=EPOCHS,
        validation_data=DataLoader(digits_torch.Images(whole.validation), batch_size=120),
        resume="auto",
    )
    found = dict(loop.objects["model"].state_dict())
    found |= {f"ema.{k}": v for k, v in loop.subscribers["EMA"].average.items()}
    states = loop.objects["optimizer"].state_dict()["state"]
    found |= {f"momentum.{k}": v["momentum_buffer"] for k, v in states.items()}
    result = {
        "history": history.to_dict(),
        "outcome": history.outcome,
        "updates": loop.state.updates_done,
        "scaler": loop.subscribers["TorchStep"].state_dict()["scaler"],
    }
    torch.save(found, folder / "final.pt")
    (folder / "final.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
