"""What the epochs of a run came to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from lifecycle.logs import Logs
from lifecycle.subscribers.memory import OneLoop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from lifecycle.loop import Loop

__all__ = ["History"]


class History(OneLoop):
    """The logs of every epoch; ``fit`` returns it, every loop has it as ``loop.history``.

    Keras: ``History``. OpenMMLab: the log of a ``LoggerHook``, in memory.

    ``history["val_loss"]`` is the list of a metric's values by epoch, None where an epoch
    lacks it. Its row of an epoch is there for all other subscribers of ``epoch_end``; it
    holds the live logs, and is frozen once all of them have had their turn.
    """

    priority: ClassVar[str] = "VERY_HIGH"

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all epochs."""
        self.epochs: list[int] = []
        """The indices of the epochs, in order."""
        self.outcome: str | None = None
        """How the run ended, None as long as it runs."""
        self.reasons: tuple[str, ...] = ()
        """Why it was asked to stop, in words."""
        self._rows: list[dict[str, Any] | Logs] = []

    def on_train_begin(self, loop: Loop, initial_epoch: int) -> None:
        self.follow(loop)
        if initial_epoch == 0:
            self.clear()
        self.outcome, self.reasons = None, ()

    def on_epoch_begin(self) -> None:
        self._freeze()

    def on_epoch_end(self, loop: Loop, epoch: int, logs: Logs) -> None:
        self.follow(loop)
        self._freeze()
        while self.epochs and self.epochs[-1] >= epoch:  # an epoch that was broken, ended anew
            self.epochs.pop()
            self._rows.pop()
        self.epochs.append(epoch)
        self._rows.append(logs)

    def on_train_end(self, loop: Loop, outcome: str) -> None:
        self._freeze()
        self.outcome, self.reasons = outcome, loop.state.reasons

    def _freeze(self) -> None:
        if self._rows and isinstance(self._rows[-1], Logs):
            self._rows[-1] = self._rows[-1].plain()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dict of metrics for each epoch."""
        return [dict(row) for row in self._rows]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of all metrics, in the order of their first appearance."""
        return tuple(dict.fromkeys(key for row in self._rows for key in row))

    def __getitem__(self, metric: str) -> list[Any]:
        """Return a metric's values by epoch, None where an epoch lacks it.

        Raises:
            KeyError: no epoch has it; the message lists those that there are.
        """
        if metric not in self.metrics:
            there = ", ".join(map(repr, self.metrics)) or "no metrics yet"
            raise KeyError(f"the history has no {metric!r}; it has {there}")
        return [row.get(metric) for row in self._rows]

    def __contains__(self, metric: object) -> bool:
        return metric in self.metrics

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.epochs)

    def __repr__(self) -> str:
        metrics = ", ".join(self.metrics) or "no metrics"
        return f"<History of {len(self)} epochs: {metrics}>"

    @property
    def history(self) -> dict[str, list[Any]]:
        """As ``to_dict``, under Keras's name."""
        return self.to_dict()

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the values by epoch of every metric."""
        return {metric: self[metric] for metric in self.metrics}

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame, one row for each epoch.

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415 - only where asked for
        except ImportError as error:
            raise ImportError("History.to_pandas needs pandas: pip install pandas") from error
        index = pd.Index(self.epochs, name="epoch")
        return pd.DataFrame(self.rows, index=index, columns=list(self.metrics))

    def plot(self, path: str | Path, *metrics: str) -> None:
        """Draw the metrics over the epochs into an image file; ``val_`` beside its own.

        Args:
            path: of the image; its suffix decides the format.
            metrics: which to draw, all that are numbers by default.

        Raises:
            ImportError: matplotlib is not installed.
            KeyError: there is no such metric.
        """
        try:
            from matplotlib.figure import Figure  # noqa: PLC0415 - only where asked for
        except ImportError as error:
            raise ImportError(
                'History.plot needs matplotlib: pip install "epochbus[plot]"'
            ) from error
        panels = self._panels(metrics or self.metrics)
        columns = min(max(len(panels), 1), 3)
        lines = -(-max(len(panels), 1) // columns)
        figure = Figure(figsize=(5 * columns, 3.5 * lines), layout="constrained")
        grid = figure.subplots(lines, columns, squeeze=False).flatten()
        for axes, (title, curves) in zip(grid, panels.items(), strict=False):
            for name, points in curves.items():
                axes.plot(*zip(*points, strict=True), marker=".", label=name)
            axes.set(title=title, xlabel="epoch")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.legend()
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        figure.savefig(path)

    def _panels(self, metrics: Iterable[str]) -> dict[str, dict[str, list[tuple[int, float]]]]:
        """Return the points of those metrics that are numbers, ``val_`` beside its own."""
        panels: dict[str, dict[str, list[tuple[int, float]]]] = {}
        for name in metrics:
            pairs = zip(self.epochs, self[name], strict=True)
            points = [(epoch, value) for epoch, value in pairs if isinstance(value, int | float)]
            if points:
                panels.setdefault(name.removeprefix("val_"), {})[name] = points
        return panels

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint saves of it."""
        return {"epochs": list(self.epochs), "rows": [_plain(row) for row in self._rows]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a saved state."""
        self.epochs = list(state["epochs"])
        self._rows = [dict(row) for row in state["rows"]]


def _plain(row: dict[str, Any] | Logs) -> dict[str, Any]:
    return row.plain() if isinstance(row, Logs) else dict(row)
