"""One thing at a time, done in the background."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Worker"]

T = TypeVar("T")


class Worker(Generic[T]):
    """Does one job at a time in a thread that lives while there are jobs.

    The interpreter does not end before a job that was begun.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._job: Future[T] | None = None

    @property
    def pending(self) -> bool:
        """Whether there is a job whose result was not taken yet."""
        return self._job is not None

    @property
    def done(self) -> bool:
        """Whether the result of a job can be taken at once."""
        return self._job is not None and self._job.done()

    def start(self, job: Callable[[], T]) -> None:
        """Begin a job; the one before must have been taken."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "checkpoint")
        self._job = self._pool.submit(job)

    def take(self) -> T:
        """Wait for the job and return its result; what it has raised is raised here."""
        assert self._job is not None
        try:
            return self._job.result()
        finally:
            if self._job.done():  # else the wait itself was interrupted
                self._job = None

    def close(self) -> None:
        """Let the thread go once there is no job."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
