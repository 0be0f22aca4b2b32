"""What users of signal libraries ran into. Each test is named after the behaviour they wanted.

The reports are cited where the behaviour would look odd without. Those that other files hold:
order (test_order.py), change during a send and errors (test_send.py), threads
(test_threads.py), references (test_lifetime.py), coroutines (test_async.py).
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

import pytest

from eventbus import Bus, DuplicateError, ReentrancyError


@pytest.fixture
def bus() -> Bus:
    """Give a bus with one point."""
    bus = Bus()
    bus.declare("p", ("x",))
    return bus


def test_one_bad_receiver_need_not_stop_the_rest(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    """pallets-eco/blinker#10, #27: with errors="warn" the others run; failed is not returned."""
    heard: list[int] = []
    bus.connect("p", lambda x: 1 / 0, errors="warn")
    bus.connect("p", lambda x: heard.append(x), errors="warn")
    assert len(bus.send("p", x=1)) == 1
    assert heard == [1]
    assert "ZeroDivisionError" in caplog.text


def test_equal_tuples_as_senders_do_not_work_only_sometimes(bus: Bus) -> None:
    """pallets-eco/blinker#1: a tuple is refused as a sender to connect to, on every run."""
    with pytest.raises(TypeError, match="use a str, an int, or an object"):
        bus.connect("p", lambda: None, sender=("a", "b"))


def test_dynamic_senders_do_not_grow_the_maps(bus: Bus) -> None:
    """pallets-eco/blinker#12, #13: 10,000 distinct senders leave nothing: test_lifetime.py."""
    for i in range(1000):
        bus.connect("p", lambda: None, sender=f"s{i}").disconnect()
    assert not bus.signal("p")._senders._index


def test_connect_order_lock_fresh_methods_and_quiet_callbacks(bus: Bus) -> None:
    """streamlit/streamlit#16591: all four of their reasons to leave blinker hold here."""
    heard: list[object] = []

    class Ear:
        def __init__(self, number: int) -> None:
            self.number = number

        def hear(self, x: object) -> None:
            heard.append(self.number)

    ears = [Ear(i) for i in range(4)]
    for ear in ears:
        bus.connect("p", ear.hear, weak=True)
    bus.connect("p", lambda: ears.__delitem__(-1), priority="HIGHEST", once=True)
    del ear
    bus.disconnect(ears[1].hear)
    bus.send("p", x=1)
    assert heard == [0, 2]


def test_a_wrong_signature_is_found_when_connecting(bus: Bus) -> None:
    """mitmproxy#5528, aio-libs/aiohttp#2488: kind and parameters are checked at connect."""
    with pytest.raises(TypeError, match="requires 'y', which 'p' does not carry; it carries x"):
        bus.connect("p", lambda y: None)


def test_unknown_payload_raises(bus: Bus) -> None:
    """brightway2-data#220: payload passed as sender, or a name too many, is a TypeError."""
    with pytest.raises(TypeError):
        bus.send("p", sender=1, x=2)
    with pytest.raises(TypeError):
        bus.send("p", y=2)


def test_closures_do_not_vanish_silently(bus: Bus) -> None:
    """dd-trace-py#273, pelican#1386, fastapi-mail#214: what nobody else owns is kept."""
    heard: list[int] = []

    def install() -> None:
        def receiver(x: int) -> None:
            heard.append(x)

        bus.connect("p", receiver)
        bus.on("p")(lambda x: heard.append(-x))

    install()
    bus.send("p", x=1)
    assert heard == [1, -1]


def test_a_bound_method_can_be_weak(bus: Bus) -> None:
    """raven-python#147: weak=True lets the owner go right after del."""

    class Application:
        def hear(self, x: int) -> None:
            """Receive."""

    application = Application()
    bus.connect("p", application.hear, weak=True)
    gone = weakref.ref(application)
    del application
    assert gone() is None


def test_nested_mutes_do_not_end_early(bus: Bus) -> None:
    """psygnal#150: k nested mutes need k unmutes."""
    handle = bus.connect("p", lambda x: x)
    for _ in range(3):
        handle.mute()
    for left in (2, 1, 0):
        handle.unmute()
        assert len(bus.send("p", x=1)) == (not left)


def test_linked_values_end_with_a_named_error(bus: Bus) -> None:
    """psygnal#292: recursion ends with ReentrancyError, long before the interpreter's limit."""
    bus.connect("p", lambda x: bus.send("p", x=x))
    with pytest.raises(ReentrancyError):
        bus.send("p", x=1)


