"""From subscriptions to the function that calls them, one after the other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from types import CellType, FunctionType
from typing import Any, Final

from eventbus.codegen import (
    GLOBALS,
    HOT,
    PIECE,
    RESULTS,
    SEND,
    Compiled,
    Door,
    Form,
    Shape,
    awaitable,
    callable_,
    compile_plan,
    forget,
)
from eventbus.errors import ReentrancyError
from eventbus.subscription import Subscription

Function = Callable[..., Any]

FUSE_AFTER: Final = 8
"""How many sends plans of one shape must see before code is generated for the whole."""

CHUNK: Final = 64
"""How many subscriptions one generated function calls at most."""


class Cache:
    """Generated code by shape, bounded; how often each shape was sent until it is made."""

    SIZE: Final = 512

    def __init__(self) -> None:
        self._known: dict[object, Compiled | int] = {}
        self.lock: threading.Lock = threading.Lock()

    def get(self, form: Form, door: Door, shapes: tuple[Shape, ...]) -> Compiled | None:
        """Return the code for these shapes; None as long as they are too new for any."""
        found = self._known.get((form, door, shapes), 0)
        if isinstance(found, Compiled):
            return found
        return None if found < FUSE_AFTER else self.make(form, door, shapes)

    def make(self, form: Form, door: Door, shapes: tuple[Shape, ...]) -> Compiled:
        """Return the code for these shapes, generated now if it is not there."""
        key = (form, door, shapes)
        found = self._known.get(key)
        if not isinstance(found, Compiled):
            found = compile_plan(form, door, shapes)
            self._keep(key, found)
        return found

    def heat(self, form: Form, door: Door, shapes: tuple[Shape, ...]) -> bool:
        """Count a send of these shapes and say whether they are due for code."""
        key = (form, door, shapes)
        found = self._known.get(key, 0)
        if isinstance(found, Compiled):
            return True
        self._keep(key, found + 1)
        return found + 1 >= FUSE_AFTER

    def _keep(self, key: object, value: Compiled | int) -> None:
        with self.lock:
            if len(self._known) >= self.SIZE and key not in self._known:
                for old in list(self._known)[: self.SIZE // 2]:
                    dropped = self._known.pop(old)
                    if isinstance(dropped, Compiled):
                        forget(dropped)
            self._known[key] = value


cache: Final = Cache()


def _after_fork() -> None:
    cache.lock = threading.Lock()


# a lock held by another thread stays held in the child
if hasattr(os, "register_at_fork"):  # pragma: no branch -- not on Windows
    os.register_at_fork(after_in_child=_after_fork)


def fuse(
    compiled: Compiled, subscriptions: tuple[Subscription, ...], context: dict[str, CellType]
) -> Function:
    """Close generated code over the cells of the subscriptions that it is to call."""
    code, variables, owners = compiled
    cells = []
    for kind, i in variables:
        if i >= 0:
            cells.append(subscriptions[i].cell(kind))
        elif kind == "_blame":
            cells.append(CellType(_blamer(subscriptions, owners)))
        else:
            cells.append(context[kind])
    function = FunctionType(code, GLOBALS, code.co_name, None, tuple(cells))
    if code.co_kwonlyargcount:
        function.__defaults__ = (None,)
        function.__kwdefaults__ = {"_async_wrapper": None, "_sync_wrapper": None}
    return function


def _blamer(
    subscriptions: tuple[Subscription, ...], owners: Mapping[int, int]
) -> Callable[[BaseException], None]:
    """Make the function that notes on an exception whose line it came out of."""

    def blame(error: BaseException) -> None:
        traceback = error.__traceback__
        i = None if traceback is None else owners.get(traceback.tb_lineno)
        if i is not None and not isinstance(error, ReentrancyError):
            subscriptions[i].blame(error)

    return blame


def assemble(
    form: Form,
    door: Door,
    subscriptions: tuple[Subscription, ...],
    context: dict[str, CellType],
    renew: Callable[[], None],
) -> Function:
    """Make the function that sends to these subscriptions, in this order.

    As long as their shape is new it is a chain of functions for one subscription each,
    which need no new code; ``renew`` is called when the code for the whole is due.
    """
    function = _assemble(form, door, subscriptions, context, renew)
    strangers = [
        s for s in subscriptions if s.shape.coroutine is not door.awaits and _adapts(door, s.shape)
    ]
    return _wrappers_first(function, door, strangers) if strangers else function


def _adapts(door: Door, shape: Shape) -> bool:
    """Say whether a receiver of the wrong kind needs blinker's wrapper at this door."""
    return shape.plain or not door.awaits


