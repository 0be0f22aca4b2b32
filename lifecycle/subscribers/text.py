"""How metrics and durations are written for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["duration", "metrics", "numbers", "running"]

MINUTE, HOUR, DAY = 60, 3600, 86400


def duration(seconds: float) -> str:
    """Return a duration as people read it: ``0.42s``, ``12s``, ``3m05s``, ``2h03m``, ``1d04h``."""
    if seconds < 10:  # noqa: PLR2004 - below this, fractions tell something
        return f"{seconds:.2f}s"
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole}s"
    if whole < HOUR:
        return f"{whole // MINUTE}m{whole % MINUTE:02d}s"
    if whole < DAY:
        return f"{whole // HOUR}h{whole % HOUR // MINUTE:02d}m"
    return f"{whole // DAY}d{whole % DAY // HOUR:02d}h"


def _number(value: Any) -> float | None:
    """Return a value as a float, or None where it is none."""
    if isinstance(value, str | bytes):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def numbers(logs: Mapping[str, Any]) -> dict[str, float]:
    """Read those values of the logs that are numbers."""
    read = ((name, _number(logs[name])) for name in logs)
    return {name: value for name, value in read if value is not None}


def running(logs: Any) -> dict[str, float]:
    """Read the running means of batch logs; a value that is not averaged, as it is."""
    read: dict[str, float] = {}
    for name in logs:
        try:
            value = _number(logs.mean(name))
        except (AttributeError, LookupError):
            value = _number(logs[name])
        if value is not None:
            read[name] = value
    return read


def metrics(values: Mapping[str, Any]) -> str:
    """Return metrics as one line: ``loss 0.1234 - val_loss 0.2``."""
    return " - ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
    )
