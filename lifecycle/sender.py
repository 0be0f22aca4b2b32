"""What connects to one loop, and how it sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from eventbus import SubscriptionGroup
from lifecycle.default import bus as default_bus
from lifecycle.foreign import connector
from lifecycle.points import declare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from eventbus import Bus, Emitter, Order, Subscription

__all__ = ["Sender"]

F = TypeVar("F", bound="Callable[..., Any]")


class Sender:
    """Sends points on a bus; what is connected to it alone lives on it and dies with it.

    Args:
        bus: the default bus unless given. Points that it lacks are declared on it.
    """

    def __init__(self, bus: Bus | None = None) -> None:
        self.__emitters__: dict[object, Any] = {}  # the bus keeps here what is connected to us
        self.bus = default_bus if bus is None else bus
        if "train_begin" not in self.bus:
            declare(self.bus)
        self._groups: list[tuple[object, SubscriptionGroup]] = []

    # -- connecting

    def on(self, *points: str, **options: Any) -> Callable[[F], F]:
        """Connect the decorated function to this loop alone; see ``eventbus.Bus.on``."""
        return self.bus.on(*points, **{"sender": self, **options})

    def connect(
        self, points: str | Iterable[str], receiver: Callable[..., Any], **options: Any
    ) -> Subscription | SubscriptionGroup:
        """Connect a receiver to this loop alone; see ``eventbus.Bus.connect``."""
        return self.bus.connect(points, receiver, **{"sender": self, **options})

    def connected(
        self, points: str | Iterable[str], receiver: Callable[..., Any], **options: Any
    ) -> AbstractContextManager[Subscription | SubscriptionGroup]:
        """Connect a receiver to this loop inside a ``with`` block."""
        return self.bus.connected(points, receiver, **{"sender": self, **options})

    def attach(self, *owners: object, **options: Any) -> SubscriptionGroup:
        """Connect the methods of objects to this loop alone; see ``eventbus.Bus.attach``.

        Keras callbacks and OpenMMLab hooks are known by their methods, and are called as
        they are in their framework; see `lifecycle.bridges`.

        Args:
            owners: one object or several.
            options: for all of their subscriptions, such as ``name`` or ``priority``.

        Returns:
            One handle for all.

        Raises:
            TypeError: there is nothing to attach.
            ValueError: two objects that a checkpoint would save have the same name.
        """
        if not owners:
            raise TypeError("attach takes the objects to attach")
        made: list[tuple[object, SubscriptionGroup]] = []
        try:
            for owner in owners:
                self._check_name(owner, options.get("name"))
                connect = connector(owner)
                group = (
                    self.bus.attach(owner, **{"sender": self, **options})
                    if connect is None
                    else connect(self, owner, options)
                )
                made.append((owner, group))
        except BaseException:
            for _, group in made:
                group.disconnect()
            raise
        self._groups = [each for each in self._groups if each[1].active] + made
        return SubscriptionGroup(group for _, group in made)

    def detach(self, owner: object) -> None:
        """Disconnect all that ``attach`` connected of an object.

        Raises:
            ValueError: it is not attached to this loop.
        """
        groups = [group for each, group in self._groups if each is owner and group.active]
        if not groups:
            raise ValueError(f"{owner!r} is not attached to this loop")
        for group in groups:
            group.disconnect()
        self._groups = [each for each in self._groups if each[0] is not owner]

    # -- looking

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """All subscriptions that hear this loop, those for every loop included."""
        return self.bus.subscriptions(sender=self)

    def order(self, point: str) -> Order:
        """Return who hears this loop at a point, in the order of the calls."""
        return self.bus.order(point, sender=self)

    @property
    def subscribers(self) -> dict[str, Any]:
        """The subscribed objects that have a state to save, by the name of their subscription.

        Raises:
            ValueError: two have the same name.
        """
        found: dict[str, Any] = {}
        for name, owner in self._named_owners():
            if found.setdefault(name, owner) is not owner:
                raise ValueError(_same_name(name))
        return found

    def owners(self) -> Iterator[object]:
        """Yield the objects whose methods hear this loop."""
        seen: set[int] = set()
        for subscription in self.subscriptions:
            owner = getattr(subscription.receiver, "__self__", None)
            if owner is not None and id(owner) not in seen:
                seen.add(id(owner))
                yield owner

    def _named_owners(self) -> Iterator[tuple[str, object]]:
        for subscription in self.subscriptions:
            owner = getattr(subscription.receiver, "__self__", None)
            if _has_state(owner):
                yield subscription.name, owner

    def _check_name(self, owner: object, name: str | None) -> None:
        if not _has_state(owner):
            return
        own = getattr(owner, "name", None)
        wanted = name or (own if isinstance(own, str) else type(owner).__name__)
        if any(each == wanted and one is not owner for each, one in self._named_owners()):
            raise ValueError(_same_name(wanted))

    # -- sending

    def emitter(self, point: str) -> Emitter:
        """Return what sends a point for this loop; see ``eventbus.Signal.emitter``."""
        return self.bus.signal(point).emitter(self)


def _has_state(owner: object) -> bool:
    return hasattr(owner, "state_dict") and hasattr(owner, "load_state_dict")


def _same_name(name: str) -> str:
    return (
        f"two subscribers are named {name!r}, and a checkpoint could not tell them apart: attach"
        " one with name=..."
    )
