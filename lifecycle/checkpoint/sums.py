"""Files written with checksums, and checked against them.

A checksum stands for each chunk of a file, so that several threads can compare them. The
work is done while the disk is busy: zlib lets go of the interpreter meanwhile.
"""

from __future__ import annotations

import mmap
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType

    Bytes = bytes | bytearray | memoryview | mmap.mmap

__all__ = ["CHUNK", "Sum", "SummedFile", "checked", "sync_folder"]

CHUNK: Final = 1 << 24
"""Bytes that one checksum stands for."""

INLINE: Final = 1 << 16
"""Bytes that are not worth a second thread."""


class Sum(NamedTuple):
    """A file's size and the CRC-32 of each of its chunks."""

    size: int
    crc32: tuple[int, ...]


class SummedFile:
    """A new file that knows its checksums and is on the disk once closed by ``finish``.

    Args:
        path: of the file, which must not be there yet.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=0)
        self._pool: ThreadPoolExecutor | None = None
        self._pending: list[Future[None]] = []
        self._sums: list[int] = []
        self._crc = self._filled = self._size = 0

    def write(self, data: Any) -> None:
        """Write bytes, or anything with a contiguous buffer, which must not change until the end.

        Raises:
            OSError: the disk is full, or the like.
        """
        rest = memoryview(data).cast("B")
        while rest:
            piece = rest[: min(len(rest), CHUNK - self._size % CHUNK)]
            self._sum(piece)
            self._size += len(piece)
            rest = rest[len(piece) :]
            while piece:
                piece = piece[self._file.write(piece) :]

    def _sum(self, piece: memoryview) -> None:
        if self._pool is None:
            if len(piece) < INLINE:
                self._add(piece)
                return
            self._pool = ThreadPoolExecutor(1, "checkpoint-checksum")  # one: the order matters
        self._pending.append(self._pool.submit(self._add, piece))

    def _add(self, piece: memoryview) -> None:
        self._crc = zlib.crc32(piece, self._crc)
        self._filled += len(piece)
        if self._filled == CHUNK:
            self._sums.append(self._crc)
            self._crc = self._filled = 0

    def finish(self) -> Sum:
        """Have the file on the disk, close it and return its checksums.

        Raises:
            OSError: the disk is full, or the like.
        """
        os.fsync(self._file.fileno())
        self.close()
        for each in self._pending:
            each.result()
        rest = [self._crc] if self._filled else []
        return Sum(self._size, (*self._sums, *rest))

    def close(self) -> None:
        """Close the file, whole or not."""
        self._file.close()
        if self._pool is not None:
            self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def checked(path: Path, expected: Sum) -> memoryview:
    """Return a file's content if it is what the checksums say.

    It is private memory that may be written to; what is not touched stays on the disk.

    Raises:
        ValueError: it is not; says how.
        OSError: it cannot be read.
    """
    size = path.stat().st_size
    if size != expected.size:
        raise ValueError(f"{path.name} has {size} bytes instead of {expected.size}")
    if not size:
        return memoryview(bytearray())
    with path.open("rb") as file:
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    for number, (found, sure) in enumerate(zip(_sums(content), expected.crc32, strict=False)):
        if found != sure:
            end = min((number + 1) * CHUNK, size)
            raise ValueError(
                f"{path.name} is altered somewhere in its bytes {number * CHUNK} to {end}"
            )
    if len(expected.crc32) != -(-size // CHUNK):
        raise ValueError(f"{path.name} lacks checksums")
    return content


def _sums(content: memoryview) -> Sequence[int]:
    chunks = [content[start : start + CHUNK] for start in range(0, len(content), CHUNK)]
    if len(chunks) == 1:
        return [zlib.crc32(chunks[0])]
    with ThreadPoolExecutor(min(len(chunks), os.cpu_count() or 1, 8)) as pool:
        return list(pool.map(zlib.crc32, chunks))


def sync_folder(path: Path) -> None:
    """Have the names in a folder on the disk, where the platform can say so."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
