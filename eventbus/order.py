"""Who runs before whom: priorities, connection order, ``after`` and ``before``."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from eventbus.errors import OrderError, nearest
from eventbus.tables import table

if TYPE_CHECKING:
    from eventbus.subscription import Subscription

PRIORITIES: Final = {
    "HIGHEST": 0,
    "VERY_HIGH": 10,
    "HIGH": 30,
    "ABOVE_NORMAL": 40,
    "NORMAL": 50,
    "BELOW_NORMAL": 60,
    "LOW": 70,
    "VERY_LOW": 90,
    "LOWEST": 100,
}
"""The named priorities, lower runs first."""

NAMES: Final = {number: name for name, number in PRIORITIES.items()}

Key = tuple[int, int]
"""(priority, sequence number): the place a subscription takes on its own account."""


def priority_number(priority: str | int | None) -> int:
    """Turn a priority's name, in any case, or a number from 0 to 100 into the number.

    Raises:
        TypeError: ``priority`` is neither.
        ValueError: the name is unknown or the number is out of range.

    """
    if priority is None:
        return 50
    if isinstance(priority, str):
        number = PRIORITIES.get(priority.upper())
        if number is None:
            names = ", ".join(PRIORITIES)
            hint = nearest(priority.upper(), PRIORITIES)
            msg = f"priority {priority!r} is not one of {names}{hint}"
            raise ValueError(msg)
        return number
    if isinstance(priority, bool) or not isinstance(priority, int):
        msg = f"priority must be a name or an int from 0 to 100, not {priority!r}"
        raise TypeError(msg)
    if not PRIORITIES["HIGHEST"] <= priority <= PRIORITIES["LOWEST"]:
        msg = f"priority must be from 0 (first) to 100 (last), not {priority}"
        raise ValueError(msg)
    return priority


def own_place(subscription: Subscription) -> Key:
    """Return the sort key of a subscription that names no other."""
    return subscription.priority, subscription.sequence


def arranged(subscriptions: Sequence[Subscription]) -> tuple[Subscription, ...]:
    """Return the subscriptions in the order in which they run.

    Ascending priority, ties in connection order. A subscription that names others
    (``after=``, ``before=``) moves, those it names stay; a name nobody has is ignored.

    Raises:
        OrderError: ``after`` and ``before`` close a cycle.

    """
    if not any(s.after or s.before for s in subscriptions):
        return tuple(sorted(subscriptions, key=own_place))
    return _topological(subscriptions)


def _topological(subscriptions: Sequence[Subscription]) -> tuple[Subscription, ...]:
    """Sort by Kahn's algorithm, always taking the free subscription with the lowest place."""
    later, pulled = _constraints(subscriptions)
    waiting = [0] * len(subscriptions)
    for targets in later:
        for j in targets:
            waiting[j] += 1
    places = _pull(subscriptions, pulled)
    free = [(place, i) for i, place in enumerate(places) if not waiting[i]]
    heapq.heapify(free)
    result = []
    while free:
        _, i = heapq.heappop(free)
        result.append(subscriptions[i])
        for j in later[i]:
            waiting[j] -= 1
            if not waiting[j]:
                heapq.heappush(free, (places[j], j))
    if len(result) != len(subscriptions):
        stuck = {s.name for s, left in zip(subscriptions, waiting, strict=True) if left}
        msg = f"after= and before= close a cycle between {', '.join(sorted(stuck))}"
        raise OrderError(msg)
    return tuple(result)


def _constraints(subscriptions: Sequence[Subscription]) -> tuple[list[set[int]], list[set[int]]]:
    """Return, for each subscription, those that must run later, and those of them it named."""
    named: dict[str, list[int]] = {}
    for i, s in enumerate(subscriptions):
        named.setdefault(s.name, []).append(i)
    later: list[set[int]] = [set() for _ in subscriptions]
    pulled: list[set[int]] = [set() for _ in subscriptions]
    for i, s in enumerate(subscriptions):
        for j in (j for name in s.after for j in named.get(name, ()) if j != i):
            later[j].add(i)
        pulled[i] = {j for name in s.before for j in named.get(name, ()) if j != i}
        later[i] |= pulled[i]
    return later, pulled


def _pull(subscriptions: Sequence[Subscription], pulled: list[set[int]]) -> list[tuple[Key, Key]]:
    """Give each subscription the place of the first one that it wants to precede."""
    own = [own_place(s) for s in subscriptions]
    places = own[:]
    previous: list[Key] = []
    while places != previous:  # as many rounds as the longest chain of before= has links
        previous = places[:]
        for i, targets in enumerate(pulled):
            places[i] = min([places[i], *(places[j] for j in targets)])
    # a puller goes right in front of its target, several pullers in their own order
    return list(zip(places, own, strict=True))


def reason(subscription: Subscription) -> str:
    """Say in words why a subscription stands where it does."""
    number = subscription.priority
    words = [f"priority {NAMES.get(number, number)}"]
    if subscription.after:
        words.append("after " + ", ".join(subscription.after))
    if subscription.before:
        words.append("before " + ", ".join(subscription.before))
    return ", ".join(words)


class Order(tuple["Subscription", ...]):
    """The subscriptions of a point in the order in which they run; prints as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        """Draw who runs when, and why."""
        rows = [
            (str(place), s.name, s.label(), reason(s), "muted" if s.muted else "")
            for place, s in enumerate(self, 1)
        ]
        return table(("", "name", "receiver", "why", ""), rows)
