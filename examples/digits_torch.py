"""Train a small convolutional network on scikit-learn's handwritten digits, with PyTorch.

The subscribers are those of ``digits.py``, where the network and its gradients are plain
NumPy; here they are a module and a `TorchStep`.

    python examples/digits_torch.py --output runs/digits_torch
    lifecycle run --on progress examples/digits_torch.py

Afterwards the output folder holds ``log.csv``, ``curves.png`` and the checkpoints.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from digits import Array, Batch, ClassReport, Curves, Digits, drop_learning_rate, load
from torch import nn
from torch.utils.data import DataLoader, Dataset

from lifecycle import Loop, bus
from lifecycle.checkpoint import Checkpoint
from lifecycle.subscribers import CSVLogger, History
from lifecycle.torch import EMA, Cosine, LRSchedule, TorchStep, WarmUp

bus.disconnect(drop_learning_rate)  # the learning rate follows a schedule here


class Images(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Digits as images of one channel, each time moved by up to a pixel if asked for."""

    def __init__(self, batch: Batch, *, move: bool = False) -> None:
        self.images = torch.from_numpy(batch[0]).float().reshape(-1, 1, 8, 8)
        self.labels = torch.from_numpy(batch[1])
        self.move = move

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image = self.images[index]
        if self.move:
            row, column = torch.randint(0, 3, (2,)).tolist()
            image = nn.functional.pad(image, (1, 1, 1, 1))[:, row : row + 8, column : column + 8]
        return image, self.labels[index]


def network() -> nn.Module:
    """Return a new network: two convolutions, two linear layers."""
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.Conv2d(24, 48, 3, padding=1, bias=False),
        nn.BatchNorm2d(48),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(48 * 4 * 4, 10),
    )


def accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the share of images whose highest score is the right one."""
    return (outputs.argmax(1) == labels).float().mean()


class TorchClassReport(ClassReport):
    """The report of ``digits.py``, which looks at arrays, about a module."""

    def accuracies(self, model: Callable[[Array], Array]) -> list[float]:
        """Return the accuracy on each class's images."""
        module: Any = model
        training = module.training
        module.eval()
        with torch.inference_mode():
            found = super().accuracies(
                lambda images: module(torch.from_numpy(images).float().reshape(-1, 1, 8, 8)).numpy()
            )
        module.train(training)
        return found


def make_loop(
    output: Path, digits: Digits, *, amp: Literal["bf16", "fp16"] | None = None, accumulate: int = 1
) -> Loop:
    """Return a loop over a new network, with all its subscribers."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    step = TorchStep(
        model,
        nn.CrossEntropyLoss(),
        optimizer,
        metrics={"accuracy": accuracy},
        clip_norm=5.0,
        accumulate=accumulate,
        amp=amp,
    )
    loop = step.loop()
    loop.attach(LRSchedule(Cosine(minimum=0.0), by="step", warmup=WarmUp(50)))
    loop.attach(EMA(decay=0.98))
    loop.attach(TorchClassReport(*digits.validation))
    loop.attach(CSVLogger(output / "log.csv"))
    loop.attach(Curves(output / "curves.png"))
    loop.attach(Checkpoint(output / "checkpoints", save_best="val_loss"))
    return loop


def train(
    output: Path,
    *,
    epochs: int = 15,
    seed: int = 0,
    resume: bool = False,
    workers: int = 0,
    amp: Literal["bf16", "fp16"] | None = None,
) -> tuple[History, float]:
    """Train a network and return the run's history and the accuracy on the test images."""
    torch.manual_seed(seed)
    digits = load()
    output.mkdir(parents=True, exist_ok=True)
    loop = make_loop(output, digits, amp=amp)
    training = Images(digits.train, move=True)
    history = loop.fit(
        DataLoader(training, batch_size=32, shuffle=True, num_workers=workers),
        epochs=epochs,
        validation_data=DataLoader(Images(digits.validation), batch_size=120),
        resume="auto" if resume else False,
    )
    test = loop.evaluate(DataLoader(Images(digits.test), batch_size=120))
    return history, test["accuracy"]


def main() -> None:
    """Read the arguments, train, and say how well it went."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/digits_torch"), metavar="DIR")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on where a killed run was")
    options = parser.parse_args()
    history, score = train(
        options.output,
        epochs=options.epochs,
        seed=options.seed,
        resume=options.resume,
        workers=options.workers,
    )
    print(f"test accuracy {score:.4f} after {len(history.epochs)} epochs")
    print(f"log, curves and checkpoints are in {options.output}")


if __name__ == "__main__":
    main()
