"""Torch's profiler over some batches of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch.profiler

from lifecycle.subscribers.checks import whole
from lifecycle.subscribers.memory import OneLoop

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from lifecycle.loop import Loop

__all__ = ["TorchProfiler"]


class TorchProfiler(OneLoop):
    """Record what torch does in some batches, and write it as a trace.

    Keras: TensorBoard's ``profile_batch``. OpenMMLab: ``ProfilerHook``.

    A trace is a file ``trace-<step>.json`` for chrome://tracing or Perfetto. The profiler ends
    with its last batch or with the run, whichever comes first.

    Args:
        directory: where the traces go.
        wait: batches to pass over at first, and before each repetition.
        warmup: batches to run the profiler for without recording.
        active: batches to record.
        repeat: how many traces to write.
        on_trace: called with the profiler instead of writing the trace.
        options: for ``torch.profiler.profile``, such as ``record_shapes=True``.
    """

    priority: ClassVar[str] = "VERY_LOW"

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        wait: int = 1,
        warmup: int = 1,
        active: int = 3,
        repeat: int = 1,
        on_trace: Callable[[Any], object] | None = None,
        **options: Any,
    ) -> None:
        self.directory = Path(directory)
        self.wait = whole(wait, 0, "wait is a number of batches")
        self.warmup = whole(warmup, 0, "warmup is a number of batches")
        self.active = whole(active, 1, "active is a number of batches")
        self.repeat = whole(repeat, 1, "repeat is a number of traces")
        self._handle = on_trace
        self.options = options
        self.traces: list[Path] = []
        """The files that were written."""
        self._profile: torch.profiler.profile | None = None
        self._left = 0
        self._step = 0

    def on_train_begin(self, loop: Loop) -> None:
        self.follow(loop)
        schedule = torch.profiler.schedule(
            wait=self.wait, warmup=self.warmup, active=self.active, repeat=self.repeat
        )
        self._left = (self.wait + self.warmup + self.active) * self.repeat
        self._profile = torch.profiler.profile(
            schedule=schedule, on_trace_ready=self._write, **self.options
        )
        self._profile.start()

    def on_train_batch_end(self, step: int) -> None:
        if self._profile is None:
            return
        self._step = step
        self._profile.step()
        self._left -= 1
        if not self._left:
            self._stop()

    def on_train_end(self) -> None:
        self._stop()

    def _stop(self) -> None:
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.stop()

    def _write(self, profile: torch.profiler.profile) -> None:
        if self._handle is not None:
            self._handle(profile)
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"trace-{self._step}.json"
        profile.export_chrome_trace(str(path))
        self.traces.append(path)
