"""How far a run is: bars on a terminal and in a notebook, lines elsewhere."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from lifecycle.subscribers.checks import choice
from lifecycle.subscribers.text import duration, metrics, numbers, running

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TextIO

    from lifecycle.loop import Loop

__all__ = ["Progress"]


class Progress:
    """Show how far a run is, how long it will take, and its metrics as they come.

    Keras: ``ProgbarLogger``. OpenMMLab: ``TextLoggerHook``'s place on the terminal.

    On a terminal and in a notebook: nested bars for epochs, batches and validation.
    Elsewhere, as in a log file: one line per epoch, and one now and then within a long
    one. Metrics are read at most once per interval, so values on a device stay there.

    It remembers nothing beyond the bars on the screen and may listen to any number of loops.

    Args:
        style: ``bars``, ``lines``, or ``auto``: bars where someone is looking, if tqdm is there.
        stream: Where to write; standard error by default.
        interval: Seconds between two updates; by default 0.1 for bars, 60 for lines.

    Raises:
        ImportError: ``bars`` are asked for and tqdm is not installed.
    """

    priority: ClassVar[str] = "LOWEST"

    def __init__(
        self,
        *,
        style: str = "auto",
        stream: TextIO | None = None,
        interval: float | None = None,
    ) -> None:
        if choice(style, "style", "auto", "bars", "lines") == "auto":
            style = "bars" if _someone_looks(stream) and find_spec("tqdm") else "lines"
        self.style = style
        self.stream = stream
        if interval is None:
            interval = 0.1 if style == "bars" else 60.0
        self.interval = interval
        self._bar = _bar_class() if style == "bars" else None
        self._views: dict[int, _View] = {}  # by the loop's id, while a stage of it runs

    def __repr__(self) -> str:
        return f"<Progress {self.style}>"

    def on_train_begin(self, loop: Loop, epochs: int | None, initial_epoch: int) -> None:
        self._close(loop)
        self._view(loop).run_begins(epochs, initial_epoch)

    def on_epoch_begin(self, loop: Loop, epoch: int, steps_per_epoch: int | None) -> None:
        view = self._view(loop)
        view.pass_begins(f"epoch {view.numbered(epoch)}", steps_per_epoch)

    def on_train_batch_end(self, loop: Loop, batch: int, logs: Mapping[str, Any]) -> None:
        self._batch(loop, batch, logs)

    def on_epoch_end(self, loop: Loop, epoch: int, logs: Mapping[str, Any]) -> None:
        view = self._view(loop)
        view.epoch_ends(epoch, numbers(logs), view.pass_ends())

    def on_train_end(self, loop: Loop, outcome: str, reasons: Iterable[Any]) -> None:
        if outcome != "completed":
            why = "; ".join(str(reason) for reason in reasons or ())
            self._view(loop).say(f"{outcome}: {why}" if why else outcome)
        self._close(loop)

    def on_test_begin(
        self, loop: Loop, steps: int | None, name: str | None, epoch: int | None
    ) -> None:
        what = "test" if epoch is None else "validation"
        self._view(loop).pass_begins(f"{what} {name}" if name else what, steps)

    def on_test_batch_end(self, loop: Loop, batch: int, logs: Mapping[str, Any]) -> None:
        self._batch(loop, batch, logs)

    def on_test_end(self, loop: Loop, logs: Mapping[str, Any], epoch: int | None) -> None:
        self._pass_ends(loop, numbers(logs), alone=epoch is None)

    def on_predict_begin(self, loop: Loop, steps: int | None) -> None:
        self._view(loop).pass_begins("predict", steps)

    def on_predict_batch_end(self, loop: Loop, batch: int) -> None:
        self._batch(loop, batch, {})

    def on_predict_end(self, loop: Loop) -> None:
        self._pass_ends(loop, {}, alone=True)

    def _batch(self, loop: Loop, batch: int, logs: Mapping[str, Any]) -> None:
        # Runs for every batch: a lookup, a note and a look at the clock, no more.
        view = self._views.get(id(loop)) or self._view(loop)
        view.batch = batch
        if perf_counter() >= view.due:
            view.show(logs)

    def _pass_ends(self, loop: Loop, values: dict[str, float], *, alone: bool) -> None:
        view = self._view(loop)
        ended = view.pass_ends()
        if alone:
            view.say(f"{ended.title}: {_joined(metrics(values), ended.took)}")
        if not view.busy:
            self._close(loop)

    def _view(self, loop: Loop) -> _View:
        view = self._views.get(id(loop))
        if view is None:
            view = self._views[id(loop)] = _View(self.interval, self.stream, self._bar)
        return view

    def _close(self, loop: Loop) -> None:
        view = self._views.pop(id(loop), None)
        if view is not None:
            view.close()


class _Pass:
    """One pass over data on the screen."""

    def __init__(self, title: str, bar: Any = None, outer_batch: int = -1) -> None:
        self.title = title
        self.bar = bar
        self.outer_batch = outer_batch
        self.began = perf_counter()
        self.batches = 0

    @property
    def took(self) -> str:
        """How long it has taken so far."""
        return duration(perf_counter() - self.began)


class _View:
    """What is on the screen of one loop: the bar of its epochs, and of the passes inside."""

    def __init__(self, interval: float, stream: TextIO | None, bar: Any) -> None:
        self.interval = interval
        self.stream = stream
        self.make_bar = bar
        self.due = 0.0
        self.batch = -1
        self.epochs: int | None = None
        self.run_bar: Any = None
        self.in_run = False
        self.passes: list[_Pass] = []

    @property
    def busy(self) -> bool:
        """Whether something is still going on in it."""
        return self.in_run or bool(self.passes)

    def run_begins(self, epochs: int | None, initial_epoch: int) -> None:
        self.in_run = True
        self.epochs = epochs
        if self.make_bar is not None:
            self.run_bar = self._bar("epochs", epochs, "epoch", initial=initial_epoch)

    def numbered(self, epoch: int) -> str:
        """Return an epoch's number as people count: from 1, and of how many."""
        return f"{epoch + 1}/{self.epochs}" if self.epochs is not None else str(epoch + 1)

    def pass_begins(self, title: str, steps: int | None) -> None:
        bar = None if self.make_bar is None else self._bar(title, steps, "batch")
        self.passes.append(_Pass(title, bar, self.batch))
        self.batch = -1
        self.due = 0.0 if bar is not None else perf_counter() + self.interval

    def show(self, logs: Mapping[str, Any]) -> None:
        """Bring the innermost pass's bar up to date, or write a line about it."""
        if not self.passes:  # attached to a run under way
            self.pass_begins("batches", None)
        current, values = self.passes[-1], running(logs)
        if current.bar is None:
            self.say(f"{current.title}: batch {self.batch + 1} - {_joined(metrics(values))}")
        else:
            self._advance(current.bar, self.batch + 1, values)
        self.due = perf_counter() + self.interval

    def pass_ends(self) -> _Pass:
        """Take the innermost pass off the screen and return it."""
        ended = self.passes.pop() if self.passes else _Pass("batches")
        ended.batches = self.batch + 1
        if ended.bar is not None:
            self._advance(ended.bar, ended.batches, {})
            ended.bar.close()
        self.batch = ended.outer_batch
        return ended

    def epoch_ends(self, epoch: int, values: dict[str, float], ended: _Pass) -> None:
        self.say(f"epoch {self.numbered(epoch)}: {_joined(metrics(values), ended.took)}")
        if self.run_bar is not None:
            self._advance(self.run_bar, epoch + 1, {})

    def say(self, text: str) -> None:
        """Write a line, above the bars if there are some."""
        stream = self.stream or sys.stderr
        if self.make_bar is None:
            print(text.rstrip(" -:"), file=stream, flush=True)
        else:
            self.make_bar.write(text.rstrip(" -:"), file=stream)

    def close(self) -> None:
        """Take everything off the screen; the epochs' bar stays as the run left it."""
        while self.passes:
            self.pass_ends()
        if self.run_bar is not None:
            self.run_bar.close()

    def _bar(self, title: str, total: int | None, unit: str, initial: int = 0) -> Any:
        return self.make_bar(
            total=total,
            initial=initial,
            desc=title,
            unit=unit,
            leave=unit == "epoch",
            file=self.stream or sys.stderr,
            dynamic_ncols=True,
            mininterval=0.0,
            miniters=1,
        )

    def _advance(self, bar: Any, done: int, values: Mapping[str, float]) -> None:
        if values:
            bar.set_postfix_str(metrics(values), refresh=False)
        if not bar.update(max(done - bar.n, 0)):  # it has not drawn itself
            bar.refresh()


def _joined(*parts: str) -> str:
    return " - ".join(part for part in parts if part)


def _someone_looks(stream: TextIO | None) -> bool:
    """Whether the output goes to a terminal or a notebook."""
    shell = sys.modules.get("IPython")
    if shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell":
        return True
    isatty = getattr(stream or sys.stderr, "isatty", None)
    return isatty is not None and bool(isatty())


def _bar_class() -> Any:
    try:
        from tqdm.auto import tqdm  # noqa: PLC0415 - only where bars are wanted
    except ImportError as error:
        raise ImportError('progress bars need tqdm: pip install "epochbus[cli]"') from error

    class Bar(tqdm):  # type: ignore[misc]
        """A bar that starts no watching thread: it is brought up to date from the loop alone."""

        monitor_interval = 0

    return Bar
