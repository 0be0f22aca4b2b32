"""Where the time of a batch goes: waiting for data, the step, the subscribers."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from lifecycle.default import on
from lifecycle.subscribers.memory import Memory

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from lifecycle.loop import Loop

__all__ = ["Timer"]

PARTS = ("data", "step", "subscribers", "validation")


class Timer(Memory):
    """Measure how the time of each batch is shared between data, step and subscribers.

    Keras: none (TensorBoard's steps per second). OpenMMLab: ``IterTimerHook``.

    Each epoch's logs get ``data_time``, ``step_time`` and ``subscriber_time``, the mean
    seconds per batch. Time is counted between the first and the last subscriber of a
    point, so attach it last, for others of the lowest priority to lie in between. A
    device that works on after the step has returned shows where someone waits for it.
    """

    remembers: ClassVar[tuple[str, ...]] = ("seconds", "batches")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        """Seconds of the run so far that went into each part."""
        self.batches = 0
        """Batches of the run so far."""
        self.last: dict[str, float] = {}
        """Seconds per part of the batch that ended last."""
        self._mark: float | None = None
        self._epoch = (dict(self.seconds), 0)

    def __repr__(self) -> str:
        shares = ", ".join(f"{part} {share:.0%}" for part, share in self.shares.items())
        return f"<Timer {shares}>"

    @property
    def shares(self) -> dict[str, float]:
        """Which part of the run's time so far went where; they add up to 1."""
        whole = sum(self.seconds.values())
        return {part: spent / whole if whole else 0.0 for part, spent in self.seconds.items()}

    def on_train_begin(self, loop: Loop) -> None:
        self.begin(loop)

    @on("epoch_begin", priority="HIGHEST")
    def _epoch_begins(self, loop: Loop) -> None:
        self.follow(loop)
        self._epoch = (dict(self.seconds), self.batches)
        self._mark = perf_counter()

    @on("epoch_begin", "train_batch_end", priority="LOWEST")
    def _subscribers_done(self) -> None:
        self._spend("subscribers")

    @on("train_batch_begin", priority="HIGHEST")
    def _data_came(self) -> None:
        self.last = {}
        self._spend("data")

    @on("train_batch_begin", priority="LOWEST")
    def _step_begins(self) -> None:
        self._spend("subscribers")

    @on("train_batch_end", priority="HIGHEST")
    def _step_done(self) -> None:
        self.batches += 1
        self._spend("step")

    @on("test_begin", priority="HIGHEST")
    def _pass_begins(self, loop: Loop, epoch: int | None) -> None:
        if epoch is not None and self.owned_by(loop):
            self._spend("data")  # the data said that it is at its end

    @on("test_end", priority="LOWEST")
    def _pass_done(self, loop: Loop, epoch: int | None) -> None:
        if epoch is not None and self.owned_by(loop):
            self._spend("validation")

    @on("epoch_end", priority="HIGHEST")
    def _epoch_done(self, logs: MutableMapping[str, Any]) -> None:
        self._spend("data")
        before, batches = self._epoch
        count = max(self.batches - batches, 1)
        for part in PARTS[:3]:
            spent = self.seconds[part] - before.get(part, 0.0)
            logs[f"{part.removesuffix('s')}_time"] = spent / count

    def on_train_end(self) -> None:
        self._mark = None

    def _spend(self, part: str) -> None:
        """Count the time since the last mark for one part."""
        now = perf_counter()
        if self._mark is not None:
            self.seconds[part] += now - self._mark
            self.last[part] = self.last.get(part, 0.0) + now - self._mark
        self._mark = now
