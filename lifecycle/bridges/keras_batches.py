"""What one batch came to, where Keras tells only the means since the epoch's start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["BatchMetrics"]

Sums = dict[str, tuple[float, float]]
"""The mean of each metric since the epoch's start, and its weight."""


class BatchMetrics:
    """A batch's own metrics, from how the means and the weights behind them have grown.

    Metrics that are no means, such as an AUC, have no value for one batch; they stay as
    Keras gives them, over all batches so far.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._cells: dict[str, int] | None = None
        """Where in the model's metric variables the weight of a metric is."""
        self._before: Sums | None = None

    def reset(self) -> None:
        """Begin an epoch, for which Keras sets its sums to zero."""
        self._cells, self._before = None, {}

    def forget(self) -> None:
        """Note that nobody asked about a batch that has ended."""
        self._before = None

    def look(self, logs: Mapping[str, Any]) -> None:
        """Read the sums before a batch, unless they are known from the last one.

        Args:
            logs: what Keras told of the last one.
        """
        if self._before is None:
            self._find(logs)
            self._before = self._sums(logs)

    def of_batch(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metrics of the batch that has just ended.

        Args:
            logs: what Keras tells of it.
        """
        self._find(logs)
        before, now = self._before, self._sums(logs)
        self._before = now
        found = dict(logs)
        if before is None:  # joined in the middle of this batch
            return found
        for key, (mean, weight) in now.items():
            mean_before, weight_before = before.get(key, (0.0, 0.0))
            if weight > weight_before:
                grown = mean * weight - mean_before * weight_before
                found[key] = grown / (weight - weight_before)
        return found

    def _find(self, logs: Mapping[str, Any]) -> None:
        if self._cells is None:
            self._variables = self.model.metrics_variables
            self._cells = dict(_cells(self.model, logs))

    def _sums(self, logs: Mapping[str, Any]) -> Sums:
        cells = self._cells
        if not cells or not logs:
            return {}
        state = getattr(self.model, "_jax_state", None)
        if state and not self.model._jax_state_synced:  # noqa: SLF001 -- a sync writes every weight
            values = state["metrics_variables"]
        else:
            values = [variable.value for variable in self._variables]
        return {key: (logs[key], float(values[place])) for key, place in cells.items()}


def _cells(model: Any, logs: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    from keras.metrics import Mean  # noqa: PLC0415 -- Keras is there once a model is

    places = {id(variable): place for place, variable in enumerate(model.metrics_variables)}
    for metric in _flat(model.metrics):
        if not isinstance(metric, Mean) or type(metric).result is not Mean.result:
            continue  # such as RootMeanSquaredError, a Mean whose result is not its mean
        named = [key for key in logs if key == metric.name or key.endswith(f"_{metric.name}")]
        key = metric.name if metric.name in logs else named[0] if len(named) == 1 else None
        place = places.get(id(metric.count))
        if key is not None and place is not None:
            yield key, place


def _flat(metrics: Any) -> Iterator[Any]:
    for metric in metrics:
        inner = getattr(metric, "metrics", None)
        if inner:
            yield from _flat(inner)
        else:
            yield metric
