"""Train a Keras model on the digits, with the subscribers of ``digits.py`` unchanged.

    python examples/keras_digits.py --output runs/keras-digits

Keras's ``fit`` is the sender here. What follows it was written for our own loop: the
schedule that drops the learning rate, the report by class, the curves, early stopping, the
log and the checkpoints.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
from digits import ClassReport, Curves, Digits, load

from lifecycle.bridges.keras import KerasBridge
from lifecycle.checkpoint import Checkpoint
from lifecycle.subscribers import CSVLogger, EarlyStopping


def build(seed: int = 0) -> Any:
    """Return a multilayer perceptron like the one of ``digits.py``, in Keras."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((64,)),
            layers.Dense(256, activation="relu", kernel_initializer="he_normal"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=1e-4),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def make_bridge(output: Path, digits: Digits, *, resume: bool = False) -> KerasBridge:
    """Return a bridge with all the subscribers; ``drop_learning_rate`` hears every loop."""
    bridge = KerasBridge(resume="auto" if resume else False)
    bridge.loop.attach(ClassReport(*digits.validation))
    bridge.loop.attach(EarlyStopping("val_loss", patience=15, restore_best=True))
    bridge.loop.attach(CSVLogger(output / "log.csv"))
    bridge.loop.attach(Curves(output / "curves.png"))
    bridge.loop.attach(Checkpoint(output / "checkpoints", save_best="val_loss"))
    return bridge


def train(
    output: Path, *, epochs: int = 40, seed: int = 0, resume: bool = False
) -> tuple[KerasBridge, float]:
    """Train a model and return the bridge and the accuracy on the test images."""
    digits = load()
    output.mkdir(parents=True, exist_ok=True)
    model, bridge = build(seed), make_bridge(output, digits, resume=resume)
    model.fit(
        *digits.train,
        batch_size=32,
        epochs=epochs,
        validation_data=digits.validation,
        verbose=0,
        callbacks=[bridge],
    )
    metrics = model.evaluate(*digits.test, verbose=0, return_dict=True)
    return bridge, metrics["accuracy"]


def main() -> None:
    """Read the arguments, train, and say how well it went."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/keras-digits"), metavar="DIR")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on where a killed run was")
    options = parser.parse_args()
    bridge, accuracy = train(
        options.output, epochs=options.epochs, seed=options.seed, resume=options.resume
    )
    history = bridge.loop.history
    assert history is not None
    print(f"test accuracy {accuracy:.4f} after {len(history)} epochs")
    print(f"log, curves and checkpoints are in {options.output}")


if __name__ == "__main__":
    main()
