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


__all__ = ["GracefulShutdown"]

logger = logging.getLogger("lifecycle")


class GracefulShutdown:
    """Finish the batch, save and leave when a signal asks the process to end.

    Keras: none. OpenMMLab: none.

    At the first signal the batch under way is finished; then the run ends as
    ``interrupted``, a `Checkpoint` saves at its end, and the exit status is the shell's
    128 + the signal's number (for SIGINT a KeyboardInterrupt comes out, as ever). Within a
    run, validation under way is finished too, so that what is saved lies between two
    batches. A second signal ends at once, as if this subscriber were not there.

    Handlers are in place only while a stage runs in the main thread; a loop in another
    thread is left alone. A signal that the process ignores goes on being ignored.

    It remembers nothing of a run and may listen to any number of loops.

    Args:
        signals: The signals' names; those that the platform lacks are left out.
    """

    priority: ClassVar[str] = "LOWEST"

    def __init__(self, *signals: str) -> None:
        names = signals or ("SIGTERM", "SIGINT", "SIGUSR1")
        unknown = [name for name in names if not name.startswith("SIG") or name.startswith("SIG_")]
        if unknown:
            raise ValueError(f"not a signal's name: {unknown[0]!r}; an example is 'SIGTERM'")
        self.signals = tuple(getattr(signal, name) for name in names if hasattr(signal, name))
        self._stages: list[str] = []  # those that run now, the outermost first
        self._old: dict[int, Any] = {}
        self._received: int | None = None

    def __repr__(self) -> str:
        return f"<GracefulShutdown {' '.join(number.name for number in self.signals)}>"

    def on_train_begin(self) -> None:
        self._enter("train")

    def on_train_batch_end(self) -> None:
        self._leave_if_asked("train")

    def on_epoch_end(self) -> None:
        self._leave_if_asked("train")

    def on_train_end(self) -> None:
        self._exit("train")

    def on_test_begin(self) -> None:
        self._enter("test")

    def on_test_batch_end(self) -> None:
        self._leave_if_asked("test")

    def on_test_end(self) -> None:
        self._exit("test")

    def on_predict_begin(self) -> None:
        self._enter("predict")

    def on_predict_batch_end(self) -> None:
        self._leave_if_asked("predict")

    def on_predict_end(self) -> None:
        self._exit("predict")

    def _enter(self, stage: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may set handlers, and only it is told
        self._stages.append(stage)
        if len(self._stages) == 1:
            self._received = None
            self._install()

    def _exit(self, stage: str) -> None:
        if threading.current_thread() is not threading.main_thread() or not self._stages:
            return
        if stage in self._stages:
            self._stages.remove(stage)
        if not self._stages:
            self._restore()
            self._raise_if_asked()  # it came too late for the last batch, and is not lost

    def _leave_if_asked(self, stage: str) -> None:
        if not self._stages:  # attached to a run under way
            self._enter(stage)
        if self._received is None or self._stages[:1] != [stage]:
            return
        if threading.current_thread() is threading.main_thread():
            self._restore()
            self._raise_if_asked()

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
        """Note the first signal; let the second one do what it would have done without us."""
        if self._received is not None:
            self._restore()
            signal.raise_signal(number)
            return
        self._received = number
        name = signal.Signals(number).name
        # No print here: the signal may have come in the middle of one.
        with contextlib.suppress(OSError):
            os.write(2, f"\n{name}: finishing the batch; once more to end at once\n".encode())

    def _raise_if_asked(self) -> None:
        number, self._received = self._received, None
        if number is None:
            return
        logger.info("leaving on %s", signal.Signals(number).name)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)
