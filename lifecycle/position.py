"""The position of a run: saved, and taken up again to go on exactly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lifecycle import randomness
from lifecycle.state import StopRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lifecycle.batches import Epoch
    from lifecycle.data import Feed
    from lifecycle.state import State

__all__ = ["Position"]

VERSION: Final = 1

KEYS: Final = frozenset(
    {
        "version", "epoch", "open", "batch", "step", "update", "drawn", "validated",
        "means", "logs", "requests", "random", "data",
    }
)  # fmt: skip


class Position:
    """Where a run is in its data and in the random streams; what it takes to go on there."""

    def __init__(self) -> None:
        self.feed: Feed | None = None
        """The training data of the run under way."""
        self.epoch: Epoch | None = None
        """The epoch that is open, or the last one."""
        self.validated = 0
        """The count of steps at which validation ran last, by steps."""
        self.before_validation: dict[str, Any] | None = None
        """The random states before a validation that has not come to its end."""
        self.random_at_epoch: dict[str, Any] | None = None
        """The random states at the begin of the epoch, which a shuffle goes by."""
        self.logs: dict[str, Any] | None = None
        """The logs of an epoch that a stop has cut, as they were before its end was sent."""
        self.drawing = False
        """Whether the data of the epoch was begun."""
        self.saved: Mapping[str, Any] | None = None
        """A loaded position, until the run has gone on from it."""

    @property
    def reopens(self) -> bool:
        """Whether the epoch that opens next is one that the saved run had open."""
        return self.saved is not None and bool(self.saved["open"])

    def state_dict(self, state: State) -> dict[str, Any]:
        """Describe the position with plain values and arrays."""
        requests = [list(request) for request in state.requests if request.final]
        if self.saved is not None:  # nothing was done yet since it was loaded
            return {**self.saved, "requests": requests}
        epoch = self.epoch
        is_open = state.open and self.drawing and epoch is not None
        batch = epoch.done if epoch is not None and is_open else 0
        now = self.before_validation
        if state.open and not self.drawing:
            now = self.random_at_epoch
        logs = self.logs
        if logs is None:
            logs = epoch.logs.plain() if epoch is not None else {}
        drawn = self.feed.drawn + batch if self.feed is not None and self.feed.goes_on else batch
        return {
            "version": VERSION,
            "epoch": state.epoch if state.open else state.epochs_done,
            "open": is_open,
            "batch": batch,
            "step": state.steps_done,
            "update": state.updates_done,
            "drawn": drawn,
            "validated": self.validated,
            "means": epoch.means.state_dict() if epoch is not None and is_open else {},
            "logs": logs,
            "requests": requests,
            "random": {
                "epoch": self.random_at_epoch if is_open else None,
                "now": now or randomness.capture(),
            },
            "data": self.feed.state() if self.feed is not None else None,
        }

    def load_state_dict(self, saved: Mapping[str, Any], state: State) -> None:
        """Have the run that begins now go on from a saved position.

        Raises:
            ValueError: it is of another version, or keys are missing or unknown.
        """
        if saved.get("version") != VERSION:
            raise ValueError(
                f"the position of the run is of version {saved.get('version')!r}; this release"
                f" reads version {VERSION}"
            )
        if saved.keys() != KEYS:
            raise ValueError(
                f"the position of the run lacks {sorted(KEYS - saved.keys())} and has"
                f" {sorted(saved.keys() - KEYS)} beside what is known"
            )
        state.restart()
        state.epochs_done = saved["epoch"]
        state.epoch = saved["epoch"] - (not saved["open"])
        state.steps_before = saved["step"]
        state.updates_done = saved["update"]
        state.heed(StopRequest(*request) for request in saved["requests"])
        self.validated = saved["validated"]
        self.epoch = None
        self.saved = saved

    def epoch_opens(self, epoch: Epoch, state: State) -> None:
        """Set the random states for an epoch that is about to begin, and keep them."""
        saved = self.saved
        if saved is not None and saved["open"]:
            randomness.restore(saved["random"]["epoch"])
            state.steps_before -= saved["batch"]
            epoch.done = saved["batch"]
        self.random_at_epoch = randomness.capture()
        self.epoch, self.logs = epoch, None
        self.drawing = False

    def draw(self, feed: Feed, index: int) -> Iterator[Any]:
        """Begin to draw the batches of an epoch, or go on in it where the saved run was."""
        saved, epoch = self.saved, self.epoch
        if saved is None or epoch is None:
            batches = feed.open(index)
            self.drawing = True
            return batches
        is_open = saved["open"]
        batch = saved["batch"] if is_open else 0
        if feed.goes_on:
            feed.drawn = saved["drawn"] - batch
        # An iterator that goes on passes over what all epochs of the saved run drew.
        skip = saved["drawn"] if feed.goes_on else batch
        now = saved["random"]["now"] if is_open else randomness.capture()
        batches = feed.open(index, skip=skip, state=saved["data"])
        if is_open or feed.goes_on:  # passing over batches draws at random what they drew
            randomness.restore(now)
        if is_open:
            epoch.means.load_state_dict(saved["means"])
            epoch.logs.update(saved["logs"])
        self.saved, self.drawing = None, True
        return batches
