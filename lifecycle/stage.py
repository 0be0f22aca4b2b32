"""Stages: what begins must end, once, whatever happens in between."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from lifecycle.control import Control
    from lifecycle.span import Span
    from lifecycle.state import State

__all__ = ["Stage"]

logger = logging.getLogger("lifecycle")


class Stage:
    """A train, test or predict stage: a ``with`` block whose exit sends its end point.

    Args:
        loop: whose stage it is.
        kind: ``train``, ``test`` or ``predict``.
        ends: returns what the end point carries after ``logs`` and before ``outcome``.
    """

    def __init__(
        self, loop: Control, kind: str, *, ends: Callable[[], tuple[Any, ...]] = tuple
    ) -> None:
        self.loop = loop
        self.kind = kind
        self.ends = ends
        self.span: Span
        self.begun = False
        self.ended = False
        self.left = False
        """Whether the user's own ``for`` was left before its end."""
        self.by_hand = False
        """Whether the user's own ``for`` goes through it."""
        self.outcome: str | None = None
        self.first = 0
        """Requests made before it, which it does not heed."""
        self._at_leave: list[Callable[[], object]] = []

    @property
    def stopped(self) -> bool:
        """Whether it was asked to stop."""
        return len(self.loop.state.requests) > self.first

    def enter(self, span: Span) -> None:
        """Make this the innermost stage; nothing is sent yet.

        Args:
            span: holds the logs of its end.

        Raises:
            RuntimeError: the loop runs in another thread, or trains and should train again.
        """
        loop = self.loop
        loop.check_free(self.kind)
        if not loop.stages:
            loop.thread = threading.get_ident()
            state = loop.state
            del state.requests[: loop.heeded]  # those of the last run; later ones hold for this
            loop.heeded = 0
            state.outcome = None
            state.actions.clear()
        else:
            self.first = len(loop.state.requests)
        self.span = span
        loop.stages.append(self)
        loop.spans.append(span)
        loop.state.stages.append(self.kind)

    def at_leave(self, action: Callable[[], object]) -> None:
        """Have something done after the end was sent."""
        self._at_leave.append(action)

    def begin(self, *payload: object) -> None:
        """Send the begin point: from now on the end is owed."""
        self.begun = True
        emitter = self.loop.emitter(f"{self.kind}_begin")
        if emitter.live:
            emitter.send(self.span.logs, *payload)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        failures = self.close(error)
        if error is None and failures:
            raise _first_of(failures, self.kind)

    def close(self, error: BaseException | None = None) -> list[BaseException]:
        """End the stage, if it is not ended.

        Args:
            error: what has ended it. What else is raised now is noted on it, and logged.

        Returns:
            What the subscribers have raised at its end, if there is no such error.
        """
        if self.ended:
            return []
        self.ended = True
        failures: list[BaseException] = []
        try:
            if self.begun:
                failures = self._send_end(error)
        finally:
            self._leave()
        if error is not None:
            for failure in failures:
                report(failure, f"at {self.kind}_end", after=error)
            return []
        return failures

    def _send_end(self, error: BaseException | None) -> list[BaseException]:
        loop = self.loop
        self.outcome = self._judge(error)
        if error is not None and loop.reported is not error:
            loop.reported = error
            where = loop.spans[-1].place() or f"at {self.kind}_{'end' if self.left else 'begin'}"
            error.add_note(f"raised {where}")
            if not isinstance(error, GeneratorExit):
                failures = loop.emitter("exception").send_all(error, self.kind, where)
                for failure in failures:
                    report(failure, "at exception", after=error)
        self._cut_back()
        if len(loop.stages) == 1:
            loop.state.outcome = self.outcome
        reasons = tuple(loop.state.requests[self.first :])
        return loop.emitter(f"{self.kind}_end").send_all(
            self.span.closing(), *self.ends(), self.outcome, reasons, error
        )

    def _judge(self, error: BaseException | None) -> str:
        if error is not None:
            interrupted = isinstance(error, KeyboardInterrupt | SystemExit)
            return "interrupted" if interrupted else "failed"
        if self.left:
            return "left"
        if not self.stopped:
            return "completed"
        requests = self.loop.state.requests[self.first :]
        return "interrupted" if any(r.interrupt for r in requests) else "stopped"

    def _cut_back(self) -> None:
        """Drop the spans that an error left open inside."""
        spans, state = self.loop.spans, self.loop.state
        while spans[-1] is not self.span:
            drop_pass(state, spans.pop())

    def _leave(self) -> None:
        loop = self.loop
        for action in self._at_leave:
            action()
        self._cut_back()
        loop.spans.pop()
        state = loop.state
        drop_pass(state, self.span)
        loop.stages.remove(self)
        state.stages.pop()
        state.attention = True  # let the batch loop outside see what came meanwhile
        if not loop.stages:
            loop.thread = None
            loop.reported = None
            loop.heeded = len(state.requests)


def drop_pass(state: State, span: object) -> None:
    """Let a span no longer count as a pass under way."""
    state.passes[:] = [each for each in state.passes if each is not span]


def report(failure: BaseException, when: str, *, after: BaseException | None = None) -> None:
    """Log an error that cannot come out because another did, and note it there."""
    logger.error("%s %s goes no further", type(failure).__name__, when, exc_info=failure)
    if after is not None and failure is not after:
        after.add_note(f"then, {when}: {type(failure).__name__}: {failure}")


def _first_of(failures: Sequence[BaseException], kind: str) -> BaseException:
    """Return the error that comes out where only subscribers of an end have failed."""
    if len(failures) == 1:
        return failures[0]
    for failure in failures:
        if not isinstance(failure, Exception):  # such as a Ctrl-C, which must be caught as that
            for other in failures:
                if other is not failure:
                    report(other, f"at {kind}_end", after=failure)
            return failure
    return BaseExceptionGroup(f"{len(failures)} subscribers of {kind}_end failed", failures)
