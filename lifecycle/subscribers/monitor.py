"""Which way a metric is better, and whether it just became so.

Early stopping, plateaus, targets and the best checkpoint all ask the same
questions of one metric; they ask them here.
"""

from __future__ import annotations

import difflib
import math
import re
import warnings
from typing import TYPE_CHECKING, Any

from lifecycle.subscribers.checks import choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Monitor", "missing_metric"]

LOWER_IS_BETTER = frozenset(
    (
        *("loss", "error", "err", "mse", "mae", "rmse", "mape", "msle", "nll", "perplexity"),
        *("ppl", "wer", "cer", "bpc", "bpb", "fid", "kl", "divergence"),
    )
)
HIGHER_IS_BETTER = frozenset(
    (
        *("acc", "accuracy", "auc", "auroc", "precision", "recall", "sensitivity", "specificity"),
        *("f1", "map", "miou", "iou", "dice", "r2", "score", "bleu", "rouge", "psnr", "ssim"),
        *("reward", "ap", "ndcg", "mrr"),
    )
)


def missing_metric(metric: str, names: Iterable[str]) -> str:
    """Say that a metric is not there, and which ones are.

    Args:
        metric: The name that was looked for.
        names: The names that are there.
    """
    there = [str(name) for name in names]
    listed = ", ".join(repr(name) for name in there) or "nothing"
    near = difflib.get_close_matches(metric, there, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"no metric {metric!r} in the logs, which have {listed}{hint}"


def _direction(metric: str) -> str:
    """Return min or max from the last word of a metric's name that is not a number."""
    words = [word for word in re.split(r"[^0-9a-z]+", metric.lower()) if word]
    while words and words[-1].isdigit():  # bbox_mAP_50 is about mAP
        words.pop()
    last = words[-1] if words else ""
    if last in LOWER_IS_BETTER:
        return "min"
    if last in HIGHER_IS_BETTER:
        return "max"
    raise ValueError(
        f"cannot tell from the name whether a lower or a higher {metric!r} is better;"
        ' say mode="min" or mode="max"'
    )


class Monitor:
    """One metric, the way in which it gets better, and the best value so far.

    Args:
        metric: Its name in the logs, such as ``val_loss``.
        mode: ``min``, ``max`` or ``auto``, which goes by the last word of the name.
        min_delta: How much better than the best a value must be to count as better.

    Raises:
        TypeError: The metric's name is not a string.
        ValueError: The mode is unknown, ``auto`` cannot tell, or min_delta is negative.
    """

    def __init__(self, metric: str, mode: str = "auto", min_delta: float = 0.0) -> None:
        if not isinstance(metric, str):
            raise TypeError(f"a monitored metric is named by a string, not {metric!r}")
        choice(mode, "mode", "auto", "min", "max")
        if not min_delta >= 0:
            raise ValueError(f"min_delta must be 0 or more, not {min_delta!r}")
        self.metric = metric
        self.mode = _direction(metric) if mode == "auto" else mode
        self.min_delta = float(min_delta)
        self.best: float | None = None
        """The best value that `update` was given, or None before the first."""
        self.seen = False
        """Whether the metric was ever there to read."""
        self._warned = False

    def __repr__(self) -> str:
        return f"<Monitor {self.metric} {self.mode} best={self.best}>"

    def reset(self) -> None:
        """Forget all values."""
        self.best = None
        self.seen = self._warned = False

    def read(self, logs: Mapping[str, Any]) -> float | None:
        """Return the metric's value in these logs, or None where it is missing."""
        try:
            value = float(logs[self.metric])
        except KeyError:
            return None
        self.seen = True
        return value

    def read_or_warn(self, logs: Mapping[str, Any], who: str) -> float | None:
        """Read the metric; where it is missing, warn once and list the names that are there.

        An epoch without any ``val_`` metric may just have had no validation, so a
        missing ``val_`` metric is then left to `warn_if_unseen`.
        """
        value = self.read(logs)
        if value is None and not self._warned:
            unvalidated = not any(str(name).startswith("val_") for name in logs)
            if not (self.metric.startswith("val_") and unvalidated):
                self._warn(logs, who)
        return value

    def warn_if_unseen(self, logs: Mapping[str, Any], who: str) -> None:
        """Warn at the end of a run that never had the metric, unless that was said before."""
        if not self.seen and not self._warned and logs and self.metric not in logs:
            self._warn(logs, who)

    def _warn(self, logs: Mapping[str, Any], who: str) -> None:
        self._warned = True
        warnings.warn(f"{who}: {missing_metric(self.metric, logs)}", RuntimeWarning, stacklevel=4)

    def improves(self, value: float, on: float | None = None) -> bool:
        """Whether a value is better, by more than min_delta, than `on` or else the best so far.

        NaN never is; any number is where there is nothing to compare it with.
        """
        than = self.best if on is None else on
        if math.isnan(value):
            return False
        if than is None or math.isnan(than):
            return True
        if self.mode == "min":
            return value < than - self.min_delta
        return value > than + self.min_delta

    def reaches(self, value: float, target: float) -> bool:
        """Whether a value is at the target or beyond it."""
        return value <= target if self.mode == "min" else value >= target

    def update(self, value: float) -> bool:
        """Take a value as the best if it improves on it; return whether it did."""
        if not self.improves(value):
            return False
        self.best = value
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return what to save: the best value."""
        return {"best": self.best}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the best value from a saved state."""
        self.best = state["best"]
