"""Stop when a metric no longer gets better."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from lifecycle.subscribers.checks import whole
from lifecycle.subscribers.memory import Memory
from lifecycle.subscribers.monitor import Monitor
from lifecycle.subscribers.snapshot import capture, is_restorable, restore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lifecycle.loop import Loop

__all__ = ["EarlyStopping"]

logger = logging.getLogger("lifecycle")


class EarlyStopping(Memory):
    """Stop the run when a metric has not got better for some epochs.

    Keras: ``EarlyStopping``. OpenMMLab: ``EarlyStoppingHook``.

    An epoch whose logs lack the metric, or that a stop cut short, is not counted. With
    ``restore_best`` the loop's objects (those with a `state_dict`, arrays and containers of
    arrays) are put back to the best epoch's at the end of a run, unless it failed or was
    interrupted: then it may be resumed and keeps its state.

    Args:
        monitor: The metric's name.
        min_delta: How much better counts as better.
        patience: For how many epochs to wait for something better.
        mode: ``min``, ``max`` or ``auto``, by the metric's name.
        baseline: The run must get better than this for the waiting to start anew.
        restore_best: Whether to restore the loop's objects to the best epoch at the end.
        start_from_epoch: The first epoch (0-based) that is looked at.
    """

    priority: ClassVar[str] = "BELOW_NORMAL"
    remembers: ClassVar[tuple[str, ...]] = ("best", "best_epoch", "wait", "best_objects")

    def __init__(
        self,
        monitor: str = "val_loss",
        *,
        min_delta: float = 0.0,
        patience: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
        restore_best: bool = False,
        start_from_epoch: int = 0,
    ) -> None:
        self.monitor = Monitor(monitor, mode, min_delta)
        self.patience = whole(patience, 0, "patience is a number of epochs")
        self.baseline = baseline
        self.restore_best = restore_best
        self.start_from_epoch = start_from_epoch
        self.reset()

    @property
    def best(self) -> float | None:
        """The best value so far."""
        return self.monitor.best

    @best.setter
    def best(self, value: float | None) -> None:
        self.monitor.best = value

    def reset(self) -> None:
        self.monitor.reset()
        self.best_epoch: int | None = None
        self.wait = 0
        self.best_objects: dict[str, Any] | None = None

    def __repr__(self) -> str:
        metric = self.monitor.metric
        return f"<EarlyStopping {metric} best={self.best} wait={self.wait}/{self.patience}>"

    def on_train_begin(self, loop: Loop) -> None:
        self.begin(loop)

    def on_epoch_end(self, loop: Loop, epoch: int, logs: Mapping[str, Any], partial: bool) -> None:
        self.follow(loop)
        if partial or epoch < self.start_from_epoch:
            return
        value = self.monitor.read_or_warn(logs, "EarlyStopping")
        if value is None:
            return
        if self.best_epoch is None:  # should no epoch ever count as better, the first is kept
            self._keep(loop, epoch)
        self.wait += 1
        if self.monitor.update(value):
            self._keep(loop, epoch)
            if self.baseline is None or self.monitor.improves(value, on=self.baseline):
                self.wait = 0
            return
        if self.wait >= self.patience and epoch > 0:
            loop.stop(
                f"{self.monitor.metric} has not improved on {self.best} (epoch {self.best_epoch})"
                f" for {self.wait} epoch{'s' if self.wait != 1 else ''}"
            )

    def on_train_end(self, loop: Loop, logs: Mapping[str, Any], outcome: str) -> None:
        self.monitor.warn_if_unseen(logs, "EarlyStopping")
        if self.best_objects is None or outcome in {"failed", "interrupted"}:
            return
        for name, saved in self.best_objects.items():
            restore(loop.objects, name, saved)
        logger.info("EarlyStopping restored the objects of epoch %s", self.best_epoch)

    def _keep(self, loop: Loop, epoch: int) -> None:
        self.best_epoch = epoch
        if self.restore_best:
            things = loop.objects.items()
            self.best_objects = {
                key: capture(thing) for key, thing in things if is_restorable(thing)
            }
