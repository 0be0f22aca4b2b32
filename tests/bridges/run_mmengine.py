"""All scenarios in mmengine's Runner, by epochs and by steps, with a hook of its own."""

from __future__ import annotations

import json
import tempfile
import warnings
from typing import Any

warnings.simplefilter("ignore")

from mm import SAMPLES, Hook, loader, runner
from subscribers import SCENARIOS, Ten, observed, with_made

from lifecycle.bridges.mmengine import MMEngineBridge

EPOCHS = 3


class Native(Hook):  # type: ignore[misc]
    """Notes what mmengine tells its own hooks."""

    priority = "LOWEST"

    def __init__(self) -> None:
        self.notes: list[Any] = []


def _note(stage: str) -> Any:
    def method(self: Native, runner: Any, batch_idx: Any = None, **more: Any) -> None:
        self.notes.append([stage, batch_idx, dict(more.get("metrics") or {})])

    return method


for _stage in Hook.stages:
    if "checkpoint" not in _stage:
        setattr(Native, _stage, _note(_stage))


def train(ten: Ten, config: dict[str, Any], **more: Any) -> Any:
    bridge, native = MMEngineBridge(ten.bus), Native()
    with tempfile.TemporaryDirectory() as folder:
        made_runner = runner(folder, [bridge, native], config, **more)
        made = bridge.loop, lambda: float(made_runner.model.weight), native.notes
        with with_made(made):
            made_runner.train()
    return made


def by_epochs(ten: Ten) -> Any:
    return train(ten, {"by_epoch": True, "max_epochs": EPOCHS})


def by_steps(ten: Ten) -> Any:
    config = {"by_epoch": False, "max_iters": 6, "val_interval": 3}
    return train(ten, config, train_dataloader=loader(4, SAMPLES * 3))


if __name__ == "__main__":
    senders = {"mmengine by epochs": by_epochs, "mmengine by steps": by_steps}
    print(
        json.dumps(
            {name: {s: observed(s, run) for s in SCENARIOS} for name, run in senders.items()}
        )
    )
