"""What receivers are called with, and what is refused when they are connected."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from eventbus import BindingError, Bus


@pytest.fixture
def bus() -> Bus:
    """Give a bus with a point like those of a training run."""
    bus = Bus(sender="loop")
    bus.declare("epoch_end", ("epoch", "logs"), count="epoch")
    return bus


class Method:
    def __call__(self, logs: object) -> object:
        return logs

    def method(self, epoch: int) -> int:
        return epoch

    @classmethod
    def of_class(cls, epoch: int) -> int:
        return epoch

    @staticmethod
    def static(logs: object, epoch: int) -> object:
        return logs, epoch


@functools.wraps(Method.static)
def wrapping(*args: Any, **kwargs: Any) -> Any:
    return Method.static(*args, **kwargs)


def positional_only(epoch: int, logs: object, /) -> object:
    return epoch, logs


def positional_gap(epoch: int, x: int = 7, /, logs: object = None) -> object:
    return epoch, x, logs


def variadic(*args: object, **kwargs: object) -> object:
    return args, kwargs


def takes_rest(logs: object, *, loop: object, **rest: object) -> object:
    return logs, loop, rest


RECEIVERS: list[tuple[Callable[..., Any], object]] = [
    (lambda: "none", "none"),
    (lambda logs: logs, "L"),
    (lambda logs, epoch: (logs, epoch), ("L", 4)),
    (lambda epoch, other=7: (epoch, other), (4, 7)),
    (lambda other=7, epoch=0: (other, epoch), (7, 4)),
    (lambda logs="mine": logs, "L"),
    (lambda *, epoch: epoch, 4),
    (lambda loop, sender, signal: (loop, sender, signal), ("S", "S", "epoch_end")),
    (takes_rest, ("L", "S", {"epoch": 4})),
    (variadic, ((), {"epoch": 4, "logs": "L"})),
    (positional_only, (4, "L")),
    (positional_gap, (4, 7, "L")),
    (functools.partial(lambda logs, epoch: (logs, epoch), "bound"), ("bound", 4)),
    (functools.partial(lambda logs, epoch: (logs, epoch), logs="kept"), ("kept", 4)),
    (functools.partial(functools.partial(Method.static, epoch=1), logs=2), (2, 1)),
    (functools.partial(takes_rest, extra=1), ("L", "S", {"extra": 1, "epoch": 4})),
    (Method(), "L"),
    (Method().method, 4),
    (Method.of_class, 4),
    (Method.static, ("L", 4)),
    (wrapping, ("L", 4)),
]


@pytest.mark.parametrize("number", range(len(RECEIVERS)))
def test_receivers_get_what_they_name(bus: Bus, number: int) -> None:
    """Every kind of callable is called with what its signature names, by every door."""
    receiver, expected = RECEIVERS[number]
    bus.connect("epoch_end", receiver)
    assert bus.send("epoch_end", "S", epoch=4, logs="L") == [(receiver, expected)]
    bus.signal("epoch_end").emitter("S").send(4, "L")
    bus.declare("once_more", ("epoch", "logs"), awaited=True)


@pytest.mark.parametrize("number", range(len(RECEIVERS)))
def test_undeclared_payloads_bind_by_name_too(number: int) -> None:
    """At an open point receivers get what they name of what was sent."""
    receiver, expected = RECEIVERS[number]
    bus = Bus(open=True, sender="loop")
    if receiver in (positional_only, positional_gap):
        with pytest.raises(BindingError, match="takes 'epoch' by position only"):
            bus.connect("epoch_end", receiver)
        return
    bus.connect("epoch_end", receiver)
    assert bus.send("epoch_end", "S", epoch=4, logs="L") == [(receiver, expected)]


def test_required_parameter_that_is_not_carried(bus: Bus) -> None:
    """It is refused when connected, listing what the point carries and the nearest name."""

    def report(epoch: int, lgos: object) -> None:
        """Receive."""

    with pytest.raises(BindingError) as caught:
        bus.connect("epoch_end", report)
    line = report.__code__.co_firstlineno
    assert str(caught.value) == (
        f"test_required_parameter_that_is_not_carried.<locals>.report (test_binding.py:{line}) "
        "requires 'lgos', which 'epoch_end' does not carry; it carries epoch, logs, loop, sender, "
        "signal; did you mean 'logs'?"
    )
    assert isinstance(caught.value, TypeError)
    assert not bus.subscriptions()


def test_builtins_are_refused_with_the_remedy(bus: Bus) -> None:
    """list.append has no usable names: the message says to wrap it."""
    with pytest.raises(BindingError, match=r"wrap it, as in `lambda epoch: \.\.\.`"):
        bus.connect("epoch_end", [].append)
    with pytest.raises(BindingError, match="is built in"):
        bus.connect("epoch_end", max)


@pytest.mark.parametrize("receiver", [None, 5, "name"])
def test_what_cannot_be_called_is_refused(bus: Bus, receiver: Any) -> None:
    """A receiver that is not callable is refused when connected, strong or weak, by both doors."""
    for connect in (bus.connect, bus.signal("epoch_end").__class__.connect):
        target = "epoch_end" if connect == bus.connect else bus.signal("epoch_end")
        with pytest.raises(TypeError, match="a receiver of 'epoch_end' must be callable, not"):
            connect(target, receiver)  # type: ignore[arg-type]


def test_defaults_of_equal_code_are_told_apart(bus: Bus) -> None:
    """Two functions made by one def, with other defaults, are bound each by its own."""
    heard = []
    for i in range(2):
        bus.connect("epoch_end", lambda i=i, *, logs: heard.append((i, logs)))
    bus.send("epoch_end", epoch=0, logs="L")
    assert heard == [(0, "L"), (1, "L")]


def test_many_functions_are_bound_beyond_the_cache(bus: Bus) -> None:
    """The cache of bindings is bounded, and what left it is bound anew."""
    makers: list[Callable[..., Any]] = []
    for _ in range(1100):
        space: dict[str, Any] = {}
        exec("def f(logs): return logs", space)  # noqa: S102 -- functions of distinct code
        makers.append(space["f"])
        bus.connect("epoch_end", makers[-1]).disconnect()
    bus.connect("epoch_end", makers[0])
    assert bus.send("epoch_end", epoch=0, logs=1) == [(makers[0], 1)]


def test_payload_keys_may_be_called_like_builtins() -> None:
    """id, type and the like are ordinary payload keys."""
    bus = Bus()
    bus.declare("p", ("id", "type", "self", "payload"))
    bus.connect("p", lambda id, payload, self: (id, payload, self))  # noqa: A006
    for _ in range(20):
        assert [v for _, v in bus.send("p", id=1, type=2, self=3, payload=4)] == [(1, 4, 3)]
    bus.signal("p").emitter("s").send(1, 2, 3, 4)


@pytest.mark.parametrize(
    "name", ["two words", "import", "a-b", "'quoted'", "line\nbreak", "ünicode"]
)
def test_points_may_have_any_name(name: str) -> None:
    """A point's name need not be an identifier."""
    bus = Bus()
    bus.declare(name, ("x",))
    bus.connect(name, lambda x, signal: (x, signal))
    for _ in range(20):
        assert [v for _, v in bus.send(name, x=1)] == [(1, name)]


