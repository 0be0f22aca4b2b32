"""What ``Loop.fit`` does."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Collection, Mapping
from functools import partial
from itertools import count, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from lifecycle import randomness
from lifecycle.data import Feed, until
from lifecycle.passes import length, run_test
from lifecycle.state import StopRequest
from lifecycle.training import Training

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from lifecycle.batches import Epoch
    from lifecycle.loop import Loop

__all__ = ["Fit", "Plan", "whole_number"]


def whole_number(value: object, name: str, *, least: int = 0, optional: bool = True) -> None:
    """Check an argument.

    Raises:
        TypeError: it is not an int.
        ValueError: it is too small.
    """
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")


class Plan(NamedTuple):
    """The arguments of ``fit``."""

    feed: Feed
    epochs: int | None = None
    initial_epoch: int = 0
    steps_per_epoch: int | None = None
    validation: Mapping[str | None, Feed] = MappingProxyType({})
    validation_freq: int | Collection[int] = 1
    validation_steps: int | None = None
    validation_every_steps: int | Collection[int] | None = None
    validate_on_stop: bool = False
    max_steps: int | None = None
    max_time: float | None = None

    def checked(self) -> Plan:
        """Return them with the number of epochs that follows from the rest.

        Raises:
            TypeError, ValueError: one is wrong.
        """
        whole_number(self.epochs, "epochs")
        whole_number(self.initial_epoch, "initial_epoch", optional=False)
        whole_number(self.max_steps, "max_steps")
        for name in ("steps_per_epoch", "validation_steps"):
            whole_number(getattr(self, name), name, least=1)
        if not isinstance(self.validation_every_steps, Collection):
            whole_number(self.validation_every_steps, "validation_every_steps", least=1)
        freq = self.validation_freq
        if isinstance(freq, str) or not isinstance(freq, Collection):
            whole_number(freq, "validation_freq", least=1, optional=False)
        if self.max_time is not None:
            if isinstance(self.max_time, bool) or not isinstance(self.max_time, int | float):
                raise TypeError(f"max_time must be a number of seconds, not {self.max_time!r}")
            if self.max_time < 0:
                raise ValueError(f"max_time must be at least 0 seconds, not {self.max_time}")
        if self.epochs is None and self.max_steps is None and self.max_time is None:
            return self._replace(epochs=self.initial_epoch + 1)
        return self

    @property
    def steps(self) -> int | None:
        """Batches per epoch, None where unknown."""
        return length(self.feed, self.steps_per_epoch)

    def validates_after(self, steps: int) -> bool:
        """Say whether validation is due within an epoch once so many steps are done."""
        every = self.validation_every_steps
        if every is None or not self.validation or not steps:
            return False
        return steps in every if isinstance(every, Collection) else steps % every == 0

    def steps_to_validation(self, steps: int) -> int | None:
        """Return in how many steps validation is due next; None where it isn't, by steps."""
        every = self.validation_every_steps
        if every is None or not self.validation:
            return None
        if isinstance(every, Collection):
            return min((at - steps for at in every if at > steps), default=None)
        return every - steps % every

    def validates_at_end(self, epoch: int) -> bool:
        """Say whether an epoch ends with validation."""
        if not self.validation or self.validation_every_steps is not None:
            return False
        if isinstance(self.validation_freq, Collection):
            return epoch in self.validation_freq
        return (epoch + 1) % self.validation_freq == 0


