"""The life of a run: points to subscribe to, a loop that sends them, and what people hang on it.

Importing it imports no array library; the standard subscribers come when asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lifecycle.default import bus, on
from lifecycle.logs import Logs
from lifecycle.loop import Loop
from lifecycle.points import POINTS, Point
from lifecycle.state import State, StopRequest

if TYPE_CHECKING:
    from lifecycle.checkpoint import Checkpoint
    from lifecycle.subscribers import (
        EMA,
        CSVLogger,
        EarlyStopping,
        GracefulShutdown,
        History,
        LogLines,
        Progress,
        ReduceOnPlateau,
        Schedule,
        StopOnNaN,
        StopOnTarget,
        TensorBoard,
        TimeLimit,
        Timer,
    )

__all__ = [
    "EMA",
    "POINTS",
    "CSVLogger",
    "Checkpoint",
    "EarlyStopping",
    "GracefulShutdown",
    "History",
    "LogLines",
    "Logs",
    "Loop",
    "Point",
    "Progress",
    "ReduceOnPlateau",
    "Schedule",
    "State",
    "StopOnNaN",
    "StopOnTarget",
    "StopRequest",
    "TensorBoard",
    "TimeLimit",
    "Timer",
    "bus",
    "on",
]

_LAZY = {"Checkpoint": "lifecycle.checkpoint"}
_SUBMODULES = ("bridges", "checkpoint", "subscribers", "testing", "torch")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY.get(name, "lifecycle.subscribers")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