def test_a_point_can_be_forwarded_to_another(bus: Bus) -> None:
    """psygnal#70: an emitter's send is an ordinary receiver."""
    other = Bus()
    other.declare("q", ("x",))
    heard: list[int] = []
    other.connect("q", lambda x: heard.append(x))
    bus.connect("p", lambda x: other.send("q", x=x))
    bus.send("p", x=3)
    assert heard == [3]


def test_nobody_listening_costs_nothing_and_can_be_known(bus: Bus) -> None:
    """pypubsub#59, psygnal#276: an empty result says that nobody listened; so does live."""
    assert bus.send("p", x=1) == []
    assert bus.signal("p").emitter("s").live is False


def test_registering_inside_a_call_runs_each_once(bus: Bus) -> None:
    """pluggy#438: a connect during a send neither repeats nor skips an old receiver."""
    heard: list[str] = []

    def adds(x: int) -> None:
        heard.append("adds")
        bus.connect("p", lambda: heard.append("new"), priority="HIGHEST")

    bus.connect("p", lambda: heard.append("a"))
    bus.connect("p", adds, once=True)
    bus.connect("p", lambda: heard.append("b"))
    bus.send("p", x=1)
    assert heard == ["a", "adds", "b"]


def test_a_failed_attach_leaves_no_half(bus: Bus) -> None:
    """pluggy#733: see test_attach.py."""

    class Half:
        def on_p(self, x: int) -> None:
            """Receive."""

        @bus.on("p")
        def wrong(self, y: int) -> None:
            """Never be connected."""

    with pytest.raises(TypeError):
        bus.attach(Half())
    assert not bus.subscriptions()


def test_once_and_removal_do_not_race(bus: Bus) -> None:
    """pyee#76, #77, #194: removing a once receiver while it is sent to never raises."""
    for _ in range(100):
        handle = bus.connect("p", lambda: None, once=True)
        threads = [
            threading.Thread(target=lambda: bus.send("p", x=1)),
            threading.Thread(target=handle.disconnect),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        handle.disconnect()
    assert not bus.subscriptions()


def test_a_subclass_may_have_any_attributes() -> None:
    """pyee#119: attributes of a sender or of an attached object never clash with the bus's."""

    class Owner:
        _lock = _guard = _signals = None

        def on_p(self, x: int) -> int:
            return x

    bus = Bus()
    bus.declare("p", ("x",))
    owner = Owner()
    bus.attach(owner, sender=owner)
    assert [v for _, v in bus.send("p", owner, x=1)] == [1]


def test_completion_can_be_awaited() -> None:
    """pyee#63: send_async returns when all coroutine receivers have finished."""
    bus = Bus()
    bus.declare("p", awaited=True)
    done: list[int] = []

    async def slow() -> None:
        await asyncio.sleep(0.01)
        done.append(1)

    bus.connect("p", slow)
    asyncio.run(bus.send_async("p"))
    assert done == [1]


def test_patterns_are_subscribe_side_only(bus: Bus) -> None:
    """pyee#47, pymitter#9: a prefix pattern in connect; a sent name is never a pattern."""
    heard: list[str] = []
    bus.connect("*", lambda signal: heard.append(signal))
    with pytest.raises(LookupError):
        bus.send("*", x=1)
    bus.send("p", x=1)
    assert heard == ["p"]


def test_a_filtered_subscription_is_removed_by_its_handle(bus: Bus) -> None:
    """ignite#2684: every handle removes exactly what it added, whatever filters it has."""

    def receiver(x: int) -> int:
        return x

    filtered = bus.connect("p", receiver, every=2, when=lambda x: x, once=True)
    plain = bus.connect("p", receiver, again=True)
    filtered.disconnect()
    assert bus.subscriptions() == (plain,)


def test_the_same_function_twice_is_noticed(bus: Bus) -> None:
    """fastai#3829: connecting twice by accident is an error."""

    def receiver() -> None:
        """Receive."""

    bus.connect("p", receiver)
    with pytest.raises(DuplicateError):
        bus.connect("p", receiver)


def test_teardown_points_reach_everybody(bus: Bus) -> None:
    """invesalius3#1140: send_all calls all and hands back what failed."""
    closed: list[int] = []
    bus.connect("p", lambda: 1 / 0)
    bus.connect("p", lambda: closed.append(1))
    errors: list[Any] = bus.signal("p").emitter("s").send_all(1)
    assert [type(e) for e in errors] == [ZeroDivisionError]
    assert closed == [1]
