"""Counting the sends of points that have no index of their own."""

from __future__ import annotations

import itertools
import weakref

from eventbus.emitter import weakly
from eventbus.senders import sender_key


class SendCount:
    """Counts the sends a subscription saw of a point without an index, per sender."""

    def __init__(self) -> None:
        self._counts: dict[object, itertools.count[int]] = {}
        self._senders: dict[object, weakref.ref[object]] = {}

    def __call__(self, sender: object) -> int:
        """Return the 0-based number of this send by ``sender``."""
        key = sender_key(sender)
        if isinstance(key, int) and not self._knows(key, sender):
            key = ()  # can't be told apart safely: all such are counted as one
        counts = self._counts
        return next(counts.get(key) or counts.setdefault(key, itertools.count()))

    def _knows(self, key: int, sender: object) -> bool:
        """Say whether the key is this sender's, and make it so if it can be."""
        known = self._senders.get(key)
        if known is not None and known() is sender:
            return True
        forget = weakly(self.forget)
        try:
            reference = weakref.ref(sender, lambda reference: forget(key, reference))
        except TypeError:
            return False
        self._counts.pop(key, None)
        self._senders[key] = reference
        return True

    def forget(self, key: int, reference: weakref.ref[object]) -> None:
        """Drop the count of a sender that died."""
        if self._senders.get(key) is reference:
            del self._senders[key]
            self._counts.pop(key, None)
