"""Timer: where the time of a batch goes."""

from __future__ import annotations

import time
from time import perf_counter
from typing import TYPE_CHECKING

import pytest

from lifecycle import Loop
from lifecycle.subscribers import Timer

if TYPE_CHECKING:
    from collections.abc import Iterator


def slow_data() -> Iterator[int]:
    """Yield three batches that each take a while to come."""
    for batch in range(3):
        time.sleep(0.004)
        yield batch


def test_data_step_and_subscribers_are_told_apart() -> None:
    """Each part has the time that was spent in it, and the epoch's logs have the means."""
    loop = Loop(lambda batch: time.sleep(0.008), lambda batch: time.sleep(0.01))
    loop.on("train_batch_end")(lambda: time.sleep(0.002))
    loop.on("train_batch_begin")(lambda: time.sleep(0.002))
    timer = Timer()
    loop.attach(timer)
    history = loop.fit(lambda epoch: slow_data(), epochs=2, validation_data=[1])
    assert timer.batches == 6
    assert timer.seconds["data"] >= 0.024
    assert timer.seconds["step"] >= 0.048
    assert timer.seconds["subscribers"] >= 0.024
    assert timer.seconds["validation"] >= 0.02
    assert sum(timer.shares.values()) == pytest.approx(1.0)
    assert 3 * sum(history["step_time"]) == pytest.approx(timer.seconds["step"])
    assert {"data_time", "subscriber_time"} <= set(history.metrics)


def test_the_parts_add_up_to_the_wall_time() -> None:
    """What the parts measure leaves nothing of note of the run's time out."""
    loop = Loop(lambda batch: time.sleep(0.002))
    loop.on("train_batch_end")(lambda: time.sleep(0.001))
    timer = Timer()
    loop.attach(timer)
    began = perf_counter()
    loop.fit(range(20), epochs=2)
    assert sum(timer.seconds.values()) == pytest.approx(perf_counter() - began, rel=0.1)


def test_the_last_batch_can_be_looked_at() -> None:
    """Last has the parts of the batch that ended last."""
    loop = Loop(lambda batch: time.sleep(0.002))
    timer = Timer()
    loop.attach(timer)
    loop.fit([1], epochs=1)
    assert timer.last["step"] >= 0.002


def test_a_pass_of_its_own_is_not_the_runs_validation() -> None:
    """Evaluate after a run adds nothing to the run's times."""
    loop = Loop(lambda batch: None, lambda batch: time.sleep(0.002))
    timer = Timer()
    loop.attach(timer)
    loop.fit([1], epochs=1)
    loop.evaluate([1])
    assert timer.seconds["validation"] == 0.0


def test_totals_go_on_after_a_resume() -> None:
    """The seconds and the batches of the run before are added to."""
    before, after = Timer(), Timer()
    loop = Loop(lambda batch: None)
    loop.attach(before)
    loop.fit([1, 2], epochs=1)
    after.load_state_dict(before.state_dict())
    other = Loop(lambda batch: None)
    other.attach(after)
    other.fit([1, 2], epochs=2, initial_epoch=1)
    assert after.batches == 4
    assert after.seconds["step"] > before.seconds["step"]


def test_it_shows_the_shares() -> None:
    """Repr has the share of each part; before a run all are 0."""
    assert repr(Timer()) == "<Timer data 0%, step 0%, subscribers 0%, validation 0%>"
