"""Passes over test data and data to predict, alone or inside of training."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from lifecycle.batches import Pass, Prediction
from lifecycle.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lifecycle.control import Control
    from lifecycle.data import Feed
    from lifecycle.logs import Logs

__all__ = ["predict_stage", "run_predict", "run_test", "test_stage"]


def test_stage(loop: Control, name: str | None, epoch: int | None) -> tuple[Stage, Pass]:
    """Enter a test stage.

    Args:
        loop: whose.
        name: of the set of data, if it has one.
        epoch: the training epoch that it belongs to.
    """
    title = "test " if epoch is None else f"validation of epoch {epoch}, "
    if name is not None:
        title = f"{title.rstrip(', ')} on {name!r}, "
    stage = Stage(loop, "test", ends=lambda: (name, epoch))
    return stage, _enter(loop, stage, Pass, (name, epoch), title)


def predict_stage(loop: Control) -> tuple[Stage, Pass]:
    """Enter a predict stage."""
    stage = Stage(loop, "predict")
    return stage, _enter(loop, stage, Prediction, (), "prediction ")


def _enter(
    loop: Control, stage: Stage, kind: type[Pass], context: tuple[Any, ...], title: str
) -> Pass:
    begin, end = (loop.emitter(f"{stage.kind}_batch_{which}") for which in ("begin", "end"))
    made = kind(loop.state, stage, stage.kind, begin, end, context, title)
    stage.enter(made)
    loop.state.passes.append(made)
    return made


def run_test(
    loop: Control,
    step: Callable[[Any], Any],
    feed: Feed,
    *,
    name: str | None = None,
    epoch: int | None = None,
    steps: int | None = None,
    limit: Callable[[Iterator[Any]], Iterator[Any]] = iter,
) -> tuple[Stage, Logs]:
    """Go through test data once; return the stage and the logs of its end."""
    stage, made = test_stage(loop, name, epoch)
    with stage:
        stage.begin(name, epoch, length(feed, steps))
        if not made.halted():
            made.run(limited(limit(feed.open(epoch)), steps), step)
        fill(made)
    return stage, made.logs


def run_predict(
    loop: Control, step: Callable[[Any], Any], feed: Feed, *, steps: int | None = None
) -> list[Any]:
    """Go through data once and return what the step makes of each batch."""
    outputs: list[Any] = []

    def predict(data: Any) -> Any:
        outputs.append(step(data))
        return outputs[-1]

    stage, made = predict_stage(loop)
    with stage:
        stage.begin(length(feed, steps))
        if not made.halted():
            made.run(limited(feed.open(None), steps), predict)
        fill(made)
    return outputs


def fill(made: Pass) -> None:
    """Put what the metrics come to into the logs of a pass whose batches are over."""
    for key, value in made.means.results().items():
        made.logs[key] = value


def length(feed: Feed, steps: int | None) -> int | None:
    """Return how many batches there will be, None where that is unknown."""
    size = len(feed) or None
    if steps is None or size is None:
        return steps if size is None else size
    return min(size, steps)


def limited(batches: Iterable[Any], steps: int | None) -> Iterable[Any]:
    """Return the batches, as many as there may be."""
    return batches if steps is None else islice(batches, steps)
