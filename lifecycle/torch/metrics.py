"""Metrics of a batch, and metrics of a whole set of data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch

from lifecycle.torch.batches import moved

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

__all__ = ["Collected", "Metrics", "WholeSet"]


@runtime_checkable
class WholeSet(Protocol):
    """A metric of a whole set of data, as torchmetrics has them."""

    def update(self, outputs: Any, targets: Any) -> object:
        """Take in a batch."""

    def compute(self) -> Any:
        """Return a number, or a mapping of names to numbers."""

    def reset(self) -> object:
        """Forget all batches."""


class Collected:
    """A metric computed from the outputs for a whole set of data at once.

    Args:
        function: called with the list of all batches' outputs and the list of their targets;
            returns a number, or a mapping of names to numbers. Both are on the CPU.
    """

    def __init__(self, function: Callable[[list[Any], list[Any]], Any]) -> None:
        self.function = function
        self.reset()

    def update(self, outputs: Any, targets: Any) -> None:
        """Take in a batch."""
        self.outputs.append(moved(outputs, "cpu"))
        self.targets.append(moved(targets, "cpu"))

    def compute(self) -> Any:
        """Return what the function makes of all batches."""
        return self.function(self.outputs, self.targets)

    def reset(self) -> None:
        """Forget all batches."""
        self.outputs: list[Any] = []
        self.targets: list[Any] = []


class Metrics:
    """The metrics of a step, told apart.

    Args:
        metrics: by name; functions of outputs and targets, and objects as `WholeSet` says.

    Raises:
        TypeError: one is neither.
    """

    def __init__(self, metrics: Mapping[str, Any] | None) -> None:
        self.batch: dict[str, Callable[[Any, Any], Any]] = {}
        self.whole: dict[str, WholeSet] = {}
        for name, metric in (metrics or {}).items():
            if isinstance(metric, WholeSet):
                self.whole[name] = metric
            elif callable(metric):
                self.batch[name] = metric
            else:
                raise TypeError(
                    f"metric {name!r} must be a function of outputs and targets, or have update,"
                    f" compute and reset: {metric!r}"
                )

    def of_batch(self, outputs: Any, targets: Any, logs: MutableMapping[str, Any]) -> None:
        """Put the metrics of a batch into logs."""
        if not self.batch:
            return
        with torch.no_grad():
            for name, metric in self.batch.items():
                logs[name] = metric(outputs, targets)

    def reset(self) -> None:
        """Have the metrics of a whole set begin."""
        for metric in self.whole.values():
            metric.reset()

    def update(self, outputs: Any, targets: Any) -> None:
        """Have the metrics of a whole set take in a batch."""
        for metric in self.whole.values():
            metric.update(outputs, targets)

    def compute(self, logs: MutableMapping[str, Any]) -> None:
        """Put the metrics of a whole set into logs; of a mapping, the single numbers."""
        for name, metric in self.whole.items():
            result = metric.compute()
            if not isinstance(result, Mapping):
                logs[name] = result
                continue
            for key, value in result.items():
                if not isinstance(value, torch.Tensor) or value.numel() == 1:
                    logs[f"{name}_{key}"] = value
