"""Catch-alls: receivers connected to every point that matches, also to those yet to come."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from blinker import ANY

from eventbus.binding import Receiver
from eventbus.emitter import weakly
from eventbus.options import Options, subscribe
from eventbus.senders import sender_key, unfit_sender
from eventbus.signal import Signal
from eventbus.subscription import SubscriptionGroup, identity_of

if TYPE_CHECKING:
    from eventbus.background import Workers


class Pattern(NamedTuple):
    """What was connected by a pattern, and the handle that was given for it."""

    text: str
    receiver: Receiver
    options: Options
    """All but the sender, which is held weakly."""
    sender_of: Callable[[], object]
    group: SubscriptionGroup


def matches(pattern: str, point: str) -> bool:
    """Say whether a point's name matches ``"*"`` or a prefix that ends in ``*``."""
    return point.startswith(pattern.removeprefix("on_")[:-1])


class Patterns:
    """The patterns of one bus."""

    def __init__(self) -> None:
        self._patterns: dict[int, Pattern] = {}
        self._keepers: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(
        self, text: str, receiver: Receiver, options: Options, group: SubscriptionGroup
    ) -> None:
        """Remember a pattern, where its sender keeps what is its own if it does.

        Raises:
            TypeError: the sender can be neither weakly held nor safely compared.

        """
        sender = options.get("sender", ANY)
        rest: Options = {**options}
        rest.pop("sender", None)
        number = next(_number)
        home = self._patterns
        keeper = getattr(sender, "__emitters__", None)
        if isinstance(keeper, dict):
            home = keeper.setdefault(self, {})
            self._keepers.add(sender)
        _prune(home)
        home[number] = Pattern(text, receiver, rest, self._hold(sender, number), group)

    def _hold(self, sender: object, number: int) -> Callable[[], object]:
        if sender is ANY or not isinstance(sender_key(sender), int):
            return lambda: sender
        forget = weakly(self._forget)
        try:
            return weakref.ref(sender, lambda _: forget(number))
        except TypeError:
            raise unfit_sender(sender) from None

    def _forget(self, number: int) -> None:
        self._patterns.pop(number, None)

    def __iter__(self) -> Iterator[Pattern]:
        """Iterate over the patterns that still hold."""
        homes = [self._patterns]
        homes += [s.__emitters__.get(self, {}) for s in tuple(self._keepers)]
        for home in homes:
            _prune(home)
            yield from tuple(home.values())

    def extend(self, signal: Signal, workers: Workers) -> None:
        """Connect the patterns that match a point declared just now.

        Raises:
            BindingError: a receiver requires what the point does not carry.

        """
        taken: list[SubscriptionGroup] = []
        try:
            for text, receiver, rest, sender_of, group in self:
                if matches(text, signal.name) and group.take(signal.name):
                    taken.append(group)
                    options: Options = {**rest, "sender": sender_of()}
                    group.add(subscribe(signal, receiver, options, workers=workers))
        except BaseException:
            for group in taken:
                group.leave(signal.name)
            raise

    def end(self, receiver: Receiver, points: tuple[str, ...], sender: object = ANY) -> bool:
        """Let a receiver's patterns take in no further points; say whether there were any.

        Args:
            receiver: what was connected.
            points: the patterns, as they were given; "*" stands for all.
            sender: only those connected to it; ANY for all.

        """
        found = False
        for text, other, _, sender_of, group in self:
            wanted = "*" in points or text in points
            heard = sender is ANY or sender_of() is sender
            if wanted and heard and identity_of(other) == identity_of(receiver):
                group.ended = found = True
        return found


_number = itertools.count()


def _prune(home: dict[int, Pattern]) -> None:
    for number, pattern in tuple(home.items()):
        if pattern.group.ended:
            home.pop(number, None)
