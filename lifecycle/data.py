"""Where batches come from: iterables, iterators that go on, functions of the epoch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from itertools import islice
from typing import Any

__all__ = ["Feed", "feeds", "until"]

logger = logging.getLogger("lifecycle")

Data = Iterable[Any] | Callable[[Any], Iterable[Any]]


class Feed:
    """The batches of a run, epoch by epoch.

    Args:
        data: an iterable, begun anew for each epoch; an iterator, which goes on; or a
            function of the epoch that returns either.
        name: what it is called in messages.

    Raises:
        TypeError: it is none of these.
    """

    def __init__(self, data: Data, name: str = "data") -> None:
        if not _iterable(data) and not callable(data):
            raise TypeError(
                f"{name} must be an iterable of batches, or a function of the epoch that returns"
                f" one, not {type(data).__name__}"
            )
        self.data = data
        self.name = name
        self.goes_on = isinstance(data, Iterator)
        """Whether the next epoch takes up where the last one ended."""
        self.drawn = 0
        """Batches that earlier epochs drew from an iterator that goes on."""
        self._opened: Any = data

    def __len__(self) -> int:
        """Return the batches of an epoch, 0 where unknown."""
        if not isinstance(self.data, Sized) or self.goes_on:
            return 0
        try:
            return len(self.data)
        except (TypeError, NotImplementedError):  # torch's loader of an iterable data set
            return 0

    def open(self, epoch: int | None, *, skip: int = 0, state: Any = None) -> Iterator[Any]:
        """Begin an epoch.

        Args:
            epoch: its index; None outside of training.
            skip: batches to pass over, which an interrupted run had already.
            state: what `state` returned then.

        Raises:
            TypeError: the function of the epoch has returned no iterable.
        """
        opened: Any = self.data
        if not _iterable(opened):
            opened = opened(epoch)
            if not _iterable(opened):
                raise TypeError(
                    f"{self.name}({epoch}) must return an iterable of batches, not"
                    f" {type(opened).__name__}"
                )
        self._opened = opened
        if epoch is not None:
            _set_epoch(opened, epoch)
        if state is not None:
            opened.load_state_dict(state)
            skip = 0
        batches: Iterator[Any] = iter(opened)
        if skip:
            logger.info("passing over %d batches of %s", skip, self.name)
            for _ in islice(batches, skip):
                pass
        return batches

    def state(self) -> Any:
        """Return the data's own account of where it is, None if it keeps none."""
        if hasattr(self._opened, "load_state_dict") and hasattr(self._opened, "state_dict"):
            return self._opened.state_dict()
        return None


def feeds(data: Data | Mapping[str, Data] | None, name: str) -> dict[str | None, Feed]:
    """Return the feeds of one or several named sets of data.

    Raises:
        TypeError: one is neither iterable nor a function.
    """
    if data is None:
        return {}
    if isinstance(data, Mapping):
        return {str(key): Feed(value, f"{name}[{key!r}]") for key, value in data.items()}
    return {None: Feed(data, name)}


def until(batches: Iterator[Any], deadline: float, over: Callable[[], object]) -> Iterator[Any]:
    """Yield batches as long as there is time; then call ``over``."""
    while time.monotonic() < deadline:
        try:
            batch = next(batches)
        except StopIteration:
            return
        yield batch
    over()


def _iterable(data: object) -> bool:
    return not isinstance(data, type) and (
        isinstance(data, Iterable) or hasattr(data, "__getitem__")
    )


def _set_epoch(data: Any, epoch: int) -> None:
    """Tell the data, and the samplers it has, which epoch begins."""
    told: list[object] = []
    each: Any
    for each in (data, getattr(data, "sampler", None), getattr(data, "batch_sampler", None)):
        if hasattr(each, "set_epoch") and not any(each is one for one in told):
            told.append(each)
            each.set_epoch(epoch)
