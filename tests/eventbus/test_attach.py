"""Objects with several subscribing methods."""

from __future__ import annotations

from typing import Any

import pytest

from eventbus import BindingError, Bus, DuplicateError, SubscriptionGroup

bus = Bus(sender="loop")
bus.declare("train_begin", ("logs",))
bus.declare("epoch_end", ("epoch", "logs"), count="epoch")


class Base:
    """A callback base class: its methods do nothing."""

    def on_train_begin(self, logs: object = None) -> None:
        """Do nothing."""

    def on_epoch_end(self, epoch: object, logs: object = None) -> object:
        """Do nothing."""

    def on_train_end(self, logs: object = None) -> None:
        """Do nothing; not even a point of this bus."""


class Heard:
    def __init__(self) -> None:
        self.heard: list[Any] = []


@pytest.fixture(autouse=True)
def _clean() -> Any:
    """End whatever a test connects."""
    with bus.scope():
        yield
    assert not bus.subscriptions()


def send_all(sender: object = None) -> None:
    bus.send("train_begin", sender, logs="L0")
    bus.send("epoch_end", sender, epoch=1, logs="L1")


def test_marks_and_names_in_one_class() -> None:
    """Methods marked by @on and methods named on_<point> are connected by one attach."""

    class Watch(Heard):
        @bus.on("train_begin", "epoch_end", every=None)
        def note(self, signal: str, loop: object) -> None:
            self.heard.append((signal, loop))

        def on_epoch_end(self, epoch: int, logs: object) -> None:
            self.heard.append((epoch, logs))

    assert not bus.subscriptions()
    watch = Watch()
    group = bus.attach(watch, sender="S")
    assert isinstance(group, SubscriptionGroup)
    send_all("other")
    send_all("S")
    assert watch.heard == [("train_begin", "S"), ("epoch_end", "S"), (1, "L1")]
    assert [s.name for s in group] == ["Watch"] * 3
    group.disconnect()
    send_all("S")
    assert len(watch.heard) == 3


def test_named_methods_bind_by_position_too() -> None:
    """Undecorated on_* methods take Keras's positions where their names are not the payload's."""

    class Keras(Heard):
        def on_train_begin(self, keys: object = None) -> None:
            self.heard.append(keys)

        def on_epoch_end(self, index: int, l: object = None, extra: int = 5) -> None:  # noqa: E741
            self.heard.append((index, l, extra))

    class Mixed(Heard):
        def on_epoch_end(self, logs: object, epoch: int) -> None:
            self.heard.append((logs, epoch))

        def on_train_begin(self, *args: object, **kwargs: object) -> None:
            self.heard.append((args, kwargs))

    for kind, expected in (
        (Keras, ["L0", (1, "L1", 5)]),
        (Mixed, [((), {"logs": "L0"}), ("L1", 1)]),
    ):
        owner: Heard = kind()
        group = bus.attach(owner)
        send_all()
        group.disconnect()
        assert owner.heard == expected


def test_a_marked_method_binds_by_name_only() -> None:
    """@on in a class body asks for names: what is not carried is an error at attach."""

    class Watch:
        @bus.on("epoch_end")
        def note(self, index: int) -> None:
            """Receive."""

    with pytest.raises(BindingError, match="requires 'index'"):
        bus.attach(Watch())


def test_inherited_empty_methods_are_left_out() -> None:
    """Placeholders of a callback base class are not connected; overridden ones are."""

    class Mine(Base):
        def on_train_begin(self, logs: object = None) -> None:
            """Do nothing, but on purpose."""

    class Deeper(Mine):
        pass

    class Inherits(Base):
        def on_epoch_end(self, epoch: object, logs: object = None) -> object:
            return epoch

    class Child(Inherits):
        pass

    assert [s.point for s in bus.attach(Mine())] == ["train_begin"]
    assert [s.point for s in bus.attach(Child())] == ["epoch_end"]
    with pytest.raises(TypeError, match="has nothing to attach"):
        bus.attach(Deeper())


def test_instance_attributes_count_as_methods() -> None:
    """A function set on the instance is connected like a method."""
    owner: Any = Heard()
    owner.on_epoch_end = lambda epoch, logs: owner.heard.append((epoch, logs))
    owner.on_train_begin = None
    bus.attach(owner)
    send_all()
    assert owner.heard == [(1, "L1")]


def test_static_and_class_methods() -> None:
    """staticmethod and classmethod may be marked or named."""

    class Watch:
        @staticmethod
        def on_train_begin(logs: object) -> object:
            return logs

        @classmethod
        @bus.on("epoch_end")
        def note(cls, epoch: int) -> object:
            return cls, epoch

        @bus.on("epoch_end")
        @staticmethod
        def plain(logs: object) -> object:
            return logs

    bus.attach(Watch())
    assert [v for _, v in bus.send("train_begin", logs=1)] == [1]
    assert [v for _, v in bus.send("epoch_end", epoch=3, logs=2)] == [(Watch, 3), 2]


