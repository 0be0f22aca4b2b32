"""Checkpoint: saves a run so that it can go on after anything."""

from __future__ import annotations

import logging
import os
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from lifecycle.checkpoint import arrays, capture, catalogue, resume, store
from lifecycle.checkpoint.bests import Bests
from lifecycle.checkpoint.snapshot import Snapshots
from lifecycle.checkpoint.worker import Worker
from lifecycle.subscribers.checks import choice, whole
from lifecycle.subscribers.memory import OneLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lifecycle.loop import Loop

__all__ = ["Checkpoint"]

logger = logging.getLogger("lifecycle")


class Saved(NamedTuple):
    """A checkpoint that is on the disk."""

    path: Path
    epoch: int
    step: int
    best: bool


class Checkpoint(OneLoop):
    """Save the run, so that ``fit(..., resume="auto")`` goes on as if it had never ended.

    Keras: ``ModelCheckpoint``, ``BackupAndRestore``, ``OrbaxCheckpoint``. OpenMMLab:
    ``CheckpointHook``.

    What is saved: the loop's objects, its position in epochs and data, the state of all
    subscribers once all of them have had their turn, and the random states. It saves when
    it is due, when the metric is the best so far, when a run is stopped, and at its end.

    Args:
        directory: A folder for the checkpoints of one run; made if it is not there.
        every: Save at the end of each n-th epoch; 1 if neither steps nor seconds is given.
        steps: Save after each n-th step.
        seconds: Save after the step that ends so long after the last save.
        save_best: The name of a metric; the checkpoint where it was best is kept. Or the
            names of several, each of which keeps its own; or ``auto`` for the first metric
            of the validation whose name tells which way is better.
        mode: ``min``, ``max`` or ``auto``, by the metric's name.
        keep: How many of the newest are kept; None for all.
        keep_every: Those of each n-th epoch's end are kept as well.
        background: Write in another thread. The loop waits for a copy of the arrays in
            memory, and for the write only if the one before has not ended.
        errors: ``raise`` or ``warn`` where a checkpoint cannot be written. What is there
            already stays as it is in any case.
        objects: The names of the loop's objects to save; all by default.
        strict: Whether a checkpoint must fit the objects exactly when it is loaded. If
            not, differences are warned of and what fits is loaded.

    Raises:
        ImportError: NumPy is not installed.
        OSError: The folder cannot be made or written to.
        TypeError, ValueError: An option is wrong.
    """

    priority: ClassVar[str] = "VERY_LOW"

    def __init__(  # noqa: PLR0913 -- each is one decision, by keyword
        self,
        directory: str | os.PathLike[str],
        *,
        every: int | None = None,
        steps: int | None = None,
        seconds: float | None = None,
        save_best: str | Sequence[str] | None = None,
        mode: str = "auto",
        keep: int | None = 3,
        keep_every: int | None = None,
        background: bool = True,
        errors: str = "raise",
        objects: Collection[str] | None = None,
        strict: bool = True,
    ) -> None:
        arrays.numpy()
        if every is None and steps is None and seconds is None:
            every = 1
        self.every = _count(every, "every is a number of epochs")
        self.steps = _count(steps, "steps is a number of steps")
        if seconds is not None and not seconds > 0:
            raise ValueError(f"seconds must be more than 0, not {seconds!r}")
        self.seconds = seconds
        self.best = Bests(save_best, mode)
        self.keep = _count(keep, "keep is a number of checkpoints")
        self.keep_every = _count(keep_every, "keep_every is a number of epochs")
        self.background = background
        self.errors = choice(errors, "errors", "raise", "warn")
        self.objects = objects
        self.strict = strict
        self.directory = Path(directory)
        _check_writable(self.directory)
        self._worker: Worker[Saved] = Worker()
        self._snapshots = Snapshots()
        self._since = 0
        """The number of this run's first checkpoint; older ones are another run's."""
        self._wrote = self._resumes = False
        self._place: tuple[object, ...] = ()
        self._time = time.monotonic()
        if steps is not None or seconds is not None:  # else batches cost nothing
            self.on_train_batch_end = self._after_batch

    def __repr__(self) -> str:
        return f"<Checkpoint {str(self.directory)!r}>"

    # -- the points

    def on_train_begin(self, loop: Loop, initial_epoch: int) -> None:
        self.follow(loop)
        if initial_epoch == 0:
            self.best.reset()
        _try_to_write(self.directory)
        if initial_epoch == 0 and not self._resumes:
            self._spare_earlier_runs()
        self._resumes = False
        store.remove_leftovers(self.directory)
        _, leaves = capture.capture_objects(loop.objects, self.objects)  # now, not after an epoch
        if self.background:
            self._snapshots.prepare(leaves)
        self._place, self._time = _place(loop), time.monotonic()

    def _spare_earlier_runs(self) -> None:
        """Leave what is in the folder already alone: a run that begins anew may be a mistake."""
        self._since = store.next_sequence(self.directory)
        there = any(store.NAME.fullmatch(name) for name in store.names(self.directory))
        if there and not self._wrote:
            warnings.warn(
                f"{self.directory} holds checkpoints of an earlier run. They are kept, but `latest`"
                ' and `best` will name those of this one; fit(resume="auto") would have gone on'
                " from them",
                UserWarning,
                stacklevel=2,
            )

    def on_epoch_begin(self, loop: Loop) -> None:
        self._announce(loop)

    def _after_batch(self, loop: Loop, step: int) -> None:
        self.follow(loop)
        self._announce(loop)
        due = self.steps is not None and (step + 1) % self.steps == 0
        if self.seconds is not None and time.monotonic() - self._time >= self.seconds:
            due = True
        if due:
            loop.afterwards(partial(self._save, loop))

    def on_epoch_end(self, loop: Loop, epoch: int, logs: Mapping[str, Any], partial: bool) -> None:
        self.follow(loop)
        self._announce(loop)
        state = loop.state
        best = () if partial else self.best.update(logs)
        last = state.epochs is not None and epoch + 1 >= state.epochs
        due = self.every is not None and (epoch + 1) % self.every == 0
        if due or best or last or state.stopping or state.open:
            loop.afterwards(lambda: self._save(loop, best=best))

    def on_train_end(
        self, loop: Loop, logs: Mapping[str, Any], error: BaseException | None
    ) -> None:
        try:
            # After an error the objects may be ahead of the position, by half a step.
            if error is None and self.owned_by(loop) and self._place != _place(loop):
                self._save(loop)
            self._announce(loop, wait=True)
        finally:
            self._worker.close()
            self._snapshots.release()
        self.best.warn_if_unseen(logs)

    # -- saving

    def save(self, loop: Loop) -> Path:
        """Save a run now, and wait until it is on the disk.

        Call it where nothing is under way: at the end of a batch or of an epoch.

        Returns:
            The checkpoint's folder.

        Raises:
            OSError: it cannot be written.
            UnsavableError: one of the objects cannot be saved.
        """
        self._announce(loop, wait=True)
        saved = self._job(loop)()
        self._tell(loop, saved)
        return saved.path

    def _save(self, loop: Loop, *, best: tuple[str, ...] = ()) -> None:
        """Save a run, in the background if that is wanted."""
        self._announce(loop, wait=True)
        self._worker.start(self._job(loop, best=best))
        if not self.background:
            self._announce(loop, wait=True)

    def _job(self, loop: Loop, *, best: tuple[str, ...] = ()) -> Callable[[], Saved]:
        """Take the state of a run, and return what writes it."""
        document, leaves = capture.capture(loop, self.objects)
        if self.background:
            leaves = self._snapshots.take(leaves)
        state = loop.state
        content = store.Content(
            document,
            leaves,
            epoch=state.epochs_done,
            step=state.steps_done,
            whole=not state.open,
            best=best,
            metric=self.best.metric,
            value=self.best.value,
        )
        self._place, self._time = _place(loop), time.monotonic()
        return partial(self._write, content, max(state.epoch, 0), state.step)

    def _write(self, content: store.Content, epoch: int, step: int) -> Saved:
        path = store.write(self.directory, store.next_sequence(self.directory), content)
        self._wrote = True
        if self.keep is not None:
            catalogue.prune(
                self.directory, keep=self.keep, keep_every=self.keep_every, since=self._since
            )
        return Saved(path, epoch, step, bool(content.best))

    def _announce(self, loop: Loop, *, wait: bool = False) -> None:
        """Tell of a write that has ended, or failed; with `wait`, once it has."""
        if not self._worker.pending or not (wait or self._worker.done):
            return
        try:
            saved = self._worker.take()
        except OSError as error:
            self._place = ()  # so that the end of the run tries again
            error.add_note(f"no checkpoint could be written into {self.directory}")
            if self.errors == "raise":
                raise
            logger.exception("no checkpoint could be written into %s", self.directory)
            return
        self._tell(loop, saved)

    @staticmethod
    def _tell(loop: Loop, saved: Saved) -> None:
        loop.send("checkpoint_saved", **saved._asdict())

    # -- resuming

    def restore(self, loop: Loop, where: object) -> Callable[[], None] | None:
        """Have a run that is about to begin go on from a checkpoint.

        This is for the loop, which calls it for ``fit(resume=...)``.

        Args:
            loop: whose objects and position are loaded.
            where: as in ``fit``.

        Returns:
            What is to be called once ``train_begin`` has been sent; None if there is
            nothing to go on from.

        Raises:
            CheckpointError: the checkpoint cannot be used; `MismatchError` where it does not
                fit the loop's objects.
        """
        found = resume.find(self.directory, where)
        if found is None:
            return None
        path, _, saved = found
        self._resumes = True
        capture.load_objects(loop.objects, saved["objects"], self.objects, path, strict=self.strict)
        loop.load_state_dict(saved["loop"])
        return partial(self._finish, loop, path, saved)

    def _finish(self, loop: Loop, path: Path, saved: Mapping[str, Any]) -> None:
        capture.load_subscribers(loop, saved["subscribers"], path)
        position = saved["loop"]
        logger.info("resuming from %s", path)
        loop.send("checkpoint_loaded", path=path, epoch=position["epoch"], step=position["step"])

    def state_dict(self) -> dict[str, Any]:
        """Return what is saved of this subscriber itself: the best values, its first number."""
        return {"best": self.best.state_dict(), "since": self._since}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the best values; none was kept where another metric was looked at."""
        self.best.load_state_dict(state["best"])
        self._since = state["since"]


def _place(loop: Loop) -> tuple[object, ...]:
    state = loop.state
    return state.epochs_done, state.steps_done, state.open


def _count(value: int | None, what: str) -> int | None:
    return None if value is None else whole(value, 1, what)


def _check_writable(directory: Path) -> None:
    """Check, without making anything, that a folder can be there and be written to.

    Raises:
        OSError: it cannot.
    """
    nearest = directory.absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise NotADirectoryError(f"checkpoints cannot be in {directory}: {nearest} is a file")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"checkpoints cannot be written to {directory}: no right to do so")


def _try_to_write(directory: Path) -> None:
    """Make the folder and a file in it.

    Raises:
        OSError: that fails.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        error.add_note(f"checkpoints cannot be written to {directory}")
        raise
