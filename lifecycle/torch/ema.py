"""The moving average of a module, with its buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from lifecycle.subscribers import ema
from lifecycle.subscribers.checks import choice
from lifecycle.torch.updates import Updates

if TYPE_CHECKING:
    from lifecycle.loop import Loop

__all__ = ["EMA"]


class EMA(ema.EMA):
    """Keep a moving average of a module, evaluate with it, save both.

    As ``lifecycle.EMA``, but it averages all tensors of the module at once, and follows the
    optimizer steps of a `TorchStep`, which under accumulation are fewer than the batches.

    OpenMMLab: ``EMAHook``, where ``momentum`` is ``1 - decay``.

    Args:
        target: the name of one of the loop's objects, or a module.
        decay: how much of the average is kept at each update, from 0 to below 1.
        every: take each n-th update only.
        warmup: keep less at first, ``(1 + n) / (10 + n)`` after n updates.
        evaluate: whether to swap the average in for test and predict passes.
        by: ``update`` or ``step``; by default ``update`` where a `TorchStep` trains.
    """

    def __init__(
        self,
        target: Any = "model",
        *,
        decay: float = 0.999,
        every: int = 1,
        warmup: bool = False,
        evaluate: bool = True,
        by: str | None = None,
    ) -> None:
        super().__init__(target, decay=decay, every=every, warmup=warmup, evaluate=evaluate)
        self.by = None if by is None else choice(by, "by", "update", "step")
        self._by_update = self.by == "update"

    def on_train_begin(self, loop: Loop) -> None:
        super().on_train_begin(loop)
        if self.by is None:
            updates = (getattr(owner, "updates", None) for owner in loop.owners())
            self._by_update = any(isinstance(each, Updates) for each in updates)

    def on_train_batch_end(self, loop: Loop, step: int, skipped: bool) -> None:
        if not self._by_update:
            super().on_train_batch_end(loop, step, skipped)

    def on_optimizer_step_end(self, loop: Loop, update: int, skipped: bool) -> None:
        if self._by_update:
            super().on_train_batch_end(loop, update, skipped)

    def blended(self, value: Any, keep: float) -> Any:
        """Return the average with a value taken into it."""
        if not all(isinstance(each, torch.Tensor) for each in value.values()):
            return super().blended(value, keep)
        average = self.average
        floats = [key for key, each in value.items() if each.is_floating_point()]
        old = [average[key] for key in floats]
        new = [value[key].detach().to(average[key].dtype) for key in floats]
        torch._foreach_lerp_(old, new, 1 - keep)  # as torch.optim.swa_utils does
        for key in value.keys() - set(floats):
            average[key].copy_(value[key])  # such as a count of batches
        return average