class Fit:
    """One run of ``Loop.fit``."""

    def __init__(
        self,
        loop: Loop,
        plan: Plan,
        train: Callable[[Any], Any],
        test: Callable[[Any], Any] | None,
    ) -> None:
        self.loop, self.plan = loop, plan
        self.train, self.test = train, test
        self.training = Training(
            loop,
            epochs=plan.epochs,
            initial_epoch=plan.initial_epoch,
            steps_per_epoch=plan.steps,
            max_steps=plan.max_steps,
        )
        self.position = self.training.position
        self.position.feed = plan.feed
        self.deadline: float | None = None
        self.short = False
        """Whether it was said that the data is shorter than ``steps_per_epoch``."""

    @property
    def stopped(self) -> bool:
        """Whether no further batch may start."""
        return self.training.stage.stopped

    def run(self, resume: object) -> None:
        """Train."""
        plan, training = self.plan, self.training
        if plan.max_time is not None:
            self.deadline = time.monotonic() + plan.max_time
        with training.stage:
            training.begin(resume)
            first = training.initial_epoch
            for index in count(first) if plan.epochs is None else range(first, plan.epochs):
                if not self.position.reopens and (self.stopped or self._spent() or self._late()):
                    break
                self._epoch(index)

    def _epoch(self, index: int) -> None:
        epoch = self.training.open_epoch(index)
        whole = False
        if self.position.reopens or not epoch.halted():
            whole = self._batches(epoch, index)
            if not epoch.done and not self.stopped and not epoch.cut:
                self._empty(index)
        cut = self.stopped or (self._spent() and not whole)
        if self.plan.validates_at_end(index):
            if not cut or self.plan.validate_on_stop:
                self.training.fill(epoch)
                whole = self._validate(epoch, index) and whole
            else:
                whole = False
        self.training.close_epoch(
            partial=not whole, resumable=not whole and (self.stopped or self._spent())
        )

    def _batches(self, epoch: Epoch, index: int) -> bool:
        """Go through the batches of an epoch; say whether it was all of them."""
        batches = self.position.draw(self.plan.feed, index)
        if self.deadline is not None:
            batches = until(batches, self.deadline, self._late)
        if epoch.halted():  # a run that was stopped in this epoch, and is resumed to end it
            return epoch.done == self.plan.steps
        if not self._validate_by_steps(epoch, index):
            return False
        while True:
            before, room = epoch.done, self._room(epoch)
            epoch.held = self._validation_due(epoch)
            epoch.run(batches if room is None else islice(batches, room), self.train)
            drawn = epoch.done - before
            all_drawn = drawn != room and not (self.stopped or epoch.cut)
            if all_drawn:
                epoch.over = True
                self._all_drawn(epoch, index)
            whole = all_drawn or epoch.done == self.plan.steps
            validated = self._validate_by_steps(epoch, index)
            self.loop.state.act()  # what had to wait for it
            if not validated:
                return False
            if whole or self._spent() or epoch.halted():
                return whole and not epoch.cut

    def _room(self, epoch: Epoch) -> int | None:
        """Return how many batches may be drawn until something else is due."""
        plan, state = self.plan, self.loop.state
        rooms = []
        if plan.steps_per_epoch is not None:
            rooms.append(plan.steps_per_epoch - epoch.done)
        if plan.max_steps is not None:
            rooms.append(plan.max_steps - state.steps_done)
        due = plan.steps_to_validation(state.steps_done)
        if due is not None:
            rooms.append(due)
        return max(min(rooms), 0) if rooms else None

    def _spent(self) -> bool:
        """Say whether all steps of the plan are done."""
        limit = self.plan.max_steps
        return limit is not None and self.loop.state.steps_done >= limit

    def _late(self) -> bool:
        """Say whether time is up, and have the run stop then."""
        if self.deadline is None or time.monotonic() < self.deadline:
            return False
        if not self.stopped:
            reason = f"max_time of {self.plan.max_time:g} seconds is over"
            self.loop.ask(StopRequest(reason, "fit", final=False))
        return True

    def _all_drawn(self, epoch: Epoch, index: int) -> None:
        """Say so where the data ended before its time; stop where it won't begin again."""
        plan, feed = self.plan, self.plan.feed
        wanted = plan.steps_per_epoch
        missing = wanted is not None and epoch.done < wanted
        more = plan.epochs is None or index + 1 < plan.epochs
        if feed.goes_on and (missing or more):
            of = f" of {wanted}" if wanted is not None else ""
            reason = f"{feed.name} ran out after {epoch.done}{of} batches of epoch {index}"
            _warn(
                f"{reason}; it is an iterator, which cannot begin again: give an iterable, or a"
                " function of the epoch that returns one"
            )
            self.loop.ask(StopRequest(reason, "fit", final=False))
        elif missing and epoch.done and not self.short:
            self.short = True
            _warn(f"{feed.name} has {epoch.done} batches, fewer than steps_per_epoch={wanted}")

    def _empty(self, index: int) -> None:
        _warn(f"epoch {index} had not a single batch: {self.plan.feed.name} is empty")
        if self.plan.epochs is None:  # it would never end
            reason = f"{self.plan.feed.name} is empty"
            self.loop.ask(StopRequest(reason, "fit", final=False))

    def _validation_due(self, epoch: Epoch) -> int | None:
        """Return after how many batches of the epoch validation is due next."""
        due = self.plan.steps_to_validation(self.loop.state.steps_done)
        return None if due is None else epoch.done + due

    def _validate_by_steps(self, epoch: Epoch, index: int) -> bool:
        """Validate where it is due within an epoch; say whether the run may go on."""
        done = self.loop.state.steps_done
        if not self.plan.validates_after(done) or self.position.validated == done:
            return True
        if self.stopped and not self.plan.validate_on_stop:
            return False
        return self._validate(epoch, index)

    def _validate(self, epoch: Epoch, index: int) -> bool:
        """Run validation and put it into the epoch's logs; say whether it came to its end."""
        assert self.test is not None
        position = self.position
        position.before_validation = randomness.capture()
        limit: Callable[[Iterator[Any]], Iterator[Any]] = iter
        if self.deadline is not None:
            limit = partial(until, deadline=self.deadline, over=self._late)
        for name, feed in self.plan.validation.items():
            stage, logs = run_test(
                self.loop,
                self.test,
                feed,
                name=name,
                epoch=index,
                steps=self.plan.validation_steps,
                limit=limit,
            )
            if stage.outcome != "completed":
                return False  # half a validation would pass for a whole one
            epoch.logs.take(logs, "val_" if name is None else f"val_{name}_")
        position.before_validation = None
        position.validated = self.loop.state.steps_done
        return True


def _warn(message: str) -> None:
    """Warn, naming the line outside of this package that called it."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 -- whose fault it is
    level = 2
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("lifecycle."):
        frame = frame.f_back
        level += 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)