def _wrappers_first(function: Function, door: Door, strangers: list[Subscription]) -> Function:
    """Raise for a missing wrapper before any receiver is called, not in their midst."""
    name, adapt = ("_sync_wrapper", awaitable) if door.awaits else ("_async_wrapper", callable_)

    def send(*args: object, **payload: object) -> Any:
        if payload.get(name) is None:
            for stranger in strangers:
                if stranger.active and not stranger.muted:
                    adapt(None, stranger.receiver)
        return function(*args, **payload)

    return send


def _assemble(
    form: Form,
    door: Door,
    subscriptions: tuple[Subscription, ...],
    context: dict[str, CellType],
    renew: Callable[[], None],
) -> Function:
    chunks = [subscriptions[i : i + CHUNK] for i in range(0, len(subscriptions), CHUNK)] or [()]
    shapes = [tuple([s.shape for s in chunk]) for chunk in chunks]
    if len(chunks) == 1:
        find = cache.get if len(subscriptions) > 1 else cache.make
        compiled = find(form, door, shapes[0])
        if compiled is not None:
            return fuse(compiled, subscriptions, context)
    piece = {HOT: PIECE, SEND: RESULTS}.get(door, door)
    heated = door if len(chunks) == 1 else piece
    pieces: list[Function] = []
    cold: list[tuple[Shape, ...]] = []
    for chunk, chunk_shapes in zip(chunks, shapes, strict=True):
        compiled = cache.get(form, piece, chunk_shapes) if len(chunks) > 1 else None
        if compiled is not None:
            pieces.append(fuse(compiled, chunk, context))
        else:
            cold.append(chunk_shapes)
            pieces += [single(form, piece, s, context) for s in chunk]

    def warm() -> None:
        hot = [cache.heat(form, heated, each) for each in cold]  # each is counted
        if cold and all(hot):
            cold.clear()
            renew()

    return _chain(door, pieces, context, warm)


def single(
    form: Form, door: Door, subscription: Subscription, context: dict[str, CellType]
) -> Function:
    """Make the function that sends to one subscription."""
    return fuse(cache.make(form, door, (subscription.shape,)), (subscription,), context)


def _chain(
    door: Door, pieces: list[Function], context: dict[str, CellType], warm: Callable[[], None]
) -> Function:
    if door.awaits:
        return _chain_async(pieces, warm)
    if door.results:
        return _chain_results(door, pieces, context, warm)
    sender_of: Callable[[], object] = context["_sender_of"].cell_contents

    def send(*args: object, **payload: object) -> None:
        warm()
        sender = sender_of()
        for piece in pieces:
            piece(sender, *args, **payload)

    return send


def _chain_async(pieces: list[Function], warm: Callable[[], None]) -> Function:
    async def send_async(sender: object = None, /, **payload: object) -> list[Any]:
        warm()
        results: list[Any] = []
        for piece in pieces:
            results += await piece(sender, **payload)
        return results

    return send_async


def _chain_results(
    door: Door, pieces: list[Function], context: dict[str, CellType], warm: Callable[[], None]
) -> Function:
    addressed: set[object] = context["_addressed"].cell_contents if door is SEND else set()

    def send_results(sender: object = None, /, **payload: object) -> Any:
        if id(sender) in addressed:
            return context["_elsewhere"].cell_contents(sender, **payload)
        warm()
        results: list[Any] = []
        for piece in pieces:
            results += piece(sender, **payload)
        return results

    return send_results
