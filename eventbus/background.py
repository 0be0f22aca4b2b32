"""Delivery on a worker thread: in order, through a bounded queue, errors never lost."""

from __future__ import annotations

import atexit
import copy
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Final, NamedTuple

from eventbus.binding import Receiver, describe

if TYPE_CHECKING:
    from eventbus.subscription import Subscription

log: Final = logging.getLogger("eventbus")

CAPACITY: Final = 1024
"""How many calls a worker's queue holds."""

EXIT_SECONDS: Final = 5.0
"""How long leaving the interpreter waits for what is still queued."""

IDLE_SECONDS: Final = 5.0
"""How long a worker's thread waits for a further call before it ends."""

OVERFLOWS: Final = ("block", "drop_oldest", "error")


class Job(NamedTuple):
    """A queued call and whose it is."""

    owner: object
    run: Callable[[], None]


class QueueFullError(RuntimeError):
    """A background receiver with ``overflow="error"`` found its worker's queue full."""


class Worker:
    """One thread that runs queued calls in order; started when there is a first one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.errors: deque[tuple[Delivery, BaseException]] = deque()
        """What receivers with the policy "raise" raised, until it surfaces."""
        self.renew()

    def renew(self) -> None:
        """Start empty and without a thread, as after a fork."""
        self.errors.clear()
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = False

    def put(self, job: Job, overflow: str) -> None:
        """Queue a call.

        Raises:
            QueueFullError: the queue is full and ``overflow`` is "error".

        """
        with self._changed:
            if len(self._jobs) >= CAPACITY:
                self._make_room(job.owner, overflow)
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"eventbus {self.name}", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def _make_room(self, owner: object, overflow: str) -> None:
        if overflow == "error":
            msg = f"the queue of worker {self.name!r} is full ({CAPACITY} calls)"
            raise QueueFullError(msg)
        if overflow == "drop_oldest":
            oldest = next((i for i, job in enumerate(self._jobs) if job.owner is owner), None)
            if oldest is not None:  # others' calls are not for it to drop
                del self._jobs[oldest]
            return
        if threading.current_thread() is self._thread:
            return  # waiting for itself would never end
        while len(self._jobs) >= CAPACITY:
            self._changed.wait()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._jobs:
                    if not self._changed.wait(IDLE_SECONDS) and not self._jobs:
                        self._thread = None  # the next call starts another
                        return
                job = self._jobs.popleft()
                self._busy = True
            try:
                job.run()
            finally:
                del job  # and with it the payload
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def flush(self, deadline: float | None) -> bool:
        """Wait until all that was queued has run; False if the deadline came first."""
        if threading.current_thread() is self._thread:
            return True
        with self._changed:
            while self._jobs or self._busy:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(left)
        return True


class Delivery:
    """Stands in a subscription's cell for the receiver, and queues its calls.

    A call raises what an earlier call of the same receiver raised, under the policy
    "raise"; mutable mappings such as logs are copied when it is made.
    """

    def __init__(self, worker: Worker, receiver: Receiver, point: str, overflow: str) -> None:
        self._worker = worker
        self.receiver = receiver
        """The receiver itself."""
        self._point = point
        self._overflow = overflow
        self.subscription: weakref.ref[Subscription] | None = None

    def __call__(self, *args: object, **payload: object) -> None:
        """Queue one call."""
        if self._worker.errors:
            self._surface()
        kept = tuple(map(snapshot, args))
        rest = {key: snapshot(value) for key, value in payload.items()}
        subscription = self._subscribed()
        spent = subscription is None or not subscription.active  # by `once`, for this very call
        self._worker.put(Job(self, lambda: self._run(kept, rest, spent=spent)), self._overflow)

    def _subscribed(self) -> Subscription | None:
        return None if self.subscription is None else self.subscription()

    def _run(self, args: tuple[object, ...], payload: dict[str, object], *, spent: bool) -> None:
        subscription = self._subscribed()
        if not spent and (subscription is None or not subscription.active):
            return
        try:
            self.receiver(*args, **payload)
        except Exception as error:  # noqa: BLE001 -- the policy decides
            if subscription is not None and subscription.shape.errors != "raise":
                subscription.caught(error)
            else:
                self._remember(error)
        except BaseException as error:  # noqa: BLE001 -- it must not end the worker
            self._remember(error)

    def _remember(self, error: BaseException) -> None:
        where = f"{describe(self.receiver)}, a receiver of {self._point!r}"
        error.add_note(f"raised in the background by {where}")
        self._worker.errors.append((self, error))

    def _surface(self) -> None:
        for entry in tuple(self._worker.errors):
            if entry[0] is self:
                self._worker.errors.remove(entry)
                raise entry[1]


class Workers:
    """The workers of one bus, by name."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._lock = threading.Lock()

    def worker(self, name: str) -> Worker:
        """Return the worker of a name, made when first asked for."""
        with self._lock:
            worker = self._workers.get(name)
            if worker is None:
                worker = self._workers[name] = Worker(name)
                _watch(self)
            return worker

    def renew(self) -> None:
        """Make locks and workers usable again in a forked child; its queue starts empty."""
        self._lock = threading.Lock()
        for worker in self._workers.values():
            worker.renew()

    def deliver(self, group: object, receiver: Receiver, point: str, overflow: object) -> Delivery:
        """Make the callable that queues calls of ``receiver`` in its stead.

        Raises:
            TypeError: ``group`` is neither True nor a worker's name.
            ValueError: ``overflow`` is not a policy.

        """
        if group is not True and not isinstance(group, str):
            msg = f"background must be True or the name of a worker, not {group!r}"
            raise TypeError(msg)
        if overflow is None:
            overflow = "block"
        if overflow not in OVERFLOWS:
            msg = f"overflow must be one of {', '.join(OVERFLOWS)}, not {overflow!r}"
            raise ValueError(msg)
        worker = self.worker("bus" if group is True else str(group))
        return Delivery(worker, receiver, point, str(overflow))

    def flush(self, timeout: float | None = None) -> None:
        """Wait for all workers, then raise what their receivers raised meanwhile.

        Raises:
            TimeoutError: calls were still waiting after ``timeout`` seconds.

        """
        deadline = None if timeout is None else time.monotonic() + timeout
        waiting = [w.name for w in tuple(self._workers.values()) if not w.flush(deadline)]
        if waiting:
            msg = f"background receivers still had calls queued after {timeout} s: {waiting}"
            raise TimeoutError(msg)
        errors = [e for w in tuple(self._workers.values()) for e in _drain(w.errors)]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            msg = "several background receivers failed"
            raise BaseExceptionGroup(msg, errors)


def snapshot(value: object) -> object:
    """Copy a mutable mapping, so that the receiver sees it as it was when sent."""
    return copy.copy(value) if isinstance(value, MutableMapping) else value


def _drain(errors: deque[tuple[Delivery, BaseException]]) -> list[BaseException]:
    drained = []
    while errors:
        drained.append(errors.popleft()[1])
    return drained


_watched: weakref.WeakSet[Workers] = weakref.WeakSet()
_hooks: list[object] = []


def _watch(workers: Workers) -> None:
    """Flush at exit and renew after a fork, from the first worker on."""
    if not _hooks:
        _hooks.append(atexit.register(_at_exit))
        if hasattr(os, "register_at_fork"):  # pragma: no branch -- not on Windows
            os.register_at_fork(after_in_child=_after_fork)
    _watched.add(workers)


def _at_exit() -> None:
    deadline = time.monotonic() + EXIT_SECONDS  # for all of them together
    for workers in tuple(_watched):
        try:
            workers.flush(max(0.0, deadline - time.monotonic()))
        except BaseException:
            log.exception("background receivers failed while the interpreter was leaving")


def _after_fork() -> None:
    for workers in tuple(_watched):
        workers.renew()
