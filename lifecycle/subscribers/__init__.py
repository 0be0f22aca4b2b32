"""The standard subscribers.

Each is imported when it is first asked for, and so is what it needs beyond the
standard library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lifecycle.subscribers.csv_logger import CSVLogger
    from lifecycle.subscribers.early_stopping import EarlyStopping
    from lifecycle.subscribers.ema import EMA
    from lifecycle.subscribers.history import History
    from lifecycle.subscribers.log_lines import LogLines
    from lifecycle.subscribers.plateau import ReduceOnPlateau
    from lifecycle.subscribers.progress import Progress
    from lifecycle.subscribers.schedule import Schedule
    from lifecycle.subscribers.shutdown import GracefulShutdown
    from lifecycle.subscribers.stopping import StopOnNaN, StopOnTarget, TimeLimit
    from lifecycle.subscribers.tensorboard import TensorBoard
    from lifecycle.subscribers.timer import Timer

__all__ = [
    "EMA",
    "CSVLogger",
    "EarlyStopping",
    "GracefulShutdown",
    "History",
    "LogLines",
    "Progress",
    "ReduceOnPlateau",
    "Schedule",
    "StopOnNaN",
    "StopOnTarget",
    "TensorBoard",
    "TimeLimit",
    "Timer",
]

_MODULES = {
    "EMA": "ema",
    "CSVLogger": "csv_logger",
    "EarlyStopping": "early_stopping",
    "GracefulShutdown": "shutdown",
    "History": "history",
    "LogLines": "log_lines",
    "Progress": "progress",
    "ReduceOnPlateau": "plateau",
    "Schedule": "schedule",
    "StopOnNaN": "stopping",
    "StopOnTarget": "stopping",
    "TensorBoard": "tensorboard",
    "TimeLimit": "stopping",
    "Timer": "timer",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