def test_a_receiver_of_many_points_can_tell_which_fired() -> None:
    """A receiver that names `signal` gets the point's name."""
    bus = Bus()
    bus.declare("a")
    bus.declare("b")
    heard: list[str] = []
    bus.connect(["a", "b"], lambda signal: heard.append(signal))
    bus.send("b")
    bus.send("a")
    assert heard == ["b", "a"]


@pytest.mark.parametrize("sends", [1, 20])
@pytest.mark.parametrize("receivers", [0, 1, 3, 70])
def test_the_whole_payload_is_sent_or_nothing(sends: int, receivers: int) -> None:
    """A missing or extra key is a TypeError at every door, whoever listens, cold or hot."""
    bus = Bus()
    signal = bus.declare("p", ("a", "b"))
    heard: list[int] = []
    for _ in range(receivers):
        bus.connect("p", lambda a: heard.append(a), again=True)
    emitter = signal.emitter("s")
    for _ in range(sends):
        bus.send("p", a=1, b=2)
        emitter.send(1, 2)
        emitter.send(1, b=2)
        for bad in ({"a": 1}, {"a": 1, "b": 2, "c": 3}):
            with pytest.raises(TypeError):
                bus.send("p", "x", **bad)
            with pytest.raises(TypeError):
                emitter.send(**bad)
        with pytest.raises(TypeError):
            emitter.send(1)
        with pytest.raises(TypeError):
            signal.send("s", 1, 2)  # type: ignore[call-arg]
    assert heard == [1] * 3 * sends * receivers


def test_reserved_names_are_no_payload() -> None:
    """At an open point a payload called sender or signal is refused, not swallowed."""
    bus = Bus(open=True, sender="loop")
    heard: list[object] = []
    bus.connect("p", lambda value: heard.append(value))
    for _ in range(20):
        with pytest.raises(
            TypeError, match="'sender' is no payload for 'p': the sender goes first"
        ):
            bus.send("p", sender="x", value=1)
        with pytest.raises(TypeError, match="'loop' is no payload"):
            bus.signal("p").emitter("s").send(loop="x", value=1)
        with pytest.raises(TypeError, match="it stands for the point's name"):
            bus.send("p", signal="x")
    assert not heard


