"""Training an MLP for digits with torch: ours beside a hand-written loop and other trainers.

Run it as ``python benchmarks/torch_loop.py``; peers that are not installed are left out. All
train the same model on the same batches with the same optimizer, and keep the mean of the
loss. The rows are interleaved, best of several rounds, and shown as a ratio to the
hand-written loop.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from timing import table, versions
from torch import nn
from torch.utils.data import DataLoader

from lifecycle.torch import TorchStep

Batches = list[tuple[torch.Tensor, torch.Tensor]]
Epoch = Callable[[], object]

BATCH = 32


def digits(count: int = 200) -> Batches:
    """Return batches of the shape that scikit-learn's digits have."""
    generator = torch.Generator().manual_seed(0)
    return [
        (
            torch.rand(BATCH, 64, generator=generator),
            torch.randint(0, 10, (BATCH,), generator=generator),
        )
        for _ in range(count)
    ]


def parts() -> tuple[nn.Module, nn.CrossEntropyLoss, torch.optim.Optimizer]:
    """Return a new model, its loss and its optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return model, nn.CrossEntropyLoss(), optimizer


def by_hand(batches: Batches) -> Epoch:
    """Train as anyone would write it."""
    model, criterion, optimizer = parts()

    def epoch() -> float:
        total = torch.zeros(())
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        return total.item() / len(batches)

    return epoch


def torch_step(batches: Batches) -> Epoch:
    """Train with a TorchStep, nothing attached."""
    loop = TorchStep(*parts()).loop()
    return lambda: loop.fit(batches)


def own_step(batches: Batches) -> Epoch:
    """Train with a step of our own in the loop."""
    from lifecycle import Loop  # noqa: PLC0415 -- beside the others

    model, criterion, optimizer = parts()

    def step(batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
        inputs, targets = batch
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach()}

    loop = Loop(step)
    return lambda: loop.fit(batches)


def subscribed(batches: Batches) -> Epoch:
    """Train with a TorchStep and one pair of batch subscribers."""
    loop = TorchStep(*parts()).loop()
    loop.on("train_batch_begin")(lambda step: None)  # noqa: ARG005 -- that it asks for it costs
    loop.on("train_batch_end")(lambda step: None)  # noqa: ARG005
    return lambda: loop.fit(batches)


def ignite(batches: Batches) -> Epoch:
    """Train with Ignite's supervised trainer."""
    from ignite.engine import create_supervised_trainer  # noqa: PLC0415 -- may be absent
    from ignite.metrics import Average  # noqa: PLC0415

    model, criterion, optimizer = parts()
    trainer = create_supervised_trainer(
        model, optimizer, criterion, output_transform=lambda *outputs: outputs[-1].detach()
    )
    Average().attach(trainer, "loss")
    return lambda: trainer.run(batches, max_epochs=1)


def lightning(batches: Batches) -> Epoch:
    """Train with Lightning, everything that can be off being off."""
    import lightning.pytorch as pl  # noqa: PLC0415 -- may be absent

    model, criterion, optimizer = parts()

    class Module(pl.LightningModule):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any) -> torch.Tensor:
            loss = criterion(self.model(batch[0]), batch[1])
            self.log("loss", loss, on_step=False, on_epoch=True)
            return loss  # type: ignore[no-any-return]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer

    module = Module()

    def epoch() -> None:
        trainer = pl.Trainer(
            max_epochs=1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, train_dataloaders=DataLoader(batches, batch_size=None))  # type: ignore[arg-type]

    return epoch


def mmengine(batches: Batches) -> Epoch:
    """Train with mmengine's epoch loop and its default hooks, logging once an epoch."""
    import tempfile  # noqa: PLC0415

    from mmengine.model import BaseModel  # noqa: PLC0415 -- may be absent
    from mmengine.runner import Runner  # noqa: PLC0415

    model, criterion, optimizer = parts()

    class Model(BaseModel):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(
            self,
            inputs: torch.Tensor,
            targets: torch.Tensor,
            mode: str,  # noqa: ARG002 -- mmengine gives it
        ) -> dict[str, torch.Tensor]:
            return {"loss": criterion(self.model(inputs), targets)}

    wrapped = Model()
    number = iter(range(10**6))
    folder = tempfile.mkdtemp()

    def epoch() -> None:
        runner = Runner(
            wrapped,
            work_dir=folder,
            train_dataloader=DataLoader(batches, batch_size=None),  # type: ignore[arg-type]
            train_cfg={"by_epoch": True, "max_epochs": 1},
            optim_wrapper={"optimizer": optimizer},
            default_hooks={
                "checkpoint": None,
                "sampler_seed": None,
                "logger": {"type": "LoggerHook", "interval": 10**6},
            },
            log_level="ERROR",
            experiment_name=f"bench{next(number)}",
        )
        runner.train()

    return epoch


CASES: dict[str, tuple[Callable[[Batches], Epoch], str | None]] = {
    "hand-written loop": (by_hand, None),
    "TorchStep": (torch_step, None),
    "a step of one's own in Loop": (own_step, None),
    "TorchStep, one pair of batch subscribers": (subscribed, None),
    "Ignite": (ignite, "ignite"),
    "mmengine": (mmengine, "mmengine"),
    "Lightning": (lightning, "lightning"),
}


def seconds(epoch: Epoch) -> float:
    """Time an epoch."""
    start = time.perf_counter()
    epoch()
    return time.perf_counter() - start


def measure(rounds: int, count: int, names: list[str]) -> dict[str, float]:
    """Return the seconds per batch by case: the best of interleaved rounds.

    A trainer that sets up a run per epoch has that taken off, by timing a short one too.
    """
    batches = digits(count)
    short = batches[: count // 10]
    cases = {name: (CASES[name][0](batches), CASES[name][0](short)) for name in names}
    best = {name: (float("inf"), float("inf")) for name in names}
    for _ in range(rounds + 1):
        for name, (whole, part) in cases.items():
            long, brief = best[name]
            best[name] = min(long, seconds(whole)), min(brief, seconds(part))
    return {
        name: (long - brief) / (len(batches) - len(short)) for name, (long, brief) in best.items()
    }


def main() -> None:
    """Measure all that is installed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--only-ours", action="store_true", help="leave the peers out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    names = [
        name
        for name, (_, module) in CASES.items()
        if module is None or (importlib.util.find_spec(module) and not options.only_ours)
    ]
    found = measure(options.rounds, options.batches, names)
    floor = found["hand-written loop"]
    rows = [
        (name, f"{cost * 1e6:.1f}", f"{(cost - floor) * 1e6:+.1f}", f"{cost / floor:.3f}")
        for name, cost in found.items()
    ]
    print(versions("torch", "lightning", "pytorch-ignite", "mmengine"))
    print()
    print(table(("", "µs per batch", "more than by hand", "ratio"), rows))


if __name__ == "__main__":
    main()
