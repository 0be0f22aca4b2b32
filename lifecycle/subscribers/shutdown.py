"""End a run in good order when the process is asked to go."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from types import FrameType

    from lifecycle.loop import Loop

__all__ = ["GracefulShutdown"]

logger = logging.getLogger("lifecycle")


class GracefulShutdown:
    """Finish the batch, save and leave when a signal asks the process to end.

    Keras: none. OpenMMLab: none.

    At the first signal the batch under way is finished and no other is begun; the run ends
    as ``interrupted``, with all its end points, and a `Checkpoint` saves there. Then the
    process ends with the status that a shell expects: SystemExit with 128 + the signal's
    number comes out of the loop, or KeyboardInterrupt for SIGINT, as ever. A second signal
    ends at once, as if this subscriber were not there.

    Handlers are in place only while a stage runs in the main thread; a loop in another
    thread is left alone. A signal that the process ignores goes on being ignored.

    It remembers nothing of a run and may listen to any number of loops.

    Args:
        signals: Their names; SIGTERM, SIGINT and SIGUSR1 by default. Those that the
            platform lacks are left out.

    Raises:
        ValueError: One is no signal's name.
    """

    priority: ClassVar[str] = "LOWEST"

    def __init__(self, *signals: str) -> None:
        names = signals or ("SIGTERM", "SIGINT", "SIGUSR1")
        for name in names:
            if not name.startswith("SIG") or name.startswith("SIG_"):
                raise ValueError(f"{name!r} is no signal's name; an example is 'SIGTERM'")
        numbers = (getattr(signal, name, None) for name in names)
        self.signals = tuple(number for number in numbers if number is not None)
        self._depth = 0  # stages under way, one inside the other
        self._old: dict[int, Any] = {}
        self._received: int | None = None

    def __repr__(self) -> str:
        return f"<GracefulShutdown {' '.join(number.name for number in self.signals)}>"

    def on_train_begin(self) -> None:
        self._enter()

    def on_train_batch_end(self, loop: Loop) -> None:
        self._between_batches(loop)

    def on_epoch_end(self, loop: Loop) -> None:
        self._between_batches(loop)

    def on_train_end(self) -> None:
        self._leave()

    def on_test_begin(self) -> None:
        self._enter()

    def on_test_batch_end(self, loop: Loop) -> None:
        self._between_batches(loop)

    def on_test_end(self) -> None:
        self._leave()

    def on_predict_begin(self) -> None:
        self._enter()

    def on_predict_batch_end(self, loop: Loop) -> None:
        self._between_batches(loop)

    def on_predict_end(self) -> None:
        self._leave()

    def _enter(self) -> None:
        if _in_main_thread():  # only there may handlers be set, and only there do they run
            self._depth += 1
            if self._depth == 1:
                self._received = None
                self._install()

    def _between_batches(self, loop: Loop) -> None:
        if self._depth == 0:  # attached to a run under way
            self._enter()
        if self._received is None or not _in_main_thread():
            return
        if not any(request.interrupt for request in loop.state.requests):
            name = signal.Signals(self._received).name
            loop.stop(f"received {name}", interrupt=True)

    def _leave(self) -> None:
        if not _in_main_thread() or self._depth == 0:
            return
        self._depth -= 1
        if self._depth:
            return
        self._restore()
        number, self._received = self._received, None
        if number is not None:
            logger.info("leaving on %s", signal.Signals(number).name)
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    def _install(self) -> None:
        for number in self.signals:
            old = signal.getsignal(number)
            if old is not None and old is not signal.SIG_IGN:
                self._old[number] = old
                signal.signal(number, self._receive)

    def _restore(self) -> None:
        while self._old:
            number, old = self._old.popitem()
            if signal.getsignal(number) == self._receive:  # else someone has set another since
                signal.signal(number, old)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        """Note the first signal; let the second one do what it would have done without us.

        It may come in the middle of anything, so it neither prints nor touches the loop.
        """
        if self._received is not None:
            self._restore()
            signal.raise_signal(number)
            return
        self._received = number
        name = signal.Signals(number).name
        with contextlib.suppress(OSError):
            os.write(2, f"\n{name}: finishing the batch; once more to end at once\n".encode())


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
