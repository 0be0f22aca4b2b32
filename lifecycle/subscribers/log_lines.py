"""One line of text and one of JSON per interval."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from lifecycle.subscribers.checks import file, whole
from lifecycle.subscribers.memory import OneLoop
from lifecycle.subscribers.text import duration, metrics, numbers, running

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import TextIO

    from lifecycle.loop import Loop

__all__ = ["LogLines"]


class LogLines(OneLoop):
    """Write a line per interval: smoothed metrics, learning rate, times, what is left, memory.

    Keras: none. OpenMMLab: ``TextLoggerHook``, ``LoggerHook``.

    A line of training shows the means over the interval. An epoch shorter than the
    interval still has its own line, at its end. The JSON file has one object per line
    with the same values; a number that JSON cannot hold (NaN, infinity) is null. A run
    that goes on from step n drops the file's lines from n on.

    Args:
        every: How many steps make an interval.
        path: Where the JSON lines go; nowhere by default.
        stream: Where the text lines go; standard error by default.
        quiet: Write no text lines.
        append: Keep the JSON lines of earlier runs also where this run begins anew.
    """

    priority: ClassVar[str] = "LOW"

    def __init__(
        self,
        every: int = 100,
        *,
        path: str | os.PathLike[str] | None = None,
        stream: TextIO | None = None,
        quiet: bool = False,
        append: bool = False,
    ) -> None:
        self.every = whole(every, 1, "every is a number of steps")
        self.path = None if path is None else file(path)
        self.stream = stream
        self.quiet = quiet
        self.append = append
        self._start()

    def _start(self) -> None:
        self._epochs: int | None = None
        self._steps: int | None = None
        self._began = self._mark = perf_counter()
        self._batches = 0
        self._new_interval()
        self._forget_means()

    def on_train_begin(
        self, loop: Loop, epochs: int | None, initial_epoch: int, steps_per_epoch: int | None
    ) -> None:
        self.follow(loop)
        self._start()
        self._epochs, self._steps = epochs, steps_per_epoch
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _trim(self.path, loop.state.steps_done, initial_epoch, keep=self.append)

    def on_epoch_begin(self, steps_per_epoch: int | None) -> None:
        self._steps = steps_per_epoch
        self._mark = perf_counter()
        self._forget_means()

    def on_train_batch_begin(self) -> None:
        now = perf_counter()
        self._data_time += now - self._mark
        self._mark = now

    def on_train_batch_end(
        self, loop: Loop, batch: int, logs: Mapping[str, Any], epoch: int, step: int
    ) -> None:
        now = perf_counter()
        self._step_time += now - self._mark
        self._mark = now
        self._interval += 1
        self._batches += 1
        if (step + 1) % self.every == 0:
            self.follow(loop)
            self._emit("train", loop, {"epoch": epoch, "batch": batch}, self._smoothed(logs, batch))
            self._new_interval()

    def on_epoch_end(self, loop: Loop, epoch: int, logs: Mapping[str, Any]) -> None:
        self.follow(loop)
        self._emit("epoch", loop, {"epoch": epoch}, numbers(logs))
        self._new_interval()

    def on_test_end(
        self, loop: Loop, logs: Mapping[str, Any], epoch: int | None, name: str | None
    ) -> None:
        if epoch is None:  # inside a run, the epoch's line has these
            self._emit("test", loop, {"name": name} if name else {}, numbers(logs))

    def _new_interval(self) -> None:
        self._interval = 0
        self._data_time = self._step_time = 0.0

    def _forget_means(self) -> None:
        self._means: dict[str, tuple[float, int]] = {}

    def _smoothed(self, logs: Mapping[str, Any], batch: int) -> dict[str, float]:
        """Return the means since the last line, from the epoch's running means then and now.

        So a metric is read once per line, not once per batch.
        """
        count, smooth = batch + 1, {}
        for name, mean in running(logs).items():
            before, counted = self._means.get(name, (0.0, 0))
            if counted >= count or not math.isfinite(before):
                before, counted = 0.0, 0
            smooth[name] = (mean * count - before * counted) / (count - counted)
            self._means[name] = (mean, count)
        return smooth

    def _emit(
        self, stage: str, loop: Loop, place: dict[str, Any], values: dict[str, float]
    ) -> None:
        record: dict[str, Any] = {"stage": stage, **place, "step": loop.state.step}
        facts = dict(values)
        if stage != "test":
            facts |= self._facts(loop, values)
        facts |= _memory()
        if not self.quiet:
            print(self._line(record, values, facts), file=self.stream or sys.stderr, flush=True)
        if self.path is not None:
            row = {"time": time.time(), **record, **facts, **record}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({key: _plain(value) for key, value in row.items()}) + "\n")

    def _facts(self, loop: Loop, values: Mapping[str, float]) -> dict[str, float]:
        facts: dict[str, float] = {}
        rate = values.get("lr", _learning_rate(loop))
        if rate is not None:
            facts["lr"] = rate
        if self._interval:
            facts["data_time"] = self._data_time / self._interval
            facts["step_time"] = self._step_time / self._interval
        if self._epochs and self._steps and self._batches:
            left = self._epochs * self._steps - loop.state.steps_done
            facts["eta"] = max(left, 0) * (perf_counter() - self._began) / self._batches
        return facts

    def _line(
        self, record: Mapping[str, Any], values: Mapping[str, float], facts: Mapping[str, Any]
    ) -> str:
        parts = []
        if "epoch" in record:
            of = f"/{self._epochs}" if self._epochs else ""
            parts.append(f"epoch {record['epoch'] + 1}{of}")
        if "batch" in record:
            of = f"/{self._steps}" if self._steps else ""
            parts.append(f"batch {record['batch'] + 1}{of}")
        if record["stage"] == "test":
            parts.append(" ".join(["test", *filter(None, [record.get("name")])]))
        parts.append(metrics(values))
        if "lr" in facts and "lr" not in values:
            parts.append(f"lr {facts['lr']:.4g}")
        if "data_time" in facts:
            data, step = (1e3 * facts[name] for name in ("data_time", "step_time"))
            parts.append(f"data {data:.3g}ms step {step:.3g}ms")
        if "eta" in facts:
            parts.append(f"eta {duration(facts['eta'])}")
        if "memory" in facts:
            parts.append(f"{facts['memory']:.0f} MiB")
        return " | ".join(filter(None, parts))


def _learning_rate(loop: Loop) -> float | None:
    """Return the first learning rate of the loop's first optimizer, if it has one."""
    for thing in loop.objects.values():
        groups = getattr(thing, "param_groups", None)
        if groups and "lr" in groups[0]:
            return float(groups[0]["lr"])
    return None


def _memory() -> dict[str, float]:
    """Return the process's peak memory in MiB, and the CUDA device's where torch uses one."""
    facts: dict[str, float] = {}
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        pass
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        facts["memory"] = peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        facts["cuda_memory"] = torch.cuda.max_memory_allocated() / (1 << 20)
    return facts


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _trim(path: Path, start: int, epoch: int, *, keep: bool) -> None:
    """Drop a file's lines of steps from `start` on and of ends from `epoch` on; a torn last line.

    The end of an epoch that a stop has cut belongs to a step before `start`.
    """
    lines: list[str] = []
    if (start or keep) and path.exists():
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = text[: text.rfind("\n") + 1].splitlines(keepends=True)
    while start and lines and _is_later(lines[-1], start, epoch):
        lines.pop()
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    beside.write_text("".join(lines), encoding="utf-8")
    beside.replace(path)


def _is_later(line: str, start: int, epoch: int) -> bool:
    """Whether a line tells of this step or a later one, or of the end of this epoch or later."""
    try:
        row = json.loads(line)
        return int(row["step"]) >= start or (row["stage"] == "epoch" and int(row["epoch"]) >= epoch)
    except (ValueError, TypeError, LookupError):
        return False
