"""Which way a metric is better, and what is said where it is missing."""

from __future__ import annotations

import math
import warnings

import pytest

from lifecycle.subscribers.monitor import Monitor, missing_metric


@pytest.mark.parametrize(
    ("metric", "mode"),
    [
        ("loss", "min"),
        ("val_loss", "min"),
        ("val_clean_loss", "min"),
        ("mse", "min"),
        ("valid/error", "min"),
        ("val_accuracy", "max"),
        ("acc", "max"),
        ("roc-auc", "max"),
        ("bbox_mAP_50", "max"),
        ("mIoU", "max"),
        ("val_f1", "max"),
        ("val_r2", "max"),
    ],
)
def test_auto_goes_by_the_last_word_of_the_name(metric: str, mode: str) -> None:
    """With mode auto the last word that is not a number tells the direction."""
    assert Monitor(metric).mode == mode


@pytest.mark.parametrize("metric", ["accumulated", "lossy", "f1_weight", "", "42"])
def test_auto_asks_for_a_mode_where_the_name_tells_nothing(metric: str) -> None:
    """A name that only contains a known word is not guessed at; the error asks for the mode."""
    with pytest.raises(ValueError, match='say mode="min" or mode="max"'):
        Monitor(metric)


def test_bad_arguments_are_refused_at_construction() -> None:
    """A mode that does not exist, a negative min_delta and a metric without a name raise."""
    with pytest.raises(ValueError, match='must be "auto", "min" or "max", not \'down\''):
        Monitor("loss", "down")
    with pytest.raises(ValueError, match="min_delta must be 0 or more"):
        Monitor("loss", min_delta=-1)
    with pytest.raises(ValueError, match="min_delta must be 0 or more"):
        Monitor("loss", min_delta=math.nan)
    with pytest.raises(TypeError, match="named by a string, not 3"):
        Monitor(3)  # type: ignore[arg-type]


def test_only_a_strict_improvement_by_more_than_min_delta_counts() -> None:
    """Equal values, and those better by min_delta or less, are no improvement."""
    monitor = Monitor("loss", min_delta=0.5)
    assert monitor.update(2.0)
    assert not monitor.update(2.0)
    assert not monitor.update(1.5)
    assert monitor.best == 2.0
    assert monitor.update(1.4)
    assert monitor.best == 1.4


def test_a_score_of_zero_is_a_score() -> None:
    """Zero and negative values count as any other (mmcv never saved a best score of 0)."""
    monitor = Monitor("score")
    assert monitor.update(-1.0)
    assert monitor.update(0.0)
    assert monitor.best == 0.0


def test_nan_never_improves_and_is_never_kept() -> None:
    """A NaN is no improvement, not even as the first value."""
    monitor = Monitor("loss")
    assert not monitor.update(math.nan)
    assert monitor.best is None
    assert monitor.update(3.0)
    assert not monitor.update(math.nan)
    assert monitor.best == 3.0


def test_the_best_value_survives_a_round_trip() -> None:
    """What was saved is the best of the monitor that loads it."""
    monitor, other = Monitor("acc"), Monitor("acc")
    monitor.update(0.5)
    other.load_state_dict(monitor.state_dict())
    assert not other.improves(0.5)
    assert other.improves(0.6)


def test_a_target_is_reached_at_it_or_beyond_it() -> None:
    """Reaches looks in the metric's own direction."""
    assert Monitor("loss").reaches(0.1, 0.1)
    assert not Monitor("loss").reaches(0.2, 0.1)
    assert Monitor("acc").reaches(0.9, 0.8)
    assert not Monitor("acc").reaches(0.7, 0.8)


def test_the_message_lists_what_is_there_and_the_nearest() -> None:
    """A missing metric is answered with the names that are there and the nearest of them."""
    assert missing_metric("val_los", ["loss", "val_loss"]) == (
        "no metric 'val_los' in the logs, which have 'loss', 'val_loss'; did you mean 'val_loss'?"
    )
    assert missing_metric("acc", []) == "no metric 'acc' in the logs, which have nothing"


def test_a_missing_metric_is_warned_of_once() -> None:
    """The first logs without the metric give a warning, later ones none."""
    monitor = Monitor("acc")
    with pytest.warns(RuntimeWarning, match="Someone: no metric 'acc' in the logs, which have 'l'"):
        assert monitor.read_or_warn({"l": 1}, "Someone") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert monitor.read_or_warn({"l": 1}, "Someone") is None
        monitor.warn_if_unseen({"l": 1}, "Someone")


def test_an_epoch_without_validation_is_no_reason_to_warn() -> None:
    """A val_ metric missing where nothing was validated is told of at the run's end only."""
    monitor = Monitor("val_loss")
    assert monitor.read_or_warn({"loss": 1.0}, "Someone") is None
    with pytest.warns(RuntimeWarning, match="no metric 'val_loss'"):
        monitor.warn_if_unseen({"loss": 1.0}, "Someone")
    monitor.reset()
    assert monitor.read_or_warn({"loss": 1.0, "val_loss": 2.0}, "Someone") == 2.0
    monitor.warn_if_unseen({"loss": 1.0}, "Someone")


def test_a_monitor_shows_what_it_knows() -> None:
    """Repr names the metric, the direction and the best value."""
    assert repr(Monitor("loss")) == "<Monitor loss min best=None>"
