"""How metrics and durations read."""

from __future__ import annotations

from typing import Any

import pytest

from lifecycle.subscribers.text import duration, metrics, numbers, running


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.421, "0.42s"),
        (9.994, "9.99s"),
        (12.3, "12s"),
        (59.6, "1m00s"),
        (185, "3m05s"),
        (7380, "2h03m"),
        (100_800, "1d04h"),
    ],
)
def test_a_duration_reads_at_a_glance(seconds: float, text: str) -> None:
    """The two largest units are shown."""
    assert duration(seconds) == text


def test_numbers_leaves_out_what_is_none() -> None:
    """Texts and arrays in the logs are not numbers, even where a text looks like one."""
    assert numbers({"a": 1, "b": "2", "c": [1, 2], "d": True, "e": None}) == {"a": 1.0, "d": 1.0}


def test_running_takes_the_mean_where_there_is_one() -> None:
    """A key that subscribers added is not averaged and is shown as it is."""

    class Logs(dict[str, Any]):
        def mean(self, name: str) -> float:
            return {"loss": 0.5}[name]

    assert running(Logs(loss=1.0, lr=0.1, note="x")) == {"loss": 0.5, "lr": 0.1}
    assert running({"loss": 1.0}) == {"loss": 1.0}


def test_metrics_are_one_line() -> None:
    """Floats have four digits, other values are written as they are."""
    assert metrics({"loss": 0.123456, "n": 3}) == "loss 0.1235 - n 3"
    assert metrics({}) == ""
