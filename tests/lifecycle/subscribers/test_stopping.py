"""StopOnNaN, StopOnTarget and TimeLimit."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import Any

import pytest

from lifecycle import Loop
from lifecycle.subscribers import StopOnNaN, StopOnTarget, TimeLimit


def run(subscriber: Any, losses: list[float], epochs: int = 1, **options: Any) -> Loop:
    """Run epochs over batches with these losses and return the loop."""
    loop = Loop(lambda batch: {"loss": batch})
    loop.attach(subscriber)
    loop.fit(losses, epochs=epochs, **options)
    return loop


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_stops_the_run_at_its_batch(bad: float) -> None:
    """NaN and infinity end the run before the next batch, with a reason that says where."""
    steps: list[int] = []
    loop = Loop(lambda batch: {"loss": batch})
    loop.on("train_batch_end")(lambda step: steps.append(step))
    loop.attach(StopOnNaN())
    loop.fit([1.0, bad, 1.0, 1.0], epochs=3)
    assert steps == [0, 1]
    assert f"loss is {bad} at step 1" in str(loop.state.reasons)
    assert loop.state.outcome == "stopped"


def test_a_nan_can_be_an_error() -> None:
    """With raise_error the run fails with a FloatingPointError."""
    with pytest.raises(FloatingPointError, match="loss is nan at step 0"):
        run(StopOnNaN(raise_error=True), [math.nan])


def test_only_each_nth_batch_is_looked_at() -> None:
    """Every spares the reading of most batches; the epoch's mean is looked at in any case."""
    loop = run(StopOnNaN(every=3), [1.0, math.nan, 1.0, 1.0, 1.0], epochs=2)
    assert "at the end of epoch 0" in str(loop.state.reasons)
    loop = run(StopOnNaN(every=2), [1.0, math.nan, 1.0])
    assert "at step 1" in str(loop.state.reasons)


def test_a_metric_that_is_never_there_is_warned_of() -> None:
    """Watching a name that the logs do not have is told, once."""
    with pytest.warns(RuntimeWarning, match="StopOnNaN: no metric 'los'") as warned:
        run(StopOnNaN("los"), [1.0], epochs=3)
    assert len(warned) == 1


@pytest.mark.parametrize("every", [0, -1, 1.5])
def test_every_is_a_number_of_batches(every: Any) -> None:
    """0, negative and fractional numbers are refused."""
    with pytest.raises(ValueError, match="every is a number of batches"):
        StopOnNaN(every=every)


def test_a_target_that_is_reached_stops_the_run() -> None:
    """By epoch the epoch's mean is compared; the reason names the value and the target."""
    loop = Loop(lambda batch: {"accuracy": batch})
    loop.attach(StopOnTarget("accuracy", 0.9))
    loop.fit(lambda epoch: [[0.5, 0.9, 0.95][epoch]], epochs=3)
    assert loop.state.epoch == 1
    assert "accuracy 0.9 has reached 0.9" in str(loop.state.reasons)


def test_a_target_can_be_looked_for_at_each_step() -> None:
    """By step a batch's own value is compared."""
    loop = run(StopOnTarget("loss", 1.0, by="step"), [3.0, 1.0, 2.0])
    assert loop.state.outcome == "stopped"
    assert "loss 1.0 has reached 1.0" in str(loop.state.reasons)


def test_a_target_of_a_missing_metric_is_warned_of() -> None:
    """A name that is not in the logs is answered with those that are."""
    with pytest.warns(RuntimeWarning, match="StopOnTarget: no metric 'acc'"):
        run(StopOnTarget("acc", 1.0), [1.0])
    with pytest.raises(ValueError, match='by must be "epoch" or "step"'):
        StopOnTarget("acc", 1.0, by="batch")


def test_the_run_stops_when_its_time_is_over() -> None:
    """No batch starts after the limit."""
    loop = Loop(lambda batch: time.sleep(0.01))
    loop.attach(TimeLimit(timedelta(milliseconds=25)))
    loop.fit([0] * 1000, epochs=1)
    assert loop.state.step <= 6
    assert "the time limit of 0.025 seconds is over" in str(loop.state.reasons)


def test_time_before_a_resume_counts_unless_each_process_has_the_whole() -> None:
    """A resumed run goes on with the time that was left; per process it starts anew."""
    spent = TimeLimit(60.0)
    spent.elapsed = 59.999
    state = spent.state_dict()
    for per, outcome in (("run", "stopped"), ("process", "completed")):
        limit = TimeLimit(60.0, per=per)
        limit.load_state_dict(state)
        loop = Loop(lambda batch: time.sleep(0.002))
        loop.attach(limit)
        loop.fit([0] * 3, epochs=1)
        assert loop.state.outcome == outcome


def test_a_second_run_has_the_whole_time_again() -> None:
    """What one run spent is not taken from the next."""
    limit = TimeLimit(60.0)
    limit.load_state_dict({"elapsed": 50.0})
    run(limit, [1.0])
    assert limit.elapsed >= 50.0
    run(limit, [1.0])
    assert limit.elapsed < 50.0


@pytest.mark.parametrize("limit", [0, -1.0])
def test_a_limit_is_some_time(limit: float) -> None:
    """Zero and negative limits are refused, and so is an unknown way to count."""
    with pytest.raises(ValueError, match="a time limit is more than 0 seconds"):
        TimeLimit(limit)
    with pytest.raises(ValueError, match='per must be "run" or "process"'):
        TimeLimit(1.0, per="epoch")
