"""Passes over batches: the one loop that everything is measured by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lifecycle.logs import Logs, Means, admit, batch_size
from lifecycle.span import Span

if TYPE_CHECKING:
    from eventbus import Emitter
    from lifecycle.stage import Stage
    from lifecycle.state import State

__all__ = ["Epoch", "Pass", "Prediction"]


class Pass(Span):
    """A pass over batches: sends their points, folds their metrics.

    Args:
        state: the loop's.
        stage: the stage it belongs to, which may be asked to stop.
        kind: ``train``, ``test`` or ``predict``: whose batch points it sends.
        begin: sends the begin of a batch.
        end: sends the end of a batch.
        context: what the points of a batch carry after ``data``.
        title: what its batches are called in messages.
    """

    __slots__ = (
        "averaged",
        "begin",
        "begun",
        "broken",
        "by_hand",
        "context",
        "current",
        "cut",
        "dead",
        "done",
        "end",
        "held",
        "kind",
        "left",
        "means",
        "over",
        "pending",
        "point",
        "skipping",
        "stage",
        "state",
        "title",
        "walks",
        "weight",
        "within",
    )

    def __init__(
        self,
        state: State,
        stage: Stage,
        kind: str,
        begin: Emitter,
        end: Emitter,
        context: tuple[Any, ...] = (),
        title: str = "",
    ) -> None:
        super().__init__()
        self.state, self.stage, self.kind = state, stage, kind
        self.begin, self.end = begin, end
        self.context, self.title = context, title
        self.means = Means()
        self.done = 0
        """Finished batches."""
        self.within = False
        """Whether its batches are being gone through."""
        self.point: str | None = None
        """``begin`` or ``end`` while that point of a batch is being sent."""
        self.broken = False
        """Whether an error came out of a step."""
        self.over = False
        """Whether no further batch will come, as when the validation of an epoch begins."""
        self.cut = False
        """Whether it was asked to end early."""
        self.skipping = False
        """Whether the batch under way was asked to be left out."""
        self.by_hand = False
        """Whether the user's own ``for`` goes through the batches."""
        self.dead = False
        """Whether an error has ended them there."""
        self.left: tuple[Any] | None = None
        """The batch in which the user's own ``for`` was left."""
        self.walks = 0
        """Counts what the user's own ``for`` began and ended: a walk of an old count is over."""
        self.held: int | None = None
        """After so many batches, what is to be done afterwards waits for a validation."""
        self.begun = False
        """Whether the begin of the batch under way was sent."""
        self.current = Logs(None, self.means)
        self.pending: dict[str, Any] = {}
        """What was logged in the batch under way."""
        self.averaged: set[str] = set()
        """The metrics that were logged before, to be averaged."""
        self.weight: float = 1

    @property
    def index(self) -> int:
        """The batch under way, or the one that ended last; -1 before the first."""
        return self.done - (not self.within or self.point == "end")

    @property
    def settled(self) -> bool:
        """Whether no step is open that an error or a ``break`` has left."""
        return not self.broken and self.left is None

    def send_begin(self, data: Any) -> None:
        """Send the begin of a batch."""
        self.begin.send(self.done, self.current, data, *self.context)

    def send_end(self, data: Any, outputs: Any) -> None:
        """Send the end of a batch."""
        index = self.done - 1
        self.end.send(index, self.current, data, *self.context, outputs, self.skipping)

    def place(self) -> str:
        """Say in words where it stands."""
        if self.point is not None:
            return f"at {self.kind}_batch_{self.point} of {self.title}batch {self.index}"
        if not self.within:
            return f"at {self.title}".rstrip(" ,")
        if self.broken:
            return f"in the step at {self.title}batch {self.index}"
        if self.by_hand and self.left is not None:
            return f"in the body of the loop at {self.title}batch {self.index}"
        return f"while drawing {self.title}batch {self.index}"

    def log(self, metrics: Mapping[str, Any], reduce: str) -> None:
        """Have metrics in the logs of this batch, and reduced in those of the end."""
        if not self.within:
            super().log(metrics, reduce)
            return
        averaged = self.averaged if reduce == "mean" and self.point != "end" else ()
        for key, value in metrics.items():
            if key in averaged and value.__class__ is float:  # what most calls come to
                self.pending[key] = value
            else:
                self._log_one(key, value, reduce)
        self.state.attention = True

    def _log_one(self, key: str, value: Any, reduce: str) -> None:
        kept = admit(key, value)
        if self.point == "end":
            if key != "batch_size":
                self.means.open(key, reduce).add(kept, self.weight)
                self.current[key] = kept
            return
        if key != "batch_size":
            cell = self.means.open(key, reduce)
            if reduce == "mean":
                self.averaged.add(key)
            elif key in self.pending:
                cell.add(self.pending[key], 1)
        self.pending[key] = kept

    def run(self, batches: Iterable[Any], step: Callable[[Any], Any]) -> None:
        """Do a step with each batch until they end or someone has it stop.

        This is the loop that everything is measured by. What is not always needed stands
        in methods, behind an attribute that says so.
        """
        begin, end, state = self.begin, self.end, self.state
        self.within = True
        done = self.done
        try:
            for done, data in enumerate(batches, self.done + 1):
                if begin.live and self.open(data):
                    outputs = None
                else:
                    outputs = step(data)
                    if outputs is not None:
                        self.take(outputs, data)
                self.done = done
                if (end.live or state.attention) and self.finish(data, outputs):
                    break
        except BaseException:
            self.broken = self.point is None and self.done != done
            raise
        self.within = False

    def walk(
        self,
        start: Callable[[], Iterable[Any]],
        over: Callable[[BaseException | None], None],
    ) -> Iterator[Any]:
        """Yield each batch to the user's own ``for``, as ``run`` does a step with it.

        Args:
            start: begins to draw the batches.
            over: told when there are no more: of an error, of a GeneratorExit where the
                ``for`` was left, or of None.

        Raises:
            RuntimeError: it is asked for more after the loop has gone on without it.
        """
        begin, end, state = self.begin, self.end, self.state
        data = mine = None
        try:
            batches = start()
            self.walks += 1
            mine = self.walks
            self.within = self.by_hand = True
            for done, data in enumerate(batches, self.done + 1):
                if not (begin.live and self.open(data)):
                    yield data
                    if self.walks != mine:
                        _refuse()
                self.done = done
                if (end.live or state.attention) and self.finish(data, None):
                    break
        except GeneratorExit as left:  # a break or an error in the body, not to be told apart
            if self.walks == mine:
                self.left = (data,)
                over(left)
            return
        except BaseException as error:
            if mine is None or self.walks == mine:
                self.dead = True
                over(error)
            raise
        self.within = False
        over(None)

    def settle(self) -> None:
        """Send the end of the batch in which the user's ``for`` was left; it is over then."""
        self.walks += 1
        if self.within and not self.dead:
            self.done += 1
            (data,), self.left = self.left or (None,), None
            self.finish(data, None)
            self.within = False

    def open(self, data: Any) -> bool:
        """Send the begin of a batch; say whether someone asked to skip it."""
        self.current = Logs(None, self.means)
        self.begun = True
        self.point = "begin"
        self.send_begin(data)
        self.point = None
        return self.skipping

    def take(self, outputs: Any, data: Any) -> None:
        """Fold what a step has returned into the means.

        Raises:
            TypeError: it is no mapping of names to numbers.
        """
        if outputs.__class__ is not dict and not isinstance(outputs, Mapping):
            raise TypeError(
                f"a {self.kind} step must return a mapping of metrics, or None, not"
                f" {type(outputs).__name__}"
            )
        if self.skipping:
            return
        if "batch_size" in outputs:
            self.weight = _size(outputs["batch_size"])
            outputs = {key: value for key, value in outputs.items() if key != "batch_size"}
        else:
            self.weight = batch_size(data)
        self.means.add(outputs, self.weight)

    def finish(self, data: Any, outputs: Any) -> bool:
        """Do what is due after a batch: its end point, the requests; say whether to stop."""
        live = self.end.live
        if live and not self.begun:
            self.current = Logs(None, self.means)
        if self.pending:
            self._fold(data, outputs)
        if live:
            if outputs is not None and not self.skipping:
                self.show(outputs)
            self.point = "end"
            self.send_end(data, outputs)
            if self.state.actions and self.state.train is self and self.done != self.held:
                self.state.act()
            self.point = None
        self.begun = self.skipping = False
        return self.state.attention and self.halted()

    def halted(self) -> bool:
        """Say whether no further batch may start."""
        state = self.state
        state.attention = False  # first: a request made from here on raises it again
        if self.cut or len(state.requests) > self.stage.first:
            state.attention = True
            return True
        return False

    def show(self, outputs: Any) -> None:
        """Put the metrics that a step has returned into the logs of the batch."""
        if outputs.__class__ is not dict and not isinstance(outputs, Mapping):
            return  # another framework's step, behind a bridge
        for key, value in outputs.items():
            if key != "batch_size":
                self.current[key] = value if value.__class__ is float else admit(key, value)

    def _fold(self, data: Any, outputs: Any) -> None:
        pending, self.pending = self.pending, {}
        if self.skipping:
            return
        size = pending.pop("batch_size", None)
        if size is not None:
            self.weight = _size(size)
        elif outputs is None:
            self.weight = batch_size(data)
        self.means.add(pending, self.weight)
        if self.end.live:
            self.current.update(pending)


