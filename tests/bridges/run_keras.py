"""All scenarios in Keras's fit, with a Keras callback of Keras's own; prints JSON."""

from __future__ import annotations

import json
import warnings
from typing import Any

warnings.simplefilter("ignore")

import keras
import numpy as np
from subscribers import SCENARIOS, Ten, observed, with_made

from lifecycle.bridges.keras import KerasBridge

SAMPLES = np.arange(10, dtype="float32")[:, None]
EPOCHS = 3


class Weight(keras.layers.Layer):  # type: ignore[misc]
    """One weight, whatever the input."""

    def build(self, _: Any) -> None:
        self.weight = self.add_weight(shape=(), initializer="zeros", name="weight")

    def call(self, x: Any) -> Any:
        return keras.ops.zeros_like(x) + self.weight


class Native(keras.callbacks.Callback):  # type: ignore[misc]
    """Notes what Keras tells its own callbacks."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[Any] = []


def _note(point: str) -> Any:
    indexed = "batch" in point or "epoch" in point

    def method(self: Native, *arguments: Any, **keywords: Any) -> None:
        logs = keywords.get("logs", arguments[-1] if len(arguments) > indexed else None) or {}
        kept = dict(logs) if point in ("epoch_end", "test_end") else {}
        self.notes.append([point, arguments[0] if indexed else None, kept])

    return method


for _point in (
    *("train_begin", "epoch_begin", "train_batch_begin", "train_batch_end", "test_begin"),
    *("test_batch_begin", "test_batch_end", "test_end", "epoch_end", "train_end"),
):
    setattr(Native, f"on_{_point}", _note(_point))


def compiled() -> Any:
    model = keras.Sequential([keras.Input((1,)), Weight()])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def fit(ten: Ten) -> Any:
    model, bridge, native = compiled(), KerasBridge(ten.bus), Native()
    made = bridge.loop, lambda: float(model.get_weights()[0]), native.notes
    with with_made(made):
        model.fit(
            SAMPLES,
            SAMPLES,
            batch_size=4,
            epochs=EPOCHS,
            shuffle=False,
            verbose=0,
            validation_data=(SAMPLES, SAMPLES),
            validation_batch_size=5,
            callbacks=[bridge, native],
        )
    return made


if __name__ == "__main__":
    print(json.dumps({scenario: observed(scenario, fit) for scenario in SCENARIOS}))
