"""Spans of a run that have logs of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lifecycle.logs import Logs, Means, admit

__all__ = ["Run", "Span"]


class Span:
    """A part of a run that has logs at its end: what ``loop.log`` gets while it is innermost."""

    __slots__ = ("_own", "logs")

    def __init__(self) -> None:
        self.logs = Logs()
        """What its end point carries."""
        self._own = Means()

    def log(self, metrics: Mapping[str, Any], reduce: str) -> None:
        """Have metrics in the logs of the end, reduced with what was logged here before."""
        for key, value in metrics.items():
            self._own.open(key, reduce).add(admit(key, value), 1)
            self.logs[key] = self._own.result(key)

    def closing(self) -> Logs:
        """Return the logs that its end point carries."""
        return self.logs

    def place(self) -> str:
        """Say in words where it stands."""
        return ""


class Run(Span):
    """A run of training, at whose end stand the logs of its last epoch."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        super().__init__()
        self.last: Logs | None = None
        """The logs of the epoch that ended last."""

    def closing(self) -> Logs:
        """Return the logs of the last epoch, and what was logged outside of all epochs."""
        if self.last is None:
            return self.logs
        if not self.logs:
            self.logs = self.last
            return self.logs
        logs = Logs()
        logs.take(self.last)
        logs.take(self.logs)
        self.logs = logs
        return logs