class Epoch(Pass):
    """An epoch of training, whose batches are steps of the run."""

    __slots__ = ()

    def send_begin(self, data: Any) -> None:
        """Send the begin of a batch."""
        index, state = self.done, self.state
        self.begin.send(index, self.current, data, state.epoch, state.steps_before + index)

    def send_end(self, data: Any, outputs: Any) -> None:
        """Send the end of a batch."""
        index, state = self.done - 1, self.state
        self.end.send(
            index,
            self.current,
            data,
            state.epoch,
            state.steps_before + index,
            outputs,
            self.skipping,
        )


class Prediction(Pass):
    """A pass of prediction, whose step returns what it will."""

    __slots__ = ()

    def take(self, outputs: Any, data: Any) -> None:
        """Take anything."""

    def show(self, outputs: Any) -> None:
        """Put what was predicted into the logs of the batch, as Keras has it."""
        self.current["outputs"] = outputs


def _refuse() -> None:
    """Tell the user's own ``for`` that its batches are over.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(
        "these batches are over: another batches() or epochs() was begun, or the epoch has ended,"
        " before all of them were drawn; two passes at once take two loops"
    )


def _size(value: Any) -> float:
    """Return a batch size.

    Raises:
        TypeError: it is not a number.
        ValueError: it is negative.
    """
    size = value if isinstance(value, int | float) else getattr(value, "item", lambda: None)()
    if isinstance(size, bool) or not isinstance(size, int | float):
        raise TypeError(f"batch_size must be a number, not {type(value).__name__}")
    if not size >= 0:
        raise ValueError(f"batch_size must be at least 0, not {size}")
    return size
