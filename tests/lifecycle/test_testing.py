"""The checker of traces."""

from __future__ import annotations

from typing import Any

import pytest

from lifecycle.testing import assert_well_formed

EPOCH = ["epoch_begin", "train_batch_begin", "train_batch_end", "epoch_end"]


@pytest.mark.parametrize(
    "events",
    [
        [],
        ["train_begin", *EPOCH, *EPOCH, "train_end"],
        ["predict_begin", "predict_batch_begin", "predict_batch_end", "predict_end"],
        ["train_begin", "epoch_begin", "test_begin", "test_end", "epoch_end", "train_end"],
        ["train_begin", *EPOCH[:2], "backward_end", "stop_requested", *EPOCH[2:], "train_end"],
        ["train_begin", *EPOCH[:2], "exception", "train_end"],
        ["train_begin", "epoch_begin", "test_begin", "exception", "test_end", "train_end"],
        [
            *["train_begin", *EPOCH[:2], "test_begin", "test_batch_begin", "exception"],
            *["test_end", *EPOCH[2:], "train_end"],
        ],
    ],
)
def test_what_nests_is_well_formed(events: list[str]) -> None:
    """Brackets, points in between, and scopes that an exception leaves open."""
    assert_well_formed(events)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (["train_begin"], "train was begun and never ended"),
        (["train_end"], "event 0: train_end without a begin"),
        (["epoch_begin"], "epoch_begin is not directly inside of train but of None"),
        (["train_begin", "train_batch_begin"], "not directly inside of epoch but of train"),
        (["train_begin", "epoch_begin", "train_end"], "event 2: train_end while epoch is open"),
        (["test_begin", "train_begin"], "train_begin is inside of test"),
        (
            ["train_begin", "epoch_begin", "epoch_begin"],
            "not directly inside of train but of epoch",
        ),
        (
            ["train_begin", "epoch_begin", "exception", *EPOCH[1:3], "train_end"],
            "train_end while epoch is open",
        ),
    ],
)
def test_what_does_not_nest_is_told(events: list[str], message: str) -> None:
    """The message says which event is wrong, and why."""
    with pytest.raises(AssertionError, match=message):
        assert_well_formed(events)


def pair(point: str, **payload: Any) -> tuple[str, dict[str, Any]]:
    return point, payload


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (
            [
                pair("test_begin"),
                pair("test_batch_begin", batch=0),
                pair("test_batch_end", batch=1),
            ],
            "test_batch_end is of batch 1, its begin of 0",
        ),
        (
            [
                pair("test_begin"),
                pair("test_batch_begin", batch=0),
                pair("test_batch_end", batch=0),
                pair("test_batch_begin", batch=2),
            ],
            "test_batch_begin is of batch 2, not of 1",
        ),
        ([pair("test_begin"), pair("test_end", outcome="good")], "has the outcome 'good'"),
    ],
)
def test_payloads_are_looked_at_too(events: list[tuple[str, dict[str, Any]]], message: str) -> None:
    """Begin and end agree in their indices, batches follow each other, outcomes are known."""
    with pytest.raises(AssertionError, match=message):
        assert_well_formed(events)
