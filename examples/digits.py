"""Train a small multilayer perceptron on scikit-learn's handwritten digits.

The model, its gradients and its optimizer are plain NumPy; the run is a
`lifecycle.Loop`, and all that is not mathematics is a subscriber.

    python examples/digits.py --output runs/digits
    lifecycle run --on progress examples/digits.py

Afterwards the output folder holds ``log.csv``, ``curves.png`` and the checkpoints.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from lifecycle import Loop, on
from lifecycle.checkpoint import Checkpoint
from lifecycle.subscribers import CSVLogger, EarlyStopping, History

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Batch = tuple[Array, Labels]


class MLP:
    """A multilayer perceptron with ReLU between its layers and a softmax at its end."""

    def __init__(self, *sizes: int, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.arrays: dict[str, Array] = {}
        for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
            scale = np.sqrt(2 / inputs)
            self.arrays[f"weight{layer}"] = random.normal(0, scale, (inputs, outputs))
            self.arrays[f"bias{layer}"] = np.zeros(outputs)
        self.depth = len(sizes) - 1

    def __call__(self, images: Array) -> Array:
        """Return each image's class probabilities."""
        return self._forward(images)[-1]

    def _forward(self, images: Array) -> list[Array]:
        values = [images]
        for layer in range(self.depth):
            scores = values[-1] @ self.arrays[f"weight{layer}"] + self.arrays[f"bias{layer}"]
            last = layer == self.depth - 1
            values.append(softmax(scores) if last else np.maximum(scores, 0))
        return values

    def gradients(self, images: Array, labels: Labels) -> tuple[dict[str, Array], Array]:
        """Return the mean cross-entropy's gradients, and the probabilities."""
        values = self._forward(images)
        error = values[-1].copy()
        error[np.arange(len(labels)), labels] -= 1
        error /= len(labels)
        found = {}
        for layer in reversed(range(self.depth)):
            found[f"weight{layer}"] = values[layer].T @ error
            found[f"bias{layer}"] = error.sum(axis=0)
            error = (error @ self.arrays[f"weight{layer}"].T) * (values[layer] > 0)
        return found, values[-1]

    def state_dict(self) -> dict[str, Array]:
        """Return the parameters, as a checkpoint saves them."""
        return dict(self.arrays)

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Take over saved parameters."""
        for name, array in self.arrays.items():
            array[...] = state[name]


class SGD:
    """Stochastic gradient descent with momentum and weight decay."""

    def __init__(
        self,
        arrays: dict[str, Array],
        learning_rate: float,
        momentum: float = 0.9,
        decay: float = 1e-4,
    ) -> None:
        self.arrays = arrays
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.decay = decay
        self.velocity = {name: np.zeros_like(array) for name, array in arrays.items()}

    def update(self, gradients: Mapping[str, Array]) -> None:
        """Change the parameters in place."""
        for name, array in self.arrays.items():
            velocity = self.velocity[name]
            velocity *= self.momentum
            velocity -= self.learning_rate * (gradients[name] + self.decay * array)
            array[...] += velocity

    def state_dict(self) -> dict[str, Any]:
        """Return the learning rate and the velocities."""
        return {"learning_rate": self.learning_rate, "velocity": dict(self.velocity)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over saved ones."""
        self.learning_rate = state["learning_rate"]
        for name, array in self.velocity.items():
            array[...] = state["velocity"][name]


