"""The memory of a device: measured, and given back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from lifecycle.subscribers.checks import whole

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["EmptyCache", "MemoryStats"]

MIB = 1 << 20


class EmptyCache:
    """Give memory that torch keeps but does not use back to the device.

    OpenMMLab: ``EmptyCacheHook``. Without a CUDA or MPS device there is nothing to do.

    Args:
        before_epoch: at the begin of each epoch.
        after_epoch: at the end of each.
        after_step: after each batch.
    """

    def __init__(
        self, *, before_epoch: bool = False, after_epoch: bool = True, after_step: bool = False
    ) -> None:
        self.before_epoch, self.after_epoch, self.after_step = before_epoch, after_epoch, after_step

    def on_epoch_begin(self) -> None:
        if self.before_epoch:
            self.empty()

    def on_epoch_end(self) -> None:
        if self.after_epoch:
            self.empty()

    def on_train_batch_end(self) -> None:
        if self.after_step:
            self.empty()

    def empty(self) -> None:
        """Give back what is not used."""
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if torch.backends.mps.is_available():
            torch.mps.empty_cache()


class MemoryStats:
    """Log the greatest memory in use, in MiB: ``memory``, and ``cuda_memory`` of each epoch.

    OpenMMLab: the ``memory`` of a ``TextLoggerHook``.

    Args:
        every: also log it into the logs of each n-th batch.
    """

    def __init__(self, every: int | None = None) -> None:
        self.every = None if every is None else whole(every, 1, "every is a number of steps")

    def on_epoch_begin(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

    def on_train_batch_end(self, logs: MutableMapping[str, Any], step: int) -> None:
        if self.every is not None and (step + 1) % self.every == 0:
            logs.update(self.measure())

    def on_epoch_end(self, logs: MutableMapping[str, Any]) -> None:
        logs.update(self.measure())

    def measure(self) -> dict[str, float]:
        """Return what is known of it here: of the process since it began, of the device."""
        found: dict[str, float] = {}
        if sys.platform != "win32":
            import resource  # noqa: PLC0415 -- not on Windows

            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            found["memory"] = peak / (MIB if sys.platform == "darwin" else 1 << 10)
        if torch.cuda.is_available():
            found["cuda_memory"] = torch.cuda.max_memory_allocated() / MIB
        return found
