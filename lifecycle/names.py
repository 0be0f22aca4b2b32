"""The points' names as types, so that editors complete them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeVar, Unpack, overload

from eventbus import Options

__all__ = ["On", "PointName"]

F = TypeVar("F", bound=Callable[..., Any])

PointName = Literal[
    "train_begin",
    "epoch_begin",
    "train_batch_begin",
    "train_batch_end",
    "epoch_end",
    "train_end",
    "test_begin",
    "test_batch_begin",
    "test_batch_end",
    "test_end",
    "predict_begin",
    "predict_batch_begin",
    "predict_batch_end",
    "predict_end",
    "backward_end",
    "optimizer_step_begin",
    "optimizer_step_end",
    "exception",
    "stop_requested",
    "checkpoint_saved",
    "checkpoint_loaded",
    "batch_begin",
    "batch_end",
]
"""The points of `lifecycle.points.POINTS` and their aliases; a test holds them equal."""


class On(Protocol):
    """The type of `lifecycle.on`: completes the names, takes any, keeps the function's type."""

    @overload
    def __call__(self, *points: PointName, **options: Unpack[Options]) -> Callable[[F], F]: ...
    @overload
    def __call__(self, *points: str, **options: Unpack[Options]) -> Callable[[F], F]: ...
