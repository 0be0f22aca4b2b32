"""The recorder and the ten subscribers that every sender runs, and what they have to show."""

from __future__ import annotations

import csv
import math
import tempfile
from collections.abc import Callable, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eventbus import Bus
from lifecycle.points import declare
from lifecycle.subscribers import EMA, CSVLogger, EarlyStopping, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lifecycle import Loop

SCENARIOS = (
    "plain",
    "stop in a batch",
    "stop at an epoch's begin",
    "stop at train_begin",
    "stop in validation",
    "stop_epoch",
    "failure",
    "interruption",
    "late connecting",
)

Trace = list[list[Any]]


class Failure(Exception):  # noqa: N818 -- the name is part of the trace
    """What the scenario raises."""


class Watch:
    """An object with Keras's method names."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.seen.append("train_begin")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.seen.append(["epoch_begin", epoch])

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(["train_batch_end", batch])

    def on_test_end(self, logs: Any = None) -> None:
        self.seen.append("test_end")

    def on_train_end(self, logs: Any = None) -> None:
        self.seen.append("train_end")


class Ten:
    """The subscribers of one run on a bus of their own."""

    def __init__(self, folder: Path) -> None:
        self.bus = declare(Bus(sender="loop"))
        self.trace: Trace = []
        self.every: list[int] = []
        self.once: list[int] = []
        self.late: list[int] = []
        self.means: list[float] = []
        self.watch = Watch()
        self.stopping = EarlyStopping("val_loss", patience=50, restore_best=False)
        self.ema = EMA("model", decay=0.5)
        self.csv = folder / "log.csv"
        bus = self.bus
        bus.connect("*", self.record, priority="LOWEST", name="recorder")
        bus.connect("epoch_end", self.gap, name="gap")
        bus.connect("train_batch_end", self.second, every=2)
        bus.connect("epoch_begin", self.one, start=1, once=True)
        bus.connect("train_batch_end", self.mean, priority="HIGH")
        for each in (
            self.watch,
            self.stopping,
            Schedule(lambda epoch: 0.1 / (epoch + 1), "optimizer", "lr"),
            CSVLogger(self.csv),
            self.ema,
        ):
            bus.attach(each)

    def record(self, signal: str, **payload: Any) -> None:
        self.trace.append([signal, {key: _plain(key, value) for key, value in payload.items()}])

    def gap(self, logs: MutableMapping[str, Any]) -> None:
        if "val_loss" in logs and "loss" in logs:
            logs["gap"] = logs["val_loss"] - logs["loss"]

    def second(self, step: int) -> None:
        self.every.append(step)

    def one(self, epoch: int) -> None:
        self.once.append(epoch)

    def mean(self, logs: Any) -> None:
        self.means.append(logs.mean("loss"))

    def shown(self, loop: Loop) -> dict[str, Any]:
        """Return what each has to show, the history included."""
        return {
            "every second step": self.every,
            "once": self.once,
            "late": self.late,
            "running means": self.means,
            "Keras's names": self.watch.seen,
            "EarlyStopping": [self.stopping.best, self.stopping.best_epoch],
            "EMA": self.ema.updates,
            "CSVLogger": [
                {key: _number(cell) for key, cell in row.items()}
                for row in csv.DictReader(self.csv.read_text().splitlines())
            ],
            "History": loop.history.rows if loop.history is not None else None,
        }


def _number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell


def _plain(key: str, value: Any) -> Any:
    if key == "logs":
        return {name: value[name] for name in sorted(value)}
    if key in ("data", "outputs"):
        return value is not None
    if key == "error":
        return None if value is None else type(value).__name__
    if key == "reasons":
        return [str(reason) for reason in value]
    if key in ("where", "requester"):
        return bool(value)
    return value


def arrange(ten: Ten, scenario: str) -> None:
    """Have happen what a scenario is about."""
    bus = ten.bus

    def fail() -> None:
        raise Failure("on purpose")

    def interrupt() -> None:
        raise KeyboardInterrupt

    def join() -> None:
        bus.connect("train_batch_end", lambda step: ten.late.append(step))

    def stop(loop: Loop) -> None:
        loop.stop("enough")

    actions: dict[str, tuple[str, Callable[..., None], dict[str, Any]]] = {
        "stop in a batch": ("train_batch_end", stop, {"at": 4}),
        "stop at an epoch's begin": ("epoch_begin", stop, {"at": 1}),
        "stop at train_begin": ("train_begin", stop, {}),
        "stop in validation": ("test_batch_end", stop, {"at": 0}),
        "stop_epoch": ("train_batch_end", lambda loop: loop.stop_epoch(), {"at": 1}),
        "failure": ("train_batch_end", fail, {"at": 4}),
        "interruption": ("train_batch_end", interrupt, {"at": 4}),
        "late connecting": ("train_batch_end", join, {"at": 3}),
    }
    if scenario in actions:
        point, action, options = actions[scenario]
        bus.connect(point, action, **options)


@contextmanager
def subscribed(scenario: str) -> Iterator[Ten]:
    with tempfile.TemporaryDirectory() as folder:
        ten = Ten(Path(folder))
        arrange(ten, scenario)
        yield ten


def observed(
    scenario: str, train: Callable[[Ten], tuple[Loop, Callable[[], float], list[Any]]]
) -> dict[str, Any]:
    """Run a scenario and return all there is to compare.

    Args:
        scenario: which.
        train: trains with the ten, and returns the loop, what reads the weight, and what the
            framework's own callbacks have noted. What it raises must have ``made`` on it.
    """
    with subscribed(scenario) as ten:
        raised = None
        try:
            made = train(ten)
        except (Failure, KeyboardInterrupt) as error:
            raised = type(error).__name__
            made = error.made  # type: ignore[union-attr]
        loop, weight, native = made
        value = weight()
        assert math.isfinite(value)
        return {
            "trace": ten.trace,
            "shown": ten.shown(loop),
            "weight": value,
            "native": native,
            "raised": raised,
        }


@contextmanager
def with_made(made: Any) -> Iterator[None]:
    """Put on an error what the run has made, for `observed`."""
    try:
        yield
    except (Failure, KeyboardInterrupt) as error:
        error.made = made  # type: ignore[union-attr]
        raise
