"""EarlyStopping, with every option that Keras has."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lifecycle import Loop
from lifecycle.subscribers import EarlyStopping

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def run(stopping: EarlyStopping, losses: Sequence[float], **options: Any) -> Loop:
    """Run one epoch per loss with a batch that has this loss; return the loop."""
    loop = Loop(lambda batch: {"loss": batch}, objects=options.pop("objects", {}))
    loop.attach(stopping)
    loop.fit(lambda epoch: [losses[epoch]], epochs=len(losses), **options)
    return loop


def epochs_run(losses: Iterable[float], **options: Any) -> int:
    """Return how many epochs a run with these losses has."""
    return run(EarlyStopping("loss", **options), list(losses)).state.epochs_done


def test_it_stops_once_patience_is_over() -> None:
    """With patience n the run ends at the n-th epoch in a row that is not better."""
    assert epochs_run([3, 2, 2, 2, 2, 2], patience=2) == 4
    assert epochs_run([3, 2, 2, 1, 2, 2, 2], patience=2) == 6
    assert epochs_run([3, 2, 1], patience=0) == 3
    assert epochs_run([3, 3, 1], patience=0) == 2


def test_min_delta_is_how_much_better_counts() -> None:
    """An improvement of no more than min_delta is none."""
    assert epochs_run([3.0, 2.9, 2.8], patience=1, min_delta=0.5) == 2
    assert epochs_run([3.0, 2.0, 1.0], patience=1, min_delta=0.5) == 3


def test_mode_max_waits_for_higher_values() -> None:
    """Mode turns the comparison round."""
    assert epochs_run([1, 2, 3, 3], patience=1, mode="max") == 4
    assert epochs_run([3, 2, 1], patience=1, mode="max") == 2


def test_the_baseline_must_be_beaten_for_the_waiting_to_start_anew() -> None:
    """Improving without beating the baseline does not reset the waiting."""
    assert epochs_run([5, 4, 3, 2], patience=2, baseline=1.0) == 4
    assert epochs_run([5, 4, 4, 2], patience=2, baseline=1.0) == 3
    assert epochs_run([5, 0.5, 0.4, 0.3], patience=2, baseline=1.0) == 4


def test_epochs_before_the_start_are_not_looked_at() -> None:
    """start_from_epoch leaves the first epochs out, their best values included."""
    assert epochs_run([1, 9, 8, 7, 7], patience=1, start_from_epoch=2) == 5
    assert epochs_run([1, 9, 8, 7, 6], patience=1, start_from_epoch=2) == 5


def test_the_first_epoch_never_stops_the_run() -> None:
    """With patience 0 a NaN in the first epoch does not stop it yet, one in the second does."""
    assert epochs_run([float("nan"), float("nan"), 1.0], patience=0) == 2


def test_the_reason_says_what_did_not_improve() -> None:
    """The stop carries a reason with the metric, its best value and that value's epoch."""
    loop = run(EarlyStopping("loss", patience=2), [3, 2, 2, 2, 2])
    assert "loss has not improved on 2.0 (epoch 1) for 2 epochs" in str(loop.state.reasons)


def test_a_missing_metric_is_answered_with_the_names_that_are_there() -> None:
    """The run goes on, and a warning lists the metrics of the logs."""
    message = "EarlyStopping: no metric 'los' .*'loss'; did you mean 'loss'"
    with pytest.warns(RuntimeWarning, match=message):
        run(EarlyStopping("los", mode="min"), [1, 1, 1])


def test_epochs_without_validation_are_not_counted() -> None:
    """With validation every second epoch, patience counts the epochs that have it."""
    loop = Loop(lambda batch: {"loss": 1.0}, lambda batch: {"loss": 1.0})
    loop.attach(EarlyStopping("val_loss", patience=2))
    loop.fit([1], epochs=20, validation_data=[1], validation_freq=2)
    assert loop.state.epochs_done == 6


def test_a_run_without_validation_is_told_at_its_end() -> None:
    """Waiting for a val_ metric that never came gives a warning."""
    with pytest.warns(RuntimeWarning, match="no metric 'val_loss'"):
        run(EarlyStopping(), [1, 1])


