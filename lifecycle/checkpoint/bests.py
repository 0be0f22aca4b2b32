"""Which checkpoint is the best, by one metric or by several."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

from lifecycle.checkpoint.store import BEST
from lifecycle.subscribers.monitor import Monitor

__all__ = ["Bests"]

AUTO: Final = "auto"


class Bests:
    """The metrics that decide, and what was the best of each.

    Args:
        metrics: one name or several, None for none; ``auto`` for the first of the
            validation whose name tells which way is better.
        mode: ``min``, ``max`` or ``auto``, for all of them.

    Raises:
        TypeError: a name is not a string.
        ValueError: a name is there twice, the mode is unknown, or ``auto`` cannot tell.
    """

    def __init__(self, metrics: str | Sequence[str] | None, mode: str = AUTO) -> None:
        self.mode = mode
        self.auto = metrics == AUTO
        names = [] if metrics is None or self.auto else metrics
        self.monitors = [Monitor(n, mode) for n in ([names] if isinstance(names, str) else names)]
        if len({monitor.metric for monitor in self.monitors}) != len(self.monitors):
            raise ValueError(f"a metric decides once, but save_best has {list(names)}")
        self.value: float | None = None
        """The first metric's value when it was looked at last."""

    @property
    def metric(self) -> str | None:
        """The first metric's name."""
        return self.monitors[0].metric if self.monitors else None

    def reset(self) -> None:
        """Forget all values."""
        self.value = None
        for monitor in self.monitors:
            monitor.reset()
        if self.auto:
            self.monitors = []

    def update(self, logs: Mapping[str, Any]) -> tuple[str, ...]:
        """Look at an epoch's metrics; return the names that its checkpoint gets as the best."""
        if self.auto and not self.monitors:
            self.monitors = self._first_that_tells(logs)
        self.value = None
        names: list[str] = []
        for monitor in self.monitors:
            value = monitor.read_or_warn(logs, "Checkpoint")
            first = monitor is self.monitors[0]
            self.value = value if first else self.value
            if value is not None and monitor.update(value):
                names += [BEST] * first
                if len(self.monitors) > 1:
                    names.append(f"{BEST}-{quote(monitor.metric, safe='')}")
        return tuple(names)

    def _first_that_tells(self, logs: Mapping[str, Any]) -> list[Monitor]:
        for name in logs:
            if name.startswith("val_"):
                with suppress(ValueError):
                    return [Monitor(name, self.mode)]
        return []

    def warn_if_unseen(self, logs: Mapping[str, Any]) -> None:
        """Warn at the end of a run that never had one of the metrics."""
        for monitor in self.monitors:
            monitor.warn_if_unseen(logs, "Checkpoint")
        if self.auto and logs and not self.monitors:
            warnings.warn(
                "Checkpoint: no metric of a validation tells by its name which way is better; the"
                f" logs have {', '.join(map(repr, logs))}",
                RuntimeWarning,
                stacklevel=3,
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the best value of each metric."""
        return {"best": {monitor.metric: monitor.best for monitor in self.monitors}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the best values, of those metrics that are looked at here."""
        saved = state.get("best", {})
        if self.auto:
            self.monitors = [Monitor(metric, self.mode) for metric in saved]
        for monitor in self.monitors:
            monitor.best = saved.get(monitor.metric, monitor.best)
