"""The lock of a bus, and what garbage collection leaves to whoever holds it."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from eventbus.emitter import Home


class Guard:
    """The lock of a bus, which garbage collection can leave work with.

    A weak receiver may die at any instant, also in the thread that holds the lock; its
    callback then leaves the home to be swept by whoever releases the lock. So does what a
    destructor or a signal handler disconnects in the midst of another change.
    """

    def __init__(self) -> None:
        self.renew()
        _guards.add(self)

    def renew(self) -> None:
        """Start with an open lock, as after a fork."""
        self._lock = threading.RLock()
        self.depth: int = 0
        """Changes under way in the thread that has the lock: over 1, amid another change."""
        self._buried: deque[weakref.ref[Home]] = deque()

    def __enter__(self) -> Self:
        self._lock.acquire()
        self.depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        self._lock.release()
        if self._buried:
            self._sweep()

    def bury(self, home: weakref.ref[Home]) -> None:
        """Have a home drop its dead receivers, now or when the lock is free."""
        self._buried.append(home)
        self._sweep()

    def _sweep(self) -> None:
        while self._buried and self._lock.acquire(blocking=False):
            try:
                if self.depth:
                    return  # this very thread is at it, and sweeps when it is done
                with self:
                    while self._buried:
                        home = self._buried.popleft()()
                        if home is not None:
                            home.drop_dead()
            finally:
                self._lock.release()


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


def _renew() -> None:
    for guard in _guards:
        guard.renew()


# a lock held by another thread stays held in the child
if hasattr(os, "register_at_fork"):  # pragma: no branch -- not on Windows
    os.register_at_fork(after_in_child=_renew)
