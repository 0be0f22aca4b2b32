"""What a bridge costs: k subscribers through it against k callbacks of the framework's own.

    python benchmarks/bridges.py            # Keras on JAX and on torch, and mmengine

Each framework runs in a process of its own. Times are the best of interleaved runs.
"""

# Frameworks are imported in the process that measures them.
# ruff: noqa: PLC0415, ARG002, ARG005, C901

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from timing import table, versions

COUNTS = (0, 1, 10)
ROUNDS = 5
BATCHES = 100


def best(cases: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Return the seconds of each case, the best of interleaved rounds."""
    found = dict.fromkeys(cases, float("inf"))
    for case in cases.values():
        case()
    for _ in range(ROUNDS):
        for name, case in cases.items():
            start = time.perf_counter()
            case()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def in_keras() -> dict[str, float]:
    """Time fits over some batches of a small model."""
    import keras
    import numpy as np

    from eventbus import Bus
    from lifecycle.bridges.keras import KerasBridge
    from lifecycle.points import declare

    inputs = np.random.default_rng(0).normal(size=(BATCHES * 32, 32)).astype("float32")
    model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    class Native(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            pass

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            pass

    def fit(callbacks: list[Any]) -> None:
        model.fit(inputs, inputs[:, :1], batch_size=32, verbose=0, callbacks=callbacks)

    def bridged(count: int) -> Callable[[], None]:
        bus = declare(Bus(sender="loop"))
        for _ in range(count):
            bus.connect("train_batch_end", lambda batch, logs: None)
            bus.connect("epoch_end", lambda epoch, logs: None)
        bridge = KerasBridge(bus)
        return lambda: fit([bridge])

    cases: dict[str, Callable[[], None]] = {}
    for count in COUNTS:
        cases[f"{count} native"] = partial(fit, [Native() for _ in range(count)])
        cases[f"{count} bridged"] = bridged(count)
    return best(cases)


def in_mmengine() -> dict[str, float]:
    """Time runs over some batches of a small model."""
    warnings.simplefilter("ignore")
    import logging

    import torch
    from mmengine.hooks import Hook
    from mmengine.model import BaseModel
    from mmengine.runner import Runner
    from torch.utils.data import DataLoader

    from eventbus import Bus
    from lifecycle.bridges.mmengine import MMEngineBridge
    from lifecycle.points import declare

    class Model(BaseModel):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 1))

        def forward(self, inputs: torch.Tensor, mode: str) -> Any:
            return {"loss": ((self.layers(inputs) - inputs[:, :1]) ** 2).mean()}

    class Native(Hook):  # type: ignore[misc]
        def after_train_iter(
            self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
        ) -> None:
            pass

        def after_train_epoch(self, runner: Any) -> None:
            pass

    data: Any = torch.randn(BATCHES * 32, 32)
    folder = tempfile.mkdtemp()
    runs = iter(range(10**6))

    def train(hooks: list[Any]) -> None:
        logging.disable(logging.ERROR)
        runner = Runner(
            model=Model(),
            work_dir=folder,
            train_dataloader=DataLoader(data, 32, collate_fn=lambda s: {"inputs": torch.stack(s)}),
            train_cfg={"by_epoch": True, "max_epochs": 1},
            optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.01}},
            default_hooks=dict.fromkeys(
                ("runtime_info", "timer", "sampler_seed", "logger", "param_scheduler", "checkpoint")
            ),
            custom_hooks=hooks,
            experiment_name=f"run{next(runs)}",
        )
        start = time.perf_counter()
        runner.train()
        spent.append(time.perf_counter() - start)

    def bridged(count: int) -> Callable[[], None]:
        bus = declare(Bus(sender="loop"))
        for _ in range(count):
            bus.connect("train_batch_end", lambda batch, logs: None)
            bus.connect("epoch_end", lambda epoch, logs: None)
        return lambda: train([MMEngineBridge(bus)])

    spent: list[float] = []
    cases: dict[str, Callable[[], None]] = {}
    for count in COUNTS:
        cases[f"{count} native"] = partial(train, [Native() for _ in range(count)])
        cases[f"{count} bridged"] = bridged(count)
    found = dict.fromkeys(cases, float("inf"))
    for _ in range(ROUNDS + 1):
        for name, case in cases.items():
            case()
            found[name] = min(found[name], spent[-1])
    return found


def main() -> None:
    """Run each framework in a process, and print the ratios."""
    if len(sys.argv) > 1:
        print(json.dumps({"keras": in_keras, "mmengine": in_mmengine}[sys.argv[1]]()))
        return
    rows = []
    for name, backend in (("keras", "jax"), ("keras", "torch"), ("mmengine", "")):
        done = subprocess.run(
            [sys.executable, __file__, name],
            env={**os.environ, "KERAS_BACKEND": backend or "jax"},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        times = json.loads(done.stdout.splitlines()[-1])
        for count in COUNTS:
            native, bridged = times[f"{count} native"], times[f"{count} bridged"]
            rows.append(
                [
                    f"{name} {backend}".strip(),
                    str(count),
                    f"{native / BATCHES * 1e6:.0f}",
                    f"{bridged / BATCHES * 1e6:.0f}",
                    f"{bridged / native:.2f}",
                ]
            )
    print(versions("keras", "jax", "torch", "mmengine"))
    print(table(["sender", "k", "native, us a batch", "bridged, us a batch", "ratio"], rows))


if __name__ == "__main__":
    main()
