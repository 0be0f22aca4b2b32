"""Where a loop stands: its counters and the requests to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["State", "StopRequest"]


class StopRequest(NamedTuple):
    """One request to stop a run."""

    reason: str
    """Why, in words."""

    requester: str
    """The function that asked."""

    final: bool = True
    """Whether it ends the run for good; otherwise a resumed run goes on."""

    interrupt: bool = False
    """Whether it came from outside of the run, which then ends as ``interrupted``."""

    def __str__(self) -> str:
        return self.reason or f"asked by {self.requester}"


class Counter(Protocol):
    """What counts the batches of a span."""

    done: int

    @property
    def index(self) -> int:
        """The batch under way, or the one that ended last; -1 before the first."""

    @property
    def settled(self) -> bool:
        """Whether no step is under way and none was broken."""


class State:
    """Where the loop stands.

    ``epoch``, ``batch``, ``step`` and ``update`` are 0-based indices of the unit under
    way; at every end point they are the indices of the unit that just ended, and -1
    before the first. ``epochs_done``, ``batches_done``, ``steps_done`` and
    ``updates_done`` are counts of finished units.
    """

    def __init__(self) -> None:
        self.stages: list[str] = []
        """The stages under way, the outermost first."""
        self.epochs: int | None = None
        """The index after the last epoch that will run; None where that is open."""
        self.initial_epoch = 0
        """The first epoch of this run."""
        self.steps_per_epoch: int | None = None
        """Batches per epoch, None where unknown."""
        self.max_steps: int | None = None
        """The count of steps at which the run ends, None where it isn't limited so."""
        self.outcome: str | None = None
        """How the last run ended; None during its first stage."""
        self.requests: list[StopRequest] = []
        """The requests to stop of the run under way, or of the last one."""
        self.attention = False
        """Set by whatever the batch loop must look at before it goes on."""
        self.passes: list[Counter] = []
        """The spans of batches that are open, the innermost last."""
        self.actions: list[Callable[[], object]] = []
        """What is to be done once the training point under way has reached all subscribers."""
        self.restart()

    def restart(self) -> None:
        """Count from nothing, as a new run does."""
        self.epoch = -1
        self.epochs_done = 0
        self.updates_done = 0
        self.open = False
        """Whether an epoch was begun and not finished."""
        self.train: Counter | None = None
        self.steps_before = 0
        """Steps before the epoch that `train` counts."""

    @property
    def stage(self) -> str | None:
        """``train``, ``test`` or ``predict``, the innermost; None at rest."""
        return self.stages[-1] if self.stages else None

    @property
    def running(self) -> bool:
        """Whether a stage is under way."""
        return bool(self.stages)

    @property
    def batch(self) -> int:
        """The batch within the innermost pass."""
        counter = self.passes[-1] if self.passes else self.train
        return counter.index if counter is not None else -1

    @property
    def batches_done(self) -> int:
        """Finished batches of the epoch that is open, or of the last one."""
        return self.train.done if self.train is not None else 0

    @property
    def step(self) -> int:
        """The training step, over the whole run."""
        return self.steps_before + (self.train.index if self.train is not None else -1)

    @property
    def steps_done(self) -> int:
        """Finished training steps."""
        return self.steps_before + self.batches_done

    @property
    def total_steps(self) -> int | None:
        """How many steps the whole run has, None where unknown."""
        limits = [] if self.max_steps is None else [self.max_steps]
        if self.epochs is not None and self.steps_per_epoch is not None:
            limits.append(self.epochs * self.steps_per_epoch)
        return min(limits, default=None)

    @property
    def update(self) -> int:
        """The optimizer step that was made last; a step function that accumulates counts them."""
        return self.updates_done - 1

    @property
    def settled(self) -> bool:
        """Whether no training step is under way, and none was broken by an error."""
        return self.train is None or self.train.settled

    @property
    def stopping(self) -> bool:
        """Whether someone has asked the run under way to stop."""
        return self.running and bool(self.requests)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the run was asked to stop, in words."""
        return tuple(str(request) for request in self.requests)

    def ask(self, request: StopRequest) -> None:
        """Add a request to stop; safe from any thread."""
        self.requests.append(request)
        self.attention = True  # after the request: who sees the flag must find it

    def act(self) -> None:
        """Do what was put off until the point under way has reached all its subscribers."""
        actions, self.actions = self.actions, []
        for action in actions:
            action()

    def heed(self, requests: Iterable[StopRequest]) -> None:
        """Take over the requests of a run that goes on here."""
        for request in requests:
            self.ask(request)

    def __repr__(self) -> str:
        return (
            f"<State {self.stage or 'at rest'}: epoch {self.epoch}, batch {self.batch},"
            f" step {self.step}{', stopping' if self.stopping else ''}>"
        )
