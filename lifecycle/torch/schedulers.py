"""Torch's own schedulers, stepped at the right point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch.optim.lr_scheduler import ReduceLROnPlateau

from lifecycle.subscribers.checks import choice
from lifecycle.subscribers.memory import OneLoop
from lifecycle.subscribers.monitor import Monitor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.optim.lr_scheduler import LRScheduler

    from lifecycle.loop import Loop

__all__ = ["TorchScheduler"]


class TorchScheduler(OneLoop):
    """Step a scheduler of ``torch.optim.lr_scheduler``, and save its state with the run's.

    Keras: none. OpenMMLab: ``ParamSchedulerHook``.

    Args:
        scheduler: any of them. A ``ReduceLROnPlateau`` gets the monitored metric.
        by: ``epoch``: at the end of each that came to its end; ``step``: of each batch;
            ``update``: after each optimizer step of a `TorchStep`, which under accumulation are
            fewer.
        monitor: the metric that a plateau looks at.
    """

    priority: ClassVar[str] = "BELOW_NORMAL"

    def __init__(
        self,
        scheduler: LRScheduler | ReduceLROnPlateau,
        by: str = "epoch",
        *,
        monitor: str = "val_loss",
    ) -> None:
        self.scheduler: Any = scheduler
        self.by = choice(by, "by", "epoch", "step", "update")
        self.monitor: Monitor | None = None
        if isinstance(scheduler, ReduceLROnPlateau):
            if by != "epoch":
                raise ValueError("a plateau is looked for by epoch, where its metric is")
            self.monitor = Monitor(monitor, scheduler.mode)

    def __repr__(self) -> str:
        return f"<TorchScheduler {type(self.scheduler).__name__} by {self.by}>"

    def on_train_begin(self, loop: Loop) -> None:
        self.follow(loop)
        if self.monitor is not None:
            self.monitor.reset()

    def on_train_batch_end(self, loop: Loop, skipped: bool) -> None:
        if self.by == "step" and not skipped:
            self.follow(loop)
            self.scheduler.step()

    def on_optimizer_step_end(self, loop: Loop, skipped: bool) -> None:
        if self.by == "update" and not skipped:
            self.follow(loop)
            self.scheduler.step()

    def on_epoch_end(self, loop: Loop, logs: Mapping[str, Any]) -> None:
        if self.by != "epoch" or loop.state.open:  # an open one will be ended again
            return
        self.follow(loop)
        if self.monitor is None:
            self.scheduler.step()
            return
        value = self.monitor.read_or_warn(logs, "TorchScheduler")
        if value is not None:
            self.scheduler.step(value)

    def on_train_end(self, logs: Mapping[str, Any]) -> None:
        if self.monitor is not None:
            self.monitor.warn_if_unseen(logs, "TorchScheduler")

    def state_dict(self) -> dict[str, Any]:
        """Return the scheduler's state."""
        state: dict[str, Any] = self.scheduler.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a saved state."""
        self.scheduler.load_state_dict(dict(state))