def test_marks_are_inherited_and_overridden() -> None:
    """An override of a marked method is connected in its place, once, where the mark says."""

    class First(Heard):
        @bus.on("epoch_end")
        def note(self, epoch: int) -> None:
            self.heard.append(("first", epoch))

    class Second(First):
        def note(self, epoch: int) -> None:
            self.heard.append(("second", epoch))

    owner = Second()
    assert len(bus.attach(owner)) == 1
    send_all()
    assert owner.heard == [("second", 1)]


def test_methods_are_connected_as_they_were_written() -> None:
    """Ties go by the order in the class, base classes first, not by the alphabet."""

    class First(Heard):
        @bus.on("epoch_end")
        def z(self) -> None:
            self.heard.append("z")

        @bus.on("epoch_end")
        def b(self) -> None:
            self.heard.append("b")

    class Second(First):
        @bus.on("epoch_end")
        def a(self) -> None:
            self.heard.append("a")

    owner = Second()
    bus.attach(owner)
    send_all()
    assert owner.heard == ["z", "b", "a"]


def test_priority_and_name_of_the_object() -> None:
    """They hold for its subscriptions; a mark overrides them, attach's own options override all."""

    class Logger:
        priority = "LOW"
        name = "my logger"

        def on_epoch_end(self) -> None:
            """Receive."""

        @bus.on("train_begin", priority="HIGH")
        def first(self) -> None:
            """Receive."""

    def attached(**options: Any) -> list[tuple[str, int, str]]:
        group = bus.attach(Logger(), **options)
        found = [(s.point, s.priority, s.name) for s in group]
        group.disconnect()
        return found

    assert attached() == [("epoch_end", 70, "my logger"), ("train_begin", 30, "my logger")]
    assert attached(priority=5, name="x") == [("epoch_end", 5, "x"), ("train_begin", 5, "x")]

    class Odd:
        priority = None
        name = 5

        def on_epoch_end(self) -> None:
            """Receive."""

    (subscription,) = bus.attach(Odd())
    assert (subscription.priority, subscription.name) == (50, "Odd")


def test_attach_is_all_or_nothing() -> None:
    """When one method cannot be connected, none is."""

    class Half:
        def on_train_begin(self, logs: object) -> None:
            """Receive."""

        @bus.on("epoch_end", "train_begin")
        def wants(self, epoch: int) -> None:
            """Receive what only one of its points carries."""

    with pytest.raises(BindingError):
        bus.attach(Half())
    assert not bus.subscriptions()


def test_unknown_on_names_are_errors_with_the_nearest() -> None:
    """A misspelt on_ method is not silently ignored."""

    class Typo:
        def on_epoch_edn(self) -> None:
            """Never be called."""

    with pytest.raises(TypeError) as caught:
        bus.attach(Typo())
    assert str(caught.value) == (
        "Typo.on_epoch_edn is named like a subscribing method, but there is no such point; did you "
        "mean 'epoch_end'?"
    )


def test_nothing_to_attach() -> None:
    """An object without subscribing methods is an error that says what it looks for."""
    with pytest.raises(
        TypeError, match=r"5 has nothing to attach: no method marked by @on, and none"
    ):
        bus.attach(5)
    with pytest.raises(TypeError, match="Heard is a class; attach an instance of it: Heard"):
        bus.attach(Heard)
    with pytest.raises(TypeError, match="there is no option 'prioity'; did you mean 'priority'"):
        bus.attach(Heard(), prioity=3)  # type: ignore[call-arg]


def test_attaching_twice_is_refused() -> None:
    """The same object is not connected twice without being asked for."""

    class Watch:
        def on_epoch_end(self) -> None:
            """Receive."""

    watch = Watch()
    bus.attach(watch)
    with pytest.raises(DuplicateError):
        bus.attach(watch)
    assert len(bus.subscriptions()) == 1
    bus.attach(watch, again=True)
    bus.attach(Watch())
    assert len(bus.subscriptions()) == 3


def test_a_marked_method_may_follow_a_pattern() -> None:
    """@on("*") in a class body connects to all points, also later ones, by attach."""
    own = Bus()
    own.declare("a")

    class Watch(Heard):
        @own.on("*")
        def note(self, signal: str) -> None:
            self.heard.append(signal)

    watch = Watch()
    group = own.attach(watch)
    own.declare("b")
    for point in own.points:
        own.send(point)
    group.disconnect()
    own.declare("c")
    own.send("c")
    assert watch.heard == ["a", "b"]


def test_attach_only_later_points() -> None:
    """A pattern that matches nothing yet is something to attach."""
    own = Bus()

    class Watch(Heard):
        @own.on("late_*")
        def note(self, signal: str) -> None:
            self.heard.append(signal)

    watch = Watch()
    own.attach(watch)
    own.declare("late_one")
    own.send("late_one")
    assert watch.heard == ["late_one"]
