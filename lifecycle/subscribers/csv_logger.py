"""One row of metrics per epoch or step, in a file that agrees with the run even after a crash."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from typing import TYPE_CHECKING, Any, ClassVar

from lifecycle.subscribers.checks import choice, file, whole
from lifecycle.subscribers.memory import OneLoop

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from lifecycle.loop import Loop

__all__ = ["CSVLogger"]

Row = dict[str, str]


class CSVLogger(OneLoop):
    """Write one row of metrics per epoch, or per step, to a CSV file.

    Keras: ``CSVLogger``. OpenMMLab: ``LoggerHook`` with its local scalars file.

    A metric that appears later gets its column then; cells without a value are empty. A
    run that goes on from epoch n keeps the file's rows before n and drops those from n on,
    so the file is what an uninterrupted run would have written; a torn last line is dropped.

    Args:
        path: The file. Its folder is made when a run begins.
        separator: What stands between two cells.
        append: Keep the rows of earlier runs also where this run begins anew.
        by: A row per ``epoch``, or per ``step`` with that batch's values.
        every: A row for each n-th epoch or step only.

    Raises:
        ValueError: An option is wrong.
    """

    priority: ClassVar[str] = "LOW"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        separator: str = ",",
        append: bool = False,
        by: str = "epoch",
        every: int = 1,
    ) -> None:
        self.path = file(path)
        if not isinstance(separator, str) or len(separator) != 1:
            raise ValueError(f"separator is a single character, not {separator!r}")
        self.separator = separator
        self.append = append
        self.by = choice(by, "by", "epoch", "step")
        self.every = whole(every, 1, f"every is a number of {by}s")
        self._columns: list[str] | None = None

    def __repr__(self) -> str:
        return f"<CSVLogger {str(self.path)!r}>"

    def on_train_begin(self, loop: Loop, initial_epoch: int) -> None:
        self.follow(loop)
        self._open(initial_epoch if self.by == "epoch" else loop.state.steps_done)

    def on_train_batch_end(
        self, loop: Loop, step: int, epoch: int, logs: Mapping[str, Any], skipped: bool
    ) -> None:
        if self.by == "step" and (step + 1) % self.every == 0 and not skipped:
            self._write(loop, {"step": step, "epoch": epoch}, logs)

    def on_epoch_end(self, loop: Loop, epoch: int, logs: Mapping[str, Any]) -> None:
        if self.by == "epoch" and (epoch + 1) % self.every == 0:
            self._write(loop, {"epoch": epoch}, logs)

    def on_train_end(self) -> None:
        self._columns = None

    def _open(self, start: int) -> None:
        """Make the file ready for rows from `start` on."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        rows, columns = _read(self.path, self.separator) if self.append or start else ([], [])
        if start:
            while rows and not _before(rows[-1].get(self.by), start):
                rows.pop()
            # Later columns came with rows that are gone: the run will add them in its own order.
            used = [number for row in rows for number, name in enumerate(columns) if row.get(name)]
            columns = columns[: max(used, default=-1) + 1]
        self._columns = columns
        self._rewrite(rows)

    def _write(self, loop: Loop, place: dict[str, int], logs: Mapping[str, Any]) -> None:
        self.follow(loop)
        if self._columns is None:  # attached to a run under way
            self._open(0)
        row = {name: _cell(value) for name, value in {**place, **dict(logs), **place}.items()}
        columns = self._columns or []
        new = [name for name in row if name not in columns]
        if new:
            rows, _ = _read(self.path, self.separator)
            self._columns = columns + new
            self._rewrite([*rows, row])
            return
        with self.path.open("a", newline="", encoding="utf-8") as file:
            file.write(self._text([row]))

    def _rewrite(self, rows: Iterable[Row]) -> None:
        """Replace the whole file at once: a reader sees the old one or the new one."""
        columns = self._columns or []
        text = self._text([dict(zip(columns, columns, strict=True)), *rows]) if columns else ""
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            beside.write_text(text, encoding="utf-8", newline="")
            beside.replace(self.path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()

    def _text(self, rows: Iterable[Row]) -> str:
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer, delimiter=self.separator, lineterminator="\n")
        writer.writerows([row.get(name, "") for name in self._columns or ()] for row in rows)
        return buffer.getvalue()


def _read(path: Path, separator: str) -> tuple[list[Row], list[str]]:
    """Return a file's rows and columns, without a last line that was not written to its end."""
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return [], []
    whole = text[: text.rfind("\n") + 1]
    lines = list(csv.reader(io.StringIO(whole, newline=""), delimiter=separator))
    if not lines:
        return [], []
    columns, *rows = lines
    return [dict(zip(columns, row, strict=False)) for row in rows], columns


def _before(cell: str | None, start: int) -> bool:
    """Whether a row's index lies before the one that the run goes on with."""
    try:
        return int(cell or "") < start
    except ValueError:
        return True  # not a row of ours to judge


def _cell(value: Any) -> str:
    """Return a value as a cell: numbers so that reading them back gives the same number."""
    if value is None:
        return ""
    if isinstance(value, bool | int | str):
        return str(value)
    try:
        return repr(float(value))
    except (TypeError, ValueError):
        return str(value)