def test_a_missing_name_at_an_open_point() -> None:
    """At an open point a parameter that was not sent keeps its default or is a TypeError."""
    bus = Bus(open=True)
    bus.connect("p", lambda a, b=2: (a, b))
    assert [v for _, v in bus.send("p", a=1)] == [(1, 2)]
    with pytest.raises(TypeError, match="'a'"):
        bus.send("p")


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (("p", "payload"), TypeError, "payload must be several names, not the one str 'payload'"),
        (("p", ("sender",)), ValueError, "payload key 'sender' of 'p' is reserved"),
        (("p", ("loop",)), ValueError, "payload key 'loop' of 'p' is reserved"),
        (("p", ("signal",)), ValueError, "reserved"),
        (("p", ("_x",)), ValueError, "must be an identifier without leading '_'"),
        (("p", ("a b",)), ValueError, "must be an identifier"),
        (("p", ("class",)), ValueError, "must be an identifier"),
        (("p", ("a", "a")), ValueError, "the payload of 'p' has a key twice: a, a"),
        (("",), ValueError, "a point's name must be a non-empty str without '\\*', not ''"),
        (("a*",), ValueError, "not 'a\\*'"),
        ((5,), ValueError, "not 5"),
    ],
)
def test_bad_declarations(arguments: Any, kind: type[Exception], message: str) -> None:
    """A name or key that would not work is refused when declared."""
    bus = Bus(sender="loop")
    with pytest.raises(kind, match=message):
        bus.declare(*arguments)
    assert not bus.points


def test_bad_aliases_and_counters() -> None:
    """Aliases are several names, none taken; a counter needs a declared payload."""
    bus = Bus()
    with pytest.raises(TypeError, match="aliases must be several names, not the one str 'abc'"):
        bus.declare("p", aliases="abc")
    with pytest.raises(ValueError, match="'p' can't be counted by 'step'"):
        bus.declare("p", None, count="step")
    bus.declare("p", aliases=("old_p",))
    for name in ("p", "old_p", "on_p"):
        with pytest.raises(ValueError, match=f"the point '{name}' is declared already"):
            bus.declare(name)
    with pytest.raises(ValueError, match="declared already"):
        bus.declare("q", aliases=("p",))
    assert bus.points == ("p",)
    assert bus.names == ("p", "old_p")


def test_names_aliases_and_on_forms_mean_the_same() -> None:
    """A point answers to its name, its aliases and either with on_."""
    bus = Bus()
    signal = bus.declare("train_batch_end", aliases=("batch_end",))
    for name in ("train_batch_end", "on_train_batch_end", "batch_end", "on_batch_end"):
        assert bus.signal(name) is signal
        assert name in bus
    assert "epoch_end" not in bus
    assert 5 not in bus


def test_unknown_points_name_the_nearest() -> None:
    """An undeclared name raises LookupError with the nearest declared one, wherever it is used."""
    bus = Bus()
    bus.declare("epoch_end")
    for use in (
        lambda: bus.signal("epoch_edn"),
        lambda: bus.on("on_epoch_edn"),
        lambda: bus.connect("epoch_edn", lambda: None),
        lambda: bus.send("epoch_edn"),
        lambda: bus.order("epoch_edn"),
    ):
        with pytest.raises(
            LookupError, match=r"there is no point '(on_)?epoch_edn'; did you mean 'epoch_end'?"
        ):
            use()
    with pytest.raises(LookupError, match=r"there is no point 'quite_other'$"):
        bus.signal("quite_other")
    with pytest.raises(LookupError, match="there is no point 5"):
        bus.signal(5)  # type: ignore[arg-type]


def test_an_open_bus_declares_on_first_use() -> None:
    """Points of an open bus come to be when first named, the on_ form meaning the same."""
    bus = Bus(open=True)
    heard: list[int] = []
    bus.connect("on_saved", lambda size: heard.append(size))
    bus.send("saved", size=3)
    assert heard == [3]
    assert bus.points == ("saved",)
    with pytest.raises(ValueError, match="non-empty"):
        bus.signal("")


@pytest.mark.parametrize("points", [(), [], [5], 5])
def test_bad_points(points: Any) -> None:
    """A connection needs the names of points."""
    bus = Bus(open=True)
    with pytest.raises(TypeError):
        bus.connect(points, lambda: None)


def test_a_class_is_no_receiver(bus: Bus) -> None:
    """A class would only be instantiated at each send: the message says to attach an object."""
    with pytest.raises(BindingError, match=r"Method is a class.*attach an object"):
        bus.connect("epoch_end", Method)


def test_a_generator_function_is_no_receiver(bus: Bus) -> None:
    """Calling it would run none of its body, so it is refused, also behind a partial."""

    def forgetful(logs: object) -> Any:
        yield logs

    async def asynchronous(logs: object) -> Any:
        yield logs

    for receiver in (forgetful, functools.partial(forgetful, logs=1), asynchronous):
        with pytest.raises(BindingError, match=r"is a generator function.*does not yield"):
            bus.connect("epoch_end", receiver)