def softmax(scores: Array) -> Array:
    """Turn each row of scores into probabilities."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def metrics(probabilities: Array, labels: Labels) -> dict[str, float]:
    """Return the mean cross-entropy and the accuracy."""
    likelihood = probabilities[np.arange(len(labels)), labels]
    return {
        "loss": float(-np.log(likelihood + 1e-12).mean()),
        "accuracy": float((probabilities.argmax(axis=1) == labels).mean()),
    }


def batches(images: Array, labels: Labels, size: int, seed: int | None = None) -> Iterator[Batch]:
    """Cut the data into batches; a seed shuffles it and moves each image by up to a pixel."""
    order = np.arange(len(images))
    if seed is not None:
        random = np.random.default_rng(seed)
        order = random.permutation(order)
        images = shifted(images, random.integers(-1, 2, (len(images), 2)))
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        yield images[chosen], labels[chosen]


def shifted(images: Array, by: NDArray[np.int64]) -> Array:
    """Move each 8x8 image by its own number of rows and columns."""
    padded = np.pad(images.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    rows = 1 + by[:, :1] + np.arange(8)
    columns = 1 + by[:, 1:] + np.arange(8)
    moved = padded[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]]
    return np.asarray(moved.reshape(-1, 64))


class Digits(NamedTuple):
    """The images, 64 numbers from 0 to 1 each, and their labels, in three parts."""

    train: Batch
    validation: Batch
    test: Batch


def load() -> Digits:
    """Return the 1797 digits, split the same way each time."""
    bunch = load_digits()
    images, labels = bunch.data / 16, bunch.target
    images, test_images, labels, test_labels = train_test_split(
        images, labels, test_size=360, random_state=0, stratify=labels
    )
    images, val_images, labels, val_labels = train_test_split(
        images, labels, test_size=240, random_state=0, stratify=labels
    )
    return Digits((images, labels), (val_images, val_labels), (test_images, test_labels))


# The subscribers. They know nothing of this model or optimizer beyond what they name.


@on("epoch_begin", at=30)
def drop_learning_rate(loop: Loop) -> None:
    """Finish with small steps."""
    # Set, not multiplied: a run that resumes inside this epoch enters it a second time.
    loop.objects["optimizer"].learning_rate = 0.01


class ClassReport:
    """Follow each class's accuracy: the lowest in every epoch's logs, all of them at the end."""

    def __init__(self, images: Array, labels: Labels) -> None:
        self.images = images
        self.labels = labels

    def accuracies(self, model: Callable[[Array], Array]) -> list[float]:
        """Return the accuracy on each class's images."""
        right = np.asarray(model(self.images)).argmax(axis=1) == self.labels
        return [float(right[self.labels == label].mean()) for label in range(10)]

    @on("epoch_end")
    def note(self, loop: Loop, logs: MutableMapping[str, Any]) -> None:
        """Let whoever comes later see the lowest, the CSV log among them."""
        logs["val_worst_class"] = min(self.accuracies(loop.objects["model"]))

    @on("train_end", after="EarlyStopping")  # which has put the best parameters back by then
    def report(self, loop: Loop) -> None:
        """Print one bar per class."""
        print("validation accuracy by class")
        for label, accuracy in enumerate(self.accuracies(loop.objects["model"])):
            print(f"  {label}  {accuracy:6.1%}  {'#' * round(40 * accuracy)}")


class Curves:
    """Draw the learning curves when the run ends."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_end(self, loop: Loop) -> None:
        """Draw loss and accuracy, in training and in validation, over the epochs."""
        if loop.history:
            loop.history.plot(self.path, "loss", "val_loss", "accuracy", "val_accuracy")


def make_loop(output: Path, digits: Digits, seed: int = 0) -> Loop:
    """Return a loop over a new model, with all its subscribers."""
    model = MLP(64, 256, 10, seed=seed)
    optimizer = SGD(model.arrays, learning_rate=0.1)

    def train_step(batch: Batch) -> dict[str, float]:
        gradients, probabilities = model.gradients(*batch)
        optimizer.update(gradients)
        return metrics(probabilities, batch[1])

    def test_step(batch: Batch) -> dict[str, float]:
        return metrics(model(batch[0]), batch[1])

    loop = Loop(train_step, test_step, objects={"model": model, "optimizer": optimizer})
    loop.attach(ClassReport(*digits.validation))
    loop.attach(EarlyStopping("val_loss", patience=15, restore_best=True))
    loop.attach(CSVLogger(output / "log.csv"))
    loop.attach(Curves(output / "curves.png"))
    loop.attach(Checkpoint(output / "checkpoints", save_best="val_loss"))
    return loop


def train(
    output: Path, *, epochs: int = 50, seed: int = 0, resume: bool = False
) -> tuple[History, float]:
    """Train a model and return the run's history and the accuracy on the test images."""
    digits = load()
    output.mkdir(parents=True, exist_ok=True)
    loop = make_loop(output, digits, seed)
    history = loop.fit(
        lambda epoch: list(batches(*digits.train, size=32, seed=epoch)),
        epochs=epochs,
        validation_data=list(batches(*digits.validation, size=120)),
        resume="auto" if resume else False,
    )
    test = loop.evaluate(list(batches(*digits.test, size=120)))
    return history, test["accuracy"]


def main() -> None:
    """Read the arguments, train, and say how well it went."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/digits"), metavar="DIR")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on where a killed run was")
    options = parser.parse_args()
    history, accuracy = train(
        options.output, epochs=options.epochs, seed=options.seed, resume=options.resume
    )
    print(f"test accuracy {accuracy:.4f} after {len(history.epochs)} epochs")
    print(f"log, curves and checkpoints are in {options.output}")


if __name__ == "__main__":
    main()
