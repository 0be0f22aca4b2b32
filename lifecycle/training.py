"""A run of training: what ``fit`` and a hand-written loop have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lifecycle import randomness
from lifecycle.batches import Epoch
from lifecycle.logs import Logs
from lifecycle.position import Position
from lifecycle.span import Run
from lifecycle.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle.control import Control

__all__ = ["Training"]


class Training:
    """The train stage of a loop with its epochs.

    Args:
        loop: whose.
        epochs: the index after the last epoch, None for no end.
        initial_epoch: the index of the first.
        steps_per_epoch: batches per epoch, None where unknown.
        max_steps: the count of steps at which the run ends.
    """

    def __init__(
        self,
        loop: Control,
        *,
        epochs: int | None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        max_steps: int | None = None,
    ) -> None:
        self.loop = loop
        self.stage = Stage(loop, "train")
        self.run = Run()
        self.position = Position()
        self.epochs, self.initial_epoch = epochs, initial_epoch
        self.steps_per_epoch, self.max_steps = steps_per_epoch, max_steps
        self.epoch: Epoch | None = None
        """The epoch that is open."""

    def enter(self) -> None:
        """Become what the loop does; nothing is sent yet.

        Raises:
            RuntimeError: the loop is doing something else.
        """
        self.stage.enter(self.run)
        self.loop.position = self.position

    def begin(self, resume: object) -> None:
        """Restore what is to be resumed, and send ``train_begin``.

        Raises:
            ValueError: nothing attached can restore.
        """
        state, position = self.loop.state, self.position
        if self.initial_epoch == 0:
            state.restart()
        else:
            state.train, state.steps_before, state.open = None, state.steps_done, False
            state.epochs_done, state.epoch = self.initial_epoch, self.initial_epoch - 1
        self.loop.record()
        finish = _restore(self.loop, resume) if resume else None
        if position.saved is not None:
            self.initial_epoch = position.saved["epoch"]
            if not position.saved["open"]:
                self.run.last = Logs(position.saved["logs"])
        state.epochs, state.initial_epoch = self.epochs, self.initial_epoch
        state.steps_per_epoch, state.max_steps = self.steps_per_epoch, self.max_steps
        self.stage.begin(self.epochs, self.initial_epoch, self.steps_per_epoch)
        if finish is not None:
            finish()
        if state.initial_epoch > self.initial_epoch:  # a guest has restored what it had saved
            self.initial_epoch = state.epochs_done = state.initial_epoch
            state.epoch, state.steps_before = self.initial_epoch - 1, state.steps_done
        if position.saved is not None:
            randomness.restore(position.saved["random"]["now"])

    def open_epoch(self, index: int) -> Epoch:
        """Send ``epoch_begin``; the epoch is the innermost span until it is closed."""
        loop, state = self.loop, self.loop.state
        epoch = self.epoch = Epoch(
            state,
            self.stage,
            "train",
            loop.emitter("train_batch_begin"),
            loop.emitter("train_batch_end"),
            (index,),
            f"epoch {index}, ",
        )
        state.steps_before = state.steps_done
        state.train, state.epoch, state.open = epoch, index, True
        loop.spans.append(epoch)
        state.passes.append(epoch)
        self.position.epoch_opens(epoch, state)
        emitter = loop.emitter("epoch_begin")
        if emitter.live:
            emitter.send(index, epoch.logs, self.steps_per_epoch)
        return epoch

    def close_epoch(self, *, partial: bool, resumable: bool) -> None:
        """Send ``epoch_end``.

        Args:
            partial: whether batches or the validation are missing from it.
            resumable: whether a resumed run would go on in it.
        """
        loop, state, epoch = self.loop, self.loop.state, self.epoch
        assert epoch is not None
        if resumable:  # what subscribers add now would be stale in the rest of the epoch
            self.position.logs = epoch.logs.plain()
        self.fill(epoch)
        if not resumable:
            state.open = False
            state.epochs_done = state.epoch + 1
            feed = self.position.feed
            if feed is not None and feed.goes_on:
                feed.drawn += epoch.done
        self.run.last = epoch.logs
        emitter = loop.emitter("epoch_end")
        if emitter.live:
            emitter.send(state.epoch, epoch.logs, partial)
            state.act()
        loop.spans.remove(epoch)
        state.passes.remove(epoch)
        self.epoch = None

    @staticmethod
    def fill(epoch: Epoch) -> None:
        """Put what the metrics come to into the logs of an epoch whose batches are over."""
        epoch.over = True
        if epoch.means:
            for key, value in epoch.means.results().items():
                epoch.logs[key] = value


def _restore(loop: Control, resume: object) -> Callable[[], Any] | None:
    """Have the attached checkpoint restore; return what is left to do after the begin."""
    for owner in loop.owners():
        restore = getattr(owner, "restore", None)
        if callable(restore):
            finish: Callable[[], Any] | None = restore(loop, resume)
            return finish
    raise ValueError(
        f"resume={resume!r} needs something attached that can restore, such as"
        " loop.attach(Checkpoint(directory))"
    )
