"""All scenarios on our own loop, written by hand too, by epochs and by steps; prints JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from subscribers import SCENARIOS, Ten, observed, with_made

from lifecycle import Loop

SAMPLES = np.arange(10, dtype=np.float32)
EPOCHS = 3


class Model:
    """One weight that is drawn to the mean of each batch."""

    def __init__(self) -> None:
        self.weight = np.zeros((), np.float32)

    def loss(self, x: Any) -> Any:
        return ((self.weight - x) ** 2).mean()

    def state_dict(self) -> dict[str, Any]:
        return {"weight": self.weight}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.weight = np.array(state["weight"], np.float32)


class Optimizer:
    def __init__(self) -> None:
        self.lr = 0.1


def batches(samples: Any, size: int) -> list[Any]:
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def parts(ten: Ten) -> tuple[Loop, Any, Any, Model]:
    model, optimizer = Model(), Optimizer()

    def train_step(x: Any) -> dict[str, Any]:
        loss = model.loss(x)
        model.weight = model.weight - np.float32(optimizer.lr) * 2 * (model.weight - x).mean()
        return {"loss": loss, "lr": optimizer.lr}

    def test_step(x: Any) -> dict[str, Any]:
        return {"loss": model.loss(x)}

    objects = {"model": model, "optimizer": optimizer}
    return Loop(train_step, test_step, objects=objects, bus=ten.bus), train_step, test_step, model


def fit(ten: Ten) -> Any:
    loop, _, _, model = parts(ten)
    made: Any = loop, lambda: float(model.weight), []
    with with_made(made):
        loop.fit(batches(SAMPLES, 4), epochs=EPOCHS, validation_data=batches(SAMPLES, 5))
    return made


def by_hand(ten: Ten) -> Any:
    loop, train_step, test_step, model = parts(ten)
    made: Any = loop, lambda: float(model.weight), []
    with with_made(made), loop:
        for _ in loop.epochs(EPOCHS):
            for batch in loop.batches(batches(SAMPLES, 4)):
                loop.log(**train_step(batch))
            if not loop.state.stopping:
                for batch in loop.batches(batches(SAMPLES, 5), stage="test"):
                    loop.log(**test_step(batch))
    return made


def by_steps(ten: Ten) -> Any:
    loop, _, _, model = parts(ten)
    made: Any = loop, lambda: float(model.weight), []
    data = batches(np.concatenate([SAMPLES] * 3), 4)[:6]
    with with_made(made):
        loop.fit(data, epochs=1, validation_data=batches(SAMPLES, 5), validation_every_steps=3)
    return made


if __name__ == "__main__":
    senders = {"own": fit, "by hand": by_hand, "own by steps": by_steps}
    print(
        json.dumps(
            {name: {s: observed(s, run) for s in SCENARIOS} for name, run in senders.items()}
        )
    )
