"""Every point of a run's life in one table: its payload, its index, its meaning.

All else reads this table: the default bus and each loop's bus are declared from
it, ``docs/points.md`` and ``lifecycle points`` are rendered from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eventbus import Bus

__all__ = ["POINTS", "Point", "declare", "markdown", "page"]


class Point:
    """A named place in a run's life.

    Args:
        name: canonical name, without ``on_``.
        stage: ``train``, ``test``, ``predict``, ``step`` (inside a training step) or ``any``.
        payload: what the point carries. Keras's positional order comes first.
        meaning: when it is sent, and what its payload says.
        index: the payload key that ``every``, ``at``, ``start`` and ``stop`` look at.
        aliases: other names that mean the same point.
    """

    __slots__ = ("aliases", "index", "meaning", "name", "payload", "stage")

    def __init__(
        self,
        name: str,
        stage: str,
        payload: tuple[str, ...],
        meaning: str,
        index: str | None = None,
        aliases: tuple[str, ...] = (),
    ) -> None:
        self.name, self.stage, self.payload, self.meaning = name, stage, payload, meaning
        self.index, self.aliases = index, aliases

    def __repr__(self) -> str:
        return f"<Point {self.name}({', '.join(self.payload)})>"


POINTS: tuple[Point, ...] = (
    Point(
        "train_begin",
        "train",
        ("logs", "epochs", "initial_epoch", "steps_per_epoch"),
        "A training run begins. `epochs` and `steps_per_epoch` are None where unknown;"
        " `initial_epoch` is the first epoch that will run.",
    ),
    Point(
        "epoch_begin",
        "train",
        ("epoch", "logs", "steps_per_epoch"),
        "An epoch begins; no batch of it was drawn yet.",
        index="epoch",
    ),
    Point(
        "train_batch_begin",
        "train",
        ("batch", "logs", "data", "epoch", "step"),
        "A batch was drawn (`data`) and its step is about to run; `skip_batch()` here leaves it"
        " out.",
        index="step",
        aliases=("batch_begin",),
    ),
    Point(
        "train_batch_end",
        "train",
        ("batch", "logs", "data", "epoch", "step", "outputs", "skipped"),
        "A batch's step has run. `logs` holds this batch's values, `logs.mean(name)` the running"
        " mean with this batch in it; `outputs` is what the step returned.",
        index="step",
        aliases=("batch_end",),
    ),
    Point(
        "epoch_end",
        "train",
        ("epoch", "logs", "partial"),
        "An epoch has ended, its validation included: `logs` holds the means and `val_*`."
        " `partial` is true where a stop cut the epoch or its validation short.",
        index="epoch",
    ),
    Point(
        "train_end",
        "train",
        ("logs", "outcome", "reasons", "error"),
        "The run has ended, sent exactly once whatever happened. `logs` are the last epoch's;"
        " `outcome` is completed, stopped, interrupted, failed or left; `reasons` are the stop"
        " requests; `error` is the exception that ended it, if any.",
    ),
    Point(
        "test_begin",
        "test",
        ("logs", "name", "epoch", "steps"),
        "A pass over test or validation data begins. `name` is the validation set's, if it has"
        " one; `epoch` the training epoch it belongs to, None alone.",
    ),
    Point(
        "test_batch_begin",
        "test",
        ("batch", "logs", "data", "name", "epoch"),
        "A test batch was drawn and its step is about to run.",
        index="batch",
    ),
    Point(
        "test_batch_end",
        "test",
        ("batch", "logs", "data", "name", "epoch", "outputs", "skipped"),
        "A test batch's step has run; `logs` as at train_batch_end.",
        index="batch",
    ),
    Point(
        "test_end",
        "test",
        ("logs", "name", "epoch", "outcome", "reasons", "error"),
        "The pass has ended; `logs` holds its means, without a `val_` prefix.",
    ),
    Point(
        "predict_begin",
        "predict",
        ("logs", "steps"),
        "A prediction pass begins.",
    ),
    Point(
        "predict_batch_begin",
        "predict",
        ("batch", "logs", "data"),
        "A batch to predict was drawn.",
        index="batch",
    ),
    Point(
        "predict_batch_end",
        "predict",
        ("batch", "logs", "data", "outputs", "skipped"),
        "A batch was predicted: `outputs`, also in `logs` as Keras has it.",
        index="batch",
    ),
    Point(
        "predict_end",
        "predict",
        ("logs", "outcome", "reasons", "error"),
        "The prediction pass has ended.",
    ),
    Point(
        "backward_end",
        "step",
        ("loss", "epoch", "batch", "step"),
        "The gradients of this batch's `loss` are there.",
        index="step",
    ),
    Point(
        "optimizer_step_begin",
        "step",
        ("update", "step", "optimizer"),
        "The optimizer is about to change the parameters; gradients are unscaled and clipped.",
        index="update",
    ),
    Point(
        "optimizer_step_end",
        "step",
        ("update", "step", "optimizer", "skipped"),
        "The optimizer has changed the parameters, or `skipped` them on an overflow.",
        index="update",
    ),
    Point(
        "exception",
        "any",
        ("error", "stage", "where"),
        "An exception is about to end a stage: the last thing sent before its end point."
        " `where` says in words where in the loop it came from.",
    ),
    Point(
        "stop_requested",
        "any",
        ("reason", "requester"),
        "Someone asked the loop to stop; sent in the thread that asked.",
    ),
    Point(
        "checkpoint_saved",
        "any",
        ("path", "epoch", "step", "best"),
        "A checkpoint is complete and safe on the disk; `best` says whether it is the best so far.",
    ),
    Point(
        "checkpoint_loaded",
        "any",
        ("path", "epoch", "step"),
        "A checkpoint was restored; `epoch` and `step` are where the run goes on.",
    ),
)
"""The points in the order of a run."""


def declare(bus: Bus, points: Iterable[Point] = POINTS) -> Bus:
    """Declare points on a bus and return the bus.

    Args:
        bus: Where to declare them.
        points: Which; all by default.
    """
    for point in points:
        bus.declare(
            point.name,
            payload=point.payload,
            count=point.index,
            aliases=point.aliases,
            doc=point.meaning,
        )
    return bus


def markdown(points: Iterable[Point] = POINTS) -> str:
    """Return the table of points in Markdown."""
    lines = ["| point | stage | carries | meaning |", "|---|---|---|---|"]
    for point in points:
        name = f"`{point.name}`" + "".join(f"<br>`{alias}`" for alias in point.aliases)
        carries = ", ".join(
            f"**`{key}`**" if key == point.index else f"`{key}`" for key in point.payload
        )
        lines.append(f"| {name} | {point.stage} | {carries} | {point.meaning} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return what ``docs/points.md`` holds."""
    return _HEAD + markdown()


_HEAD = """# Points

Every point of a run's life, in the order of a run: what it carries and what it means. The
key in bold is the point's index, which `every=`, `at=`, `start=` and `stop=` go by. Besides
its payload, every point gives a receiver `loop` (also as `sender`) and `signal`, its name.

This page is `lifecycle.points.page()`; `tests/lifecycle/test_points.py` fails when it is not
up to date.

"""
