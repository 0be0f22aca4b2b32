"""mmengine's own hooks in its Runner and on our loop; prints what each did, as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

warnings.simplefilter("ignore")
sys.path.insert(0, str(Path(__file__).parent))

from mm import Hook, Model, loader, runner
from mmengine.hooks import (
    CheckpointHook,
    DistSamplerSeedHook,
    EarlyStoppingHook,
    EMAHook,
    EmptyCacheHook,
    IterTimerHook,
    LoggerHook,
    ParamSchedulerHook,
    ProfilerHook,
    RuntimeInfoHook,
    SyncBuffersHook,
)
from mmengine.optim import OptimWrapper, StepLR

from lifecycle import Loop
from lifecycle.bridges.openmmlab import use

EPOCHS = 3


class Recorder(Hook):  # type: ignore[misc]
    """Notes each stage with the counters at it."""

    priority = "LOWEST"

    def __init__(self) -> None:
        self.trace: list[Any] = []
        self.weights: list[float] = []

    def _note(self, stage: str, runner: Any, *more: Any) -> None:
        self.trace.append([stage, runner.epoch, runner.iter, *more])
        if stage in ("before_val_epoch", "after_train_epoch", "after_run"):
            self.weights.append(float(runner.model.weight))


def _stage(stage: str) -> Callable[..., None]:
    if stage.endswith("_iter"):

        def method(
            self: Any, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
        ) -> None:
            loss = float(outputs["loss"]) if stage == "after_train_iter" else None
            self._note(stage, runner, batch_idx, len(data_batch["x"]), loss)

    elif stage.endswith("_epoch") and stage.startswith("after_v"):

        def method(self: Any, runner: Any, metrics: Any = None) -> None:  # type: ignore[misc]
            self._note(stage, runner, metrics)

    else:

        def method(self: Any, runner: Any) -> None:  # type: ignore[misc]
            self._note(stage, runner)

    return method


for _name in Hook.stages:
    if "checkpoint" not in _name:
        setattr(Recorder, _name, _stage(_name))


def settings() -> dict[str, Callable[[], tuple[list[Any], dict[str, Any]]]]:
    """Return, by name, what makes the hooks of a run and the options of its LoggerHook."""
    return {
        "none": lambda: ([], {}),
        "ema": lambda: ([EMAHook(momentum=0.5)], {}),
        "early": lambda: ([EarlyStoppingHook("loss", rule="less", patience=1, min_delta=100)], {}),
        "cache": lambda: ([EmptyCacheHook(after_iter=True)], {}),
        "buffers": lambda: ([SyncBuffersHook()], {}),
        "profiler": lambda: (
            [ProfilerHook(by_epoch=False, profile_times=2, activity_with_cuda=False)],
            {},
        ),
    }


def defaults() -> dict[str, Any]:
    return {
        "runtime_info": RuntimeInfoHook(),
        "timer": IterTimerHook(),
        "sampler_seed": DistSamplerSeedHook(),
        "logger": LoggerHook(interval=2),
        "param_scheduler": ParamSchedulerHook(),
        "checkpoint": CheckpointHook(interval=1, max_keep_ckpts=2, save_best="loss", rule="less"),
    }


def theirs(work_dir: str, hooks: list[Any]) -> tuple[Any, Any]:
    made = runner(
        work_dir,
        hooks,
        {"by_epoch": True, "max_epochs": EPOCHS},
        default_hooks=defaults(),
        param_scheduler={"type": "StepLR", "step_size": 1, "gamma": 0.5},
    )
    made.train()
    return made, made.model


def ours(work_dir: str, hooks: list[Any]) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = Model()
    wrapper = OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.1))

    def test_step(batch: Any) -> dict[str, Any]:
        return {"loss": model.val_step(batch)[0]}

    loop = Loop(
        lambda batch: model.train_step(batch, wrapper),
        test_step,
        objects={"model": model, "optimizer": wrapper},
    )
    use(
        loop,
        [*defaults().values(), *hooks],
        work_dir=work_dir,
        param_schedulers=[StepLR(wrapper, step_size=1, gamma=0.5, end=EPOCHS)],
    )
    loop.fit(loader(4), epochs=EPOCHS, validation_data=loader(5))
    from lifecycle.bridges.openmmlab import conductor

    return conductor(loop).runner, model


def outcome(work_dir: str, run: Any, model: Any, recorder: Recorder) -> dict[str, Any]:
    """Say what a run has left."""
    files = {}
    for file in sorted(Path(work_dir).glob("*.pth")):
        saved = torch.load(file, weights_only=False)
        files[file.name] = {
            "keys": sorted(saved),
            "meta": [saved["meta"]["epoch"], saved["meta"]["iter"]],
            "weight": float(saved["state_dict"]["weight"]),
            "lr": saved["optimizer"]["param_groups"][0]["lr"] if "optimizer" in saved else None,
        }
    scalars = run.message_hub.log_scalars
    lines = [
        {key: line[key] for key in ("lr", "loss", "epoch", "iter", "step") if key in line}
        for file in sorted(Path(work_dir).rglob("vis_data/*.json"))
        if file.name != "config.json" and not file.name.startswith("scalars")
        for line in map(json.loads, file.read_text().splitlines())
    ]
    return {
        "trace": recorder.trace,
        "weights": recorder.weights,
        "final": float(model.weight),
        "files": files,
        "info": {
            key: run.message_hub.get_info(key)
            for key in ("epoch", "iter", "max_epochs", "max_iters", "best_score", "keep_ckpt_ids")
        },
        "scalars": {
            key: [float(x) for x in buffer.data[0]]
            for key, buffer in scalars.items()
            if "time" not in key
        },
        "timed": sorted(key for key in scalars if "time" in key),
        "lines": lines,
    }


def main() -> None:
    found: dict[str, list[Any]] = {}
    for name, make in settings().items():
        found[name] = []
        for run in (theirs, ours):
            with tempfile.TemporaryDirectory() as work_dir:
                recorder = Recorder()
                hooks, _ = make()
                made, model = run(work_dir, [*hooks, recorder])
                found[name].append(outcome(work_dir, made, model, recorder))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
