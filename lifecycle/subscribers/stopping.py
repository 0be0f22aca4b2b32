"""Stop on a value that is no number, at a target, or when time is up."""

from __future__ import annotations

import math
import time
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from lifecycle.subscribers.checks import choice, whole
from lifecycle.subscribers.memory import Memory
from lifecycle.subscribers.monitor import Monitor, missing_metric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lifecycle.loop import Loop

__all__ = ["StopOnNaN", "StopOnTarget", "TimeLimit"]


class StopOnNaN:
    """Stop the run, or raise, as soon as a metric is NaN or infinite.

    Keras: ``TerminateOnNaN``. OpenMMLab: ``CheckInvalidLossHook``.

    It remembers nothing and may listen to any number of loops.

    Args:
        metrics: The names looked at, of the batch's logs and of the epoch's.
        every: Look at each n-th batch only; reading a value of a device waits for it.
        raise_error: Raise FloatingPointError, so that the run fails, instead of stopping it.
    """

    priority: ClassVar[str] = "HIGH"

    def __init__(self, *metrics: str, every: int = 1, raise_error: bool = False) -> None:
        self.metrics = metrics or ("loss",)
        self.every = whole(every, 1, "every is a number of batches")
        self.raise_error = raise_error
        self._warned = False

    def on_train_batch_end(
        self, loop: Loop, logs: Mapping[str, Any], step: int, skipped: bool
    ) -> None:
        if (step + 1) % self.every == 0 and not skipped:
            self._check(loop, logs, f"step {step}")

    def on_epoch_end(self, loop: Loop, logs: Mapping[str, Any], epoch: int) -> None:
        self._check(loop, logs, f"the end of epoch {epoch}")
        if logs and not self._warned and not any(name in logs for name in self.metrics):
            self._warned = True
            message = f"StopOnNaN: {missing_metric(self.metrics[0], logs)}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _check(self, loop: Loop, logs: Mapping[str, Any], where: str) -> None:
        for name in self.metrics:
            if name in logs and not math.isfinite(value := float(logs[name])):
                reason = f"{name} is {value} at {where}"
                if self.raise_error:
                    raise FloatingPointError(reason)
                loop.stop(reason)


class StopOnTarget:
    """Stop the run once a metric has reached a target.

    Keras: none. OpenMMLab: ``EarlyStoppingHook(stopping_threshold=...)``.

    It remembers nothing and may listen to any number of loops.

    Args:
        monitor: The metric's name.
        target: The value that is good enough.
        mode: ``min``, ``max`` or ``auto``, by the metric's name.
        by: Look at the logs of each ``epoch``, or of each ``step``.
    """

    priority: ClassVar[str] = "BELOW_NORMAL"

    def __init__(
        self, monitor: str, target: float, *, mode: str = "auto", by: str = "epoch"
    ) -> None:
        self.monitor = Monitor(monitor, mode)
        self.target = float(target)
        self.by = choice(by, "by", "epoch", "step")

    def on_train_batch_end(self, loop: Loop, logs: Mapping[str, Any], skipped: bool) -> None:
        if self.by == "step" and not skipped:
            self._check(loop, logs)

    def on_epoch_end(self, loop: Loop, logs: Mapping[str, Any]) -> None:
        if self.by == "epoch":
            self._check(loop, logs)

    def on_train_end(self, logs: Mapping[str, Any]) -> None:
        self.monitor.warn_if_unseen(logs, "StopOnTarget")

    def _check(self, loop: Loop, logs: Mapping[str, Any]) -> None:
        value = self.monitor.read_or_warn(logs, "StopOnTarget")
        if value is not None and self.monitor.reaches(value, self.target):
            loop.stop(f"{self.monitor.metric} {value} has reached {self.target}")


class TimeLimit(Memory):
    """Stop the run at the first batch that ends after some time.

    Keras: none (KerasTuner and others bring one). OpenMMLab: none.

    Args:
        limit: Seconds, or a timedelta.
        per: ``run``: time spent before a resume counts, so that a resumed run ends where an
            uninterrupted one would. ``process``: each process has the whole limit, as for
            a job that a cluster cuts off.
    """

    priority: ClassVar[str] = "BELOW_NORMAL"
    remembers: ClassVar[tuple[str, ...]] = ("elapsed",)

    def __init__(self, limit: float | timedelta, *, per: str = "run") -> None:
        self.limit = limit.total_seconds() if isinstance(limit, timedelta) else float(limit)
        if not self.limit > 0:
            raise ValueError(f"a time limit is more than 0 seconds, not {limit!r}")
        self.per = choice(per, "per", "run", "process")
        self.reset()

    def reset(self) -> None:
        self._before = 0.0
        self._began: float | None = None

    @property
    def elapsed(self) -> float:
        """Seconds of the run so far."""
        return self._before + (0.0 if self._began is None else time.monotonic() - self._began)

    @elapsed.setter
    def elapsed(self, seconds: float) -> None:
        self._before = float(seconds) if self.per == "run" else 0.0

    def on_train_begin(self, loop: Loop) -> None:
        self.begin(loop)
        self._began = time.monotonic()

    def on_train_batch_end(self, loop: Loop) -> None:
        self.follow(loop)
        if self._began is None:  # attached to a run under way: its time counts from here
            self._began = time.monotonic()
        if self.elapsed >= self.limit and not loop.state.stopping:
            # Another process has a limit of its own, so there the run may go on.
            final = self.per == "run"
            loop.stop(f"the time limit of {self.limit:g} seconds is over", final=final)

    def on_train_end(self) -> None:
        self._before, self._began = self.elapsed, None
