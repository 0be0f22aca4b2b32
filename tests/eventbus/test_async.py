"""Coroutine receivers, awaited in order."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from eventbus import BindingError, Bus


class AsyncObject:
    async def __call__(self, x: int) -> int:
        await asyncio.sleep(0)
        return x

    async def method(self, x: int) -> int:
        return x


async def coroutine(x: int) -> int:
    await asyncio.sleep(0)
    return x


def plain(x: int) -> int:
    return x


KINDS: dict[str, list[Callable[..., Any]]] = {
    "none": [],
    "sync": [plain],
    "async": [coroutine, AsyncObject(), AsyncObject().method, functools.partial(coroutine)],
    "mixed": [plain, coroutine, lambda x: x, AsyncObject()],
}


@pytest.fixture
def bus() -> Bus:
    """Give a bus with a point that is sent with send_async, and one that is not."""
    bus = Bus()
    bus.declare("awaited", ("x",), awaited=True)
    bus.declare("plain", ("x",))
    return bus


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sender", [None, "s"])
def test_send_async_takes_every_mixture(bus: Bus, kind: str, sender: str | None) -> None:
    """None, plain, coroutine and mixed receivers give their values in order, cold and hot."""
    for receiver in KINDS[kind]:
        bus.connect("awaited", receiver, **({"sender": "s"} if sender else {}))  # type: ignore[arg-type]

    async def main() -> None:
        for i in range(20):
            results = await bus.send_async("awaited", sender, x=i)
            assert results == [(receiver, i) for receiver in KINDS[kind]]

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_send_takes_what_needs_no_waiting(bus: Bus, kind: str) -> None:
    """send works for plain receivers; with a coroutine it raises before any is called."""
    for receiver in KINDS[kind]:
        bus.connect("awaited", receiver)
    heard: list[int] = []
    bus.connect("awaited", lambda x: heard.append(x), priority="HIGHEST")
    for _ in range(20):
        if kind in ("none", "sync"):
            assert [v for _, v in bus.send("awaited", x=1)] == [None, *([1] * len(KINDS[kind]))]
            bus.signal("awaited").emitter("s").send(1)
            continue
        with pytest.raises(
            RuntimeError, match=r"needs `await send_async\(...\)` or an _async_wrapper"
        ):
            bus.send("awaited", x=1)
        with pytest.raises(RuntimeError, match="Cannot send to a coroutine function"):
            bus.signal("awaited").emitter("s").send(1)
        assert not heard


def test_coroutines_are_refused_where_nobody_awaits(bus: Bus) -> None:
    """on and connect refuse a coroutine receiver, objects included, and name the remedies."""
    for receiver in KINDS["async"]:
        with pytest.raises(
            BindingError, match="sent synchronously and would never await it; declare"
        ):
            bus.connect("plain", receiver)
        with pytest.raises(BindingError, match="a worker cannot await"):
            bus.connect("awaited", receiver, background=True)
    assert not bus.subscriptions()


def test_receivers_are_awaited_one_after_the_other(bus: Bus) -> None:
    """send_async returns after all have finished; the next starts when the one before is done."""
    heard: list[str] = []

    async def slow() -> None:
        heard.append("slow begins")
        await asyncio.sleep(0.01)
        heard.append("slow ends")

    bus.connect("awaited", slow)
    bus.connect("awaited", lambda: heard.append("next"))
    asyncio.run(bus.send_async("awaited", x=1))
    assert heard == ["slow begins", "slow ends", "next"]


def test_cancellation_leaves_no_stray_task(bus: Bus) -> None:
    """Cancelling a send cancels the receiver it waits for; later ones are not called."""
    heard: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    bus.connect("awaited", waits, errors="warn")
    bus.connect("awaited", lambda: heard.append("never"))

    async def main() -> None:
        task = asyncio.create_task(bus.send_async("awaited", x=1))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert heard == ["cancelled"]


def test_filters_errors_and_once_hold_when_awaited(bus: Bus) -> None:
    """The options mean the same at send_async."""
    heard: list[int] = []

    async def receiver(x: int) -> None:
        heard.append(x)

    async def fails() -> None:
        raise OSError

    bus.connect("awaited", receiver, once=True, when=lambda x: x > 0)
    bus.connect("awaited", receiver, every=2, again=True)
    failing: Any = bus.connect("awaited", fails, errors="disconnect")

    async def main() -> None:
        for x in range(4):
            await bus.send_async("awaited", "s", x=x)

    asyncio.run(main())
    assert heard == [1, 1, 3]
    assert not failing.active
    bus.connect("awaited", fails)
    with pytest.raises(OSError) as caught:
        asyncio.run(bus.send_async("awaited", x=0))
    assert "fails" in caught.value.__notes__[0]


def test_concurrent_sends_of_one_point(bus: Bus) -> None:
    """Many sends under way at once are no nested sends: the depth limit does not count them."""

    async def receiver(x: int) -> int:
        await asyncio.sleep(0.01)
        return x

    bus.connect("awaited", receiver)

    async def main() -> Any:
        return await asyncio.gather(*(bus.send_async("awaited", x=i) for i in range(200)))

    assert asyncio.run(main()) == [[(receiver, i)] for i in range(200)]


def test_blinkers_wrappers(bus: Bus) -> None:
    """Plain signal.connect keeps blinker's rule: the caller's wrappers bridge the two kinds."""
    signal = bus.signal("plain")
    heard: list[str] = []

    async def awaits(sender: object, x: int) -> str:
        return "async"

    def sync(sender: object, x: int) -> str:
        heard.append("sync")
        return "sync"

    signal.connect(sync)
    signal.connect(awaits)

    def run(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: asyncio.run(function(*args, **kwargs))

    def lift(function: Callable[..., Any]) -> Callable[..., Any]:
        async def lifted(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return lifted

    for _ in range(20):
        heard.clear()
        with pytest.raises(RuntimeError, match="Cannot send to a coroutine function"):
            signal.send("s", x=1)
        with pytest.raises(RuntimeError, match="without _sync_wrapper"):
            asyncio.run(signal.send_async("s", x=1))
        assert not heard
        assert [v for _, v in signal.send("s", x=1, _async_wrapper=run)] == ["sync", "async"]
        sent = asyncio.run(signal.send_async("s", x=1, _sync_wrapper=lift))
        assert [v for _, v in sent] == ["sync", "async"]


def test_a_muted_coroutine_needs_no_wrapper(bus: Bus) -> None:
    """A receiver that would not be called does not keep the others from being sent to."""
    handle = bus.connect("awaited", coroutine)
    bus.connect("awaited", plain)
    handle.mute()
    assert bus.send("awaited", x=1) == [(plain, 1)]


def test_send_async_is_a_coroutine_function(bus: Bus) -> None:
    """Frameworks that look see that it is to be awaited."""
    assert inspect.iscoroutinefunction(bus.send_async)
    assert inspect.iscoroutinefunction(bus.signal("plain").send_async)


def test_many_awaited_receivers(bus: Bus) -> None:
    """More receivers than one generated function calls are awaited in order all the same."""
    for i in range(150):
        bus.connect("awaited", functools.partial(coroutine, x=i))
    for _ in range(20):
        results = asyncio.run(bus.send_async("awaited", x=0))
        assert [v for _, v in results] == list(range(150))
