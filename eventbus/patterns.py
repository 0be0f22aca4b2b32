"""Catch-alls: receivers connected to every point that matches, also to those yet to come."""

from __future__ import annotations

import weakref
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from eventbus.binding import Receiver
from eventbus.options import Options, subscribe
from eventbus.signal import Signal
from eventbus.subscription import SubscriptionGroup

if TYPE_CHECKING:
    from eventbus.background import Workers


class Pattern(NamedTuple):
    """What was connected by a pattern, and the handle that was given for it."""

    text: str
    receiver: Receiver
    options: Options
    group: SubscriptionGroup


def matches(pattern: str, point: str) -> bool:
    """Say whether a point's name matches ``"*"`` or a prefix that ends in ``*``."""
    return fnmatchcase(point, pattern.removeprefix("on_"))


class Patterns:
    """The patterns of one bus."""

    def __init__(self) -> None:
        self._patterns: list[Pattern] = []
        self._keepers: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, pattern: Pattern) -> None:
        """Remember a pattern, where its sender keeps what is its own if it does."""
        sender = pattern.options.get("sender")
        keeper = getattr(sender, "__emitters__", None)
        if isinstance(keeper, dict):
            keeper.setdefault(self, []).append(pattern)
            self._keepers.add(sender)
        else:
            self._patterns.append(pattern)

    def extend(self, signal: Signal, workers: Workers) -> None:
        """Connect the patterns that match a point declared just now.

        Raises:
            BindingError: a receiver requires what the point does not carry.

        """
        self._patterns = [p for p in self._patterns if not p.group.ended]
        kept = [p for sender in tuple(self._keepers) for p in sender.__emitters__.get(self, ())]
        for text, receiver, options, group in (*self._patterns, *kept):
            taken = group.ended or any(s.point == signal.name for s in group)
            if not taken and matches(text, signal.name):
                group.add(subscribe(signal, receiver, options, workers=workers))
