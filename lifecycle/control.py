"""What a running loop can be asked for, by its subscribers, its step or another thread."""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from lifecycle.sender import Sender
from lifecycle.state import State, StopRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eventbus import Bus
    from lifecycle.batches import Pass
    from lifecycle.position import Position
    from lifecycle.span import Span
    from lifecycle.stage import Stage
    from lifecycle.subscribers import History

__all__ = ["Control"]

COUNTERS: Final = frozenset({"epoch", "batch", "step", "update"})
"""What `send` fills in from the state."""

RECORDER: Final = "lifecycle.subscribers.history:History"
"""What keeps the history: a subscriber like any other, imported when a run begins."""


class Control(Sender):
    """A sender that stands somewhere in a run: what is under way, and who asked it to stop.

    Args:
        bus: as for Sender.
    """

    def __init__(self, bus: Bus | None = None) -> None:
        super().__init__(bus)
        self.state = State()
        """Where the loop stands."""
        self.objects: dict[str, Any] = {}
        """What belongs to the run, by name."""
        self.history: History | None = None
        """The history of the run under way, or of the last one."""
        self.stages: list[Stage] = []
        """The stages under way, the outermost first."""
        self.spans: list[Span] = []
        """The spans under way, the innermost last."""
        self.position: Position | None = None
        """The position of the run under way, or of the last one."""
        self.thread: int | None = None
        """The thread in which it runs."""
        self.reported: BaseException | None = None
        """The error that ``exception`` was last sent for."""
        self.heeded = 0
        """How many requests to stop were the last run's."""

    def log(self, *, reduce: str = "mean", **metrics: Any) -> None:
        """Put metrics into the logs of what is under way: a batch, an epoch, a pass, a run.

        What is logged in a batch is in the logs of its end, and reduced over the pass in the
        logs of the pass: a mean weighted by batch size, unless ``reduce`` says otherwise.
        ``batch_size=`` sets that weight.

        Args:
            reduce: ``mean``, ``sum``, ``min``, ``max`` or ``last``.
            metrics: numbers, also arrays of one element on any device.

        Raises:
            TypeError: a metric is not a number.
            ValueError: there is no such reduction, or the metric is reduced in another way.
            RuntimeError: nothing is under way.
        """
        if not self.spans:
            raise RuntimeError("there is nothing to log into: no stage of this loop is running")
        self.spans[-1].log(metrics, reduce)

    def send(self, point: str, /, **payload: Any) -> None:
        """Send a point, also one that you declared yourself on the loop's bus.

        Counters of the loop (``epoch``, ``batch``, ``step``, ``update``) that the point
        carries are filled in from ``loop.state`` unless given.

        Raises:
            UnknownPointError: there is no such point.
            TypeError: the payload is not the one declared.
        """
        emitter = self.emitter(point)
        for counter in COUNTERS.intersection(emitter.signal.payload or ()):
            payload.setdefault(counter, getattr(self.state, counter))
        emitter.send(**payload)

    # -- control

    def stop(self, reason: str = "", *, final: bool = True, interrupt: bool = False) -> None:
        """Ask the run to stop: no further batch starts; all ends are sent. From any thread.

        Requests add up; none takes another back. One made at rest holds for the next run.

        Args:
            reason: why, in words.
            final: the run has come to its end, for a resumed one too. Otherwise, as when
                time is up, a resumed run goes on.
            interrupt: it comes from outside of the run, whose outcome is then
                ``interrupted`` instead of ``stopped``; never final.
        """
        caller = sys._getframe(1)  # noqa: SLF001 -- who asks is part of the request
        name = f"{caller.f_globals.get('__name__', '?')}.{caller.f_code.co_qualname}"
        self.ask(StopRequest(reason, name, final and not interrupt, interrupt))

    def ask(self, request: StopRequest) -> None:
        """Take in a request to stop, and send ``stop_requested``."""
        self.state.ask(request)
        emitter = self.emitter("stop_requested")
        if emitter.live:
            emitter.send(request.reason, request.requester)

    def afterwards(self, action: Callable[[], object]) -> None:
        """Have something done once the point under way has reached all its subscribers.

        So a checkpoint holds what all of them have decided, whatever their order. An error
        that comes out of the point leaves it undone.

        Args:
            action: a function without arguments.

        Raises:
            RuntimeError: no training is under way.
        """
        if "train" not in self.state.stages:
            raise RuntimeError("afterwards is for subscribers of train_batch_end and epoch_end")
        self.state.actions.append(action)

    def stop_epoch(self) -> None:
        """Have the innermost pass, such as this epoch, end after the batch under way.

        Raises:
            RuntimeError: there is none.
        """
        self._pass("stop_epoch").cut = True
        self.state.attention = True

    def skip_batch(self) -> None:
        """Leave out the batch under way: its step, if asked at its begin, and its metrics.

        Its end is sent with ``skipped=True``.

        Raises:
            RuntimeError: no batch is under way.
        """
        span = self._pass("skip_batch")
        if not span.within or span.point == "end":
            raise RuntimeError("skip_batch: no batch is under way")
        span.skipping = True
        self.state.attention = True

    def _pass(self, asked: str) -> Pass:
        if not self.state.passes:
            raise RuntimeError(f"{asked}: no epoch or other pass over batches is under way")
        return self.state.passes[-1]  # type: ignore[return-value]

    # -- going on later

    def state_dict(self) -> dict[str, Any]:
        """Describe where the run is: all that it takes to go on exactly there.

        Raises:
            RuntimeError: nothing was run yet.
        """
        if self.position is None:
            raise RuntimeError("this loop has not run yet: there is no position to save")
        return self.position.state_dict(self.state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the run that is about to begin go on from a saved position.

        This is for what restores a checkpoint, called by ``fit(resume=...)``.

        Raises:
            RuntimeError: no run is about to begin.
            ValueError: it is of another version, or keys are missing or unknown.
        """
        if self.position is None or self.state.stage != "train" or self.stages[-1].begun:
            raise RuntimeError("a position is loaded by fit(resume=...), before its train_begin")
        self.position.load_state_dict(state, self.state)

    # -- for the stages

    def check_free(self, kind: str) -> None:
        """Check that a stage may begin.

        Raises:
            RuntimeError: it may not.
        """
        if self.thread is not None and self.thread != threading.get_ident():
            raise RuntimeError("this loop is running in another thread; make a second Loop there")
        if kind == "train" and self.stages:
            raise RuntimeError(
                f"this loop is in the middle of {self.state.stage}: it cannot train inside of"
                " itself; make a second Loop"
            )

    def record(self) -> None:
        """See to it that the history of the run is kept."""
        for name, owner in self._named_owners():
            if name == "History":
                self.history = owner  # type: ignore[assignment]
                return
        module, _, name = RECORDER.partition(":")
        self.history = getattr(import_module(module), name)()
        self.stages[0].at_leave(self.attach(self.history).disconnect)
