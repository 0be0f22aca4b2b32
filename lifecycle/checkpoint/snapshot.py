"""Copies of arrays, so that the run may go on while they are written."""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from lifecycle.checkpoint.arrays import Leaf, numpy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Snapshots"]

PIECE: Final = 1 << 24
"""Bytes that one thread copies at a time."""

ALONE: Final = 1 << 23
"""Bytes below which a second thread is of no use."""


class Snapshots:
    """Makes copies of arrays, one set at a time.

    The memory is kept for the next set, and for the first one got in good time: a page that
    the system has to find first costs up to twenty times its copy.
    """

    def __init__(self) -> None:
        self._memory: dict[tuple[str, str], Any] = {}
        self._toucher: threading.Thread | None = None
        self._untouched: list[Any] = []

    def prepare(self, arrays: Mapping[str, Mapping[str, Leaf]]) -> None:
        """Begin to get memory for such arrays, in another thread."""
        self._memory = {
            (stem, name): numpy().empty(leaf.data.nbytes, "uint8")
            for stem, leaves in arrays.items()
            for name, leaf in leaves.items()
            if not leaf.fresh
        }
        pieces = [
            each[start : start + PIECE]
            for each in self._memory.values()
            for start in range(0, each.nbytes, PIECE)
        ]
        if sum(piece.nbytes for piece in pieces) >= ALONE:
            self._untouched = pieces
            self._toucher = threading.Thread(
                target=_touch, args=(pieces,), name="checkpoint-memory"
            )
            self._toucher.start()

    def _ready(self) -> None:
        """Have the other thread leave the rest to the copy."""
        self._untouched.clear()
        if self._toucher is not None:
            self._toucher.join()
            self._toucher = None

    def take(self, arrays: Mapping[str, Mapping[str, Leaf]]) -> dict[str, dict[str, Leaf]]:
        """Return the same arrays with memory of their own, valid until the next call."""
        self._ready()
        old, self._memory = self._memory, {}
        pairs: list[tuple[Any, Any]] = []
        taken: dict[str, dict[str, Leaf]] = {}
        for stem, leaves in arrays.items():
            taken[stem] = dict(leaves)
            for name, leaf in leaves.items():
                if not leaf.fresh:
                    copy = old.pop((stem, name), None)
                    if copy is None or copy.nbytes != leaf.data.nbytes:
                        copy = numpy().empty(leaf.data.nbytes, "uint8")
                    self._memory[stem, name] = copy
                    pairs.append((copy, leaf.data))
                    taken[stem][name] = leaf._replace(data=copy, fresh=True)
        _copy(pairs)
        return taken

    def release(self) -> None:
        """Give the memory back."""
        self._ready()
        self._memory = {}


def _touch(pieces: list[Any]) -> None:
    with contextlib.suppress(IndexError):  # none left, or none wanted any more
        while True:
            pieces.pop()[:] = 0


def _copy(pairs: list[tuple[Any, Any]]) -> None:
    copyto = numpy().copyto
    if sum(copy.nbytes for copy, _ in pairs) < ALONE:
        for copy, data in pairs:
            copyto(copy, data)
        return
    # Two threads reach what the memory can give, mostly; each lets go of the interpreter.
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1), "checkpoint-snapshot") as pool:
        list(pool.map(lambda piece: copyto(*piece), _pieces(pairs)))


def _pieces(pairs: list[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    for copy, data in pairs:
        for start in range(0, copy.nbytes, PIECE):
            yield copy[start : start + PIECE], data[start : start + PIECE]