def test_restore_best_puts_the_best_epochs_objects_back() -> None:
    """At the end the objects are those of the epoch with the best value."""
    weights = np.zeros(1)
    loop = Loop(lambda batch: {"loss": batch}, objects={"model": {"w": weights}})
    loop.on("epoch_begin")(lambda epoch: weights.fill(epoch))
    stopping = EarlyStopping("loss", patience=2, restore_best=True)
    loop.attach(stopping)
    losses = [3, 1, 2, 2, 2]
    loop.fit(lambda epoch: [losses[epoch]], epochs=5)
    assert stopping.best_epoch == 1
    assert weights.tolist() == [1.0]


def test_the_objects_are_restored_whoever_ends_the_run() -> None:
    """A run that reaches its last epoch, or is stopped by another, has the best objects too."""
    weights = np.zeros(1)
    loop = Loop(lambda batch: {"loss": batch}, objects={"w": weights})
    loop.on("epoch_begin")(lambda epoch: weights.fill(epoch))
    loop.attach(EarlyStopping("loss", patience=9, restore_best=True))
    loop.fit(lambda epoch: [[3, 1, 2][epoch]], epochs=3)
    assert weights.tolist() == [1.0]
    loop.on("epoch_end", at=[1])(lambda: loop.stop("enough"))
    loop.fit(lambda epoch: [[1, 3, 2][epoch]], epochs=3)
    assert weights.tolist() == [0.0]


def test_a_run_that_failed_keeps_its_objects() -> None:
    """After an error nothing is restored: what is saved must be able to go on."""
    weights = np.zeros(1)

    def step(batch: int) -> dict[str, float]:
        weights.fill(batch)
        return {"loss": float(1 / (9 - batch))}

    loop = Loop(step, objects={"w": weights})
    loop.attach(EarlyStopping("loss", patience=9, restore_best=True))
    with pytest.raises(ZeroDivisionError):
        loop.fit(lambda epoch: [[1, 5, 9][epoch]], epochs=3)
    assert weights.tolist() == [9.0]


def test_restoring_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Which epoch's objects are in place now is said on the logger."""
    with caplog.at_level(logging.INFO, "lifecycle"):
        run(EarlyStopping("loss", restore_best=True), [2, 1], objects={"a": {}})
    assert "restored the objects of epoch 1" in caplog.text


def test_a_second_run_starts_afresh() -> None:
    """The waiting and the best value of one run do not reach into the next."""
    stopping = EarlyStopping("loss", patience=2)
    run(stopping, [1, 1, 1, 1])
    assert run(stopping, [5, 4, 3, 3, 3, 3]).state.epochs_done == 5


def test_a_resumed_run_stops_where_an_uninterrupted_one_does() -> None:
    """The saved waiting, best value and best objects are gone on with."""
    losses = [3, 1, 2, 2, 2, 2]
    whole = EarlyStopping("loss", patience=3)
    assert run(whole, losses).state.epochs_done == 5
    first, second = EarlyStopping("loss", patience=3), EarlyStopping("loss", patience=3)
    run(first, losses[:3])
    second.load_state_dict(first.state_dict())
    loop = run(second, losses, initial_epoch=3)
    assert loop.state.epoch == 4
    assert second.state_dict() == whole.state_dict()


def test_a_foreign_state_is_refused() -> None:
    """A state with other keys names what was expected and what came."""
    with pytest.raises(KeyError, match="no state of EarlyStopping"):
        EarlyStopping("loss").load_state_dict({"elapsed": 1})


@pytest.mark.parametrize("patience", [-1, 1.5])
def test_patience_is_a_number_of_epochs(patience: Any) -> None:
    """A negative or fractional patience is refused at construction."""
    with pytest.raises(ValueError, match="patience is a number of epochs"):
        EarlyStopping("loss", patience=patience)


def test_it_shows_how_far_it_is() -> None:
    """Repr has the metric, its best value and the waiting."""
    assert repr(EarlyStopping("loss", patience=3)) == "<EarlyStopping loss best=None wait=0/3>"
