"""A small mmengine model with its data and its runner."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # mmengine uses what torch has deprecated
    from mmengine.evaluator import BaseMetric
    from mmengine.hooks import Hook
    from mmengine.model import BaseModel
    from mmengine.runner import Runner

__all__ = ["SAMPLES", "Hook", "Model", "loader", "runner"]

SAMPLES = [torch.tensor(float(number)) for number in range(10)]


class Model(BaseModel):  # type: ignore[misc]
    """One weight that is drawn to the mean of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x: torch.Tensor, mode: str) -> Any:
        if mode == "loss":
            return {"loss": ((self.weight - x) ** 2).mean()}
        return [((self.weight.detach() - x) ** 2).mean()]


class Loss(BaseMetric):  # type: ignore[misc]
    """The mean of the losses."""

    def process(self, batch: Any, outputs: Sequence[Any]) -> None:
        self.results.append((float(outputs[0]), len(batch["x"])))

    def compute_metrics(self, results: list[tuple[float, int]]) -> dict[str, float]:
        return {"loss": sum(v * n for v, n in results) / sum(n for _, n in results)}


def collate(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {"x": torch.stack(samples)}


def loader(batch_size: int, samples: list[torch.Tensor] = SAMPLES) -> DataLoader[Any]:
    return DataLoader(samples, batch_size, collate_fn=collate)  # type: ignore[arg-type]


def runner(
    work_dir: Path | str, hooks: Sequence[Hook], train: Mapping[str, Any], **more: Any
) -> Runner:
    """Return a runner over the model; 3 batches an epoch, 2 to validate on."""
    torch.manual_seed(0)
    logging.disable(logging.ERROR)
    return Runner(
        model=Model(),
        work_dir=str(work_dir),
        train_dataloader=more.pop("train_dataloader", None) or loader(4),
        train_cfg=dict(train),
        val_dataloader=loader(5),
        val_evaluator=[Loss()],
        val_cfg={},
        optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.1}},
        custom_hooks=list(hooks),
        experiment_name=f"run{id(hooks)}",
        **more,
    )
