"""From the shapes of a plan's subscriptions to the source and code that call them.

The code of a plan depends only on shapes, so that all plans of the same shape share it;
receivers, filters' values and the like are cells of its closure. What it looks like, for
one plain receiver and one with ``every=100`` at the point ``epoch_end``::

    def epoch_end(epoch, logs):
        nonlocal _depth
        _depth += 1
        if _depth > _LIMIT: _depth = _true_depth('epoch_end', _depth)
        try:
            _r0(epoch, logs)
            if not (epoch + 1) % 100:
                _r1(logs)
        except BaseException as _error:
            _blame(_error)
            raise
        finally:
            _depth -= 1

Names of the payload never begin with an underscore, so that they cannot clash.
"""

from __future__ import annotations

import functools
import itertools
import linecache
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from types import CodeType, FrameType, MethodType
from typing import Any, Final, NamedTuple, NoReturn

from eventbus.errors import ReentrancyError
from eventbus.subscription import gone

DEPTH_LIMIT: Final = 64
"""How deep sends of one signal may nest in its own receivers."""

FILE: Final = "<eventbus plan"
INDEX: Final = "_index"


class Door:
    """One way of sending, for which code is generated.

    Args:
        name: of the way.
        results: whether it returns blinker's list of (receiver, value).
        awaits: whether it awaits coroutine functions.

    """

    __slots__ = ("awaits", "name", "results")

    def __init__(self, name: str, *, results: bool, awaits: bool = False) -> None:
        self.name: str = name
        self.results: bool = results
        self.awaits: bool = awaits


HOT: Final = Door("hot", results=False)
PIECE: Final = Door("piece", results=False)
RESULTS: Final = Door("results", results=True)
SEND: Final = Door("send", results=True)
"""As RESULTS, for senders without subscriptions of their own; it hands on the others."""
ASYNC: Final = Door("async", results=True, awaits=True)


@dataclass(frozen=True, eq=False, slots=True)
class Shape:
    """All that decides the source text of one subscription's call; equal ones are identical."""

    arguments: str
    weak: str = ""
    """"function" or "method" where the receiver is held weakly."""
    coroutine: bool = False
    every: int | None = None
    start: int | None = None
    stop: int | None = None
    at: bool = False
    when: str | None = None
    """The arguments of the ``when=`` predicate."""
    once: bool = False
    errors: str = "raise"
    plain: bool = False
    """Connected by blinker's own ``connect``, with its rules for coroutines."""
    wrapped: bool = False
    """The cell holds a wrapper, not the receiver itself."""


shape: Callable[..., Shape] = functools.lru_cache(maxsize=4096)(Shape)
"""Make a Shape, or return the one that was made of the same values before."""


class Form(NamedTuple):
    """What a signal contributes to its plans' source text."""

    point: str
    payload: tuple[str, ...] | None
    counter: str | None
    """The payload key that is the point's index; None to count sends per sender."""
    timed: bool
    """Whether calls are timed for ``bus.profile()``."""
    reserved: tuple[str, ...] = ()
    """Names that an undeclared payload must not have."""


class Compiled(NamedTuple):
    """Generated code and what its variables stand for."""

    code: CodeType
    variables: tuple[tuple[str, int], ...]
    """(kind, number of the subscription) for each cell; -1 for the plan's own."""
    owners: Mapping[int, int]
    """From line to the number of the subscription that it calls."""


def pick(payload: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Take the named values out of an undeclared payload, as far as they are there."""
    return {name: payload[name] for name in names if name in payload}


def awaitable(wrapper: Callable[[Any], Any] | None, receiver: Any) -> Any:
    """Make a plain receiver awaitable by the caller's wrapper, as blinker has it."""
    if wrapper is None:
        msg = f"Cannot send to a non-coroutine function: {receiver!r} without _sync_wrapper"
        raise RuntimeError(msg)
    return wrapper(receiver)


def callable_(wrapper: Callable[[Any], Any] | None, receiver: Any) -> Any:
    """Make a coroutine receiver callable by the caller's wrapper, as blinker has it."""
    if wrapper is None:
        msg = (
            f"Cannot send to a coroutine function: {receiver!r} needs `await send_async(...)` "
            "or an _async_wrapper"
        )
        raise RuntimeError(msg)
    return wrapper(receiver)


def refuse_reserved(point: str, payload: Mapping[str, Any], reserved: tuple[str, ...]) -> NoReturn:
    """Raise TypeError for an undeclared payload that has a reserved name."""
    name = next(name for name in reserved if name in payload)
    msg = f"{name!r} is no payload for {point!r}: the sender goes first, as in send(sender, ...)"
    if name == "signal":
        msg = f"{name!r} is no payload for {point!r}: it stands for the point's name"
    raise TypeError(msg)


def true_depth(point: str, hint: int) -> int:
    """Count how deep the plans of ``point`` are nested in this thread.

    The plan's own counter is only a hint, since threads share it.

    Raises:
        ReentrancyError: deeper than DEPTH_LIMIT.

    """
    depth = 0
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 -- the only cheap way to see the stack
    while frame:
        code = frame.f_code
        depth += code.co_name == point and code.co_filename.startswith(FILE)
        frame = frame.f_back
    if depth > DEPTH_LIMIT:
        msg = (
            f"{point!r} was sent from inside its own receivers more than {DEPTH_LIMIT} deep "
            "(eventbus.DEPTH_LIMIT); a receiver probably causes what it listens to"
        )
        raise ReentrancyError(msg)
    return min(depth, hint)


GLOBALS: Final[dict[str, Any]] = {
    "__builtins__": __builtins__,
    "__name__": "eventbus.plan",
    "_LIMIT": DEPTH_LIMIT,
    "_awaitable": awaitable,
    "_callable": callable_,
    "_clock": time.perf_counter,
    "_gone": gone,
    "_id": id,  # payload keys may be called like builtins
    "_method": MethodType,
    "_pick": pick,
    "_refuse": refuse_reserved,
    "_true_depth": true_depth,
}

PLANS_OWN: Final = ("_depth", "_blame", "_sender_of", "_addressed", "_elsewhere")
"""The variables of a plan that are not a subscription's."""

_number = itertools.count(1)


def signature(form: Form, door: Door) -> str:
    """Return the parameters of a plan's function."""
    payload = "**payload" if form.payload is None else ", ".join(form.payload)
    if door is HOT:
        return payload
    if not door.results:
        return f"sender, /, {payload}"
    wrappers = "_sync_wrapper=None" if door.awaits else "_async_wrapper=None"
    if form.payload is None:
        return f"sender=None, /, *, {wrappers}, {payload}"
    return f"sender=None, /, *, {payload}{', ' if payload else ''}{wrappers}"


def compile_plan(form: Form, door: Door, shapes: tuple[Shape, ...]) -> Compiled:
    """Generate and compile the function that calls subscriptions of these shapes in order."""
    body, owners = _body(form, door, shapes)
    name = form.point if form.point.isidentifier() and not iskeyword(form.point) else "send"
    function = [f"{'async ' * door.awaits}def {name}({signature(form, door)}):"]
    if door is SEND:
        payload = (
            ["**payload"] if form.payload is None else [f"{key}={key}" for key in form.payload]
        )
        handed = ", ".join(["sender", "_async_wrapper=_async_wrapper", *payload])
        function.append(f"    if _id(sender) in _addressed: return _elsewhere({handed})")
    if form.reserved:
        found = " or ".join(f"{name!r} in payload" for name in form.reserved)
        function.append(f"    if {found}: _refuse({form.point!r}, payload, {form.reserved!r})")
    if door.results:
        function += ["    _results = []", "    _add = _results.append"]
    if shapes and not door.awaits:
        depth = f"_true_depth({form.point!r}, _depth)"
        function += ["    nonlocal _depth", "    _depth += 1"]
        function += [f"    if _depth > _LIMIT: _depth = {depth}"]
    if shapes:
        function.append("    try:")
        first = len(function) + 2  # lines are counted from 1, and `make` has the first
        function += ["        " + line for line in body]
        function += [
            "    except BaseException as _error:",
            "        _blame(_error)",
            "        raise",
        ]
        owners = {line + first: i for line, i in owners.items()}
    if shapes and not door.awaits:
        function += ["    finally:", "        _depth -= 1"]
    function.append("    return _results" if door.results else "    return None")

    names = _free_names(shapes, "\n".join(function))
    lines = [f"def make({', '.join(names)}):", *("    " + line for line in function)]
    file = f"{FILE} {next(_number)}: {form.point}>"
    source = "\n".join(lines) + "\n"
    outer = compile(source, file, "exec")
    (made,) = (c for c in outer.co_consts if isinstance(c, CodeType))
    (code,) = (c for c in made.co_consts if isinstance(c, CodeType))
    # an mtime of None keeps linecache from looking for the file
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    variables = tuple(names[name] for name in code.co_freevars)
    return Compiled(code.replace(co_name=form.point, co_qualname=form.point), variables, owners)


def _body(form: Form, door: Door, shapes: tuple[Shape, ...]) -> tuple[list[str], dict[int, int]]:
    """Return the lines that run the subscriptions, and whose each line is."""
    lines: list[str] = []
    owners: dict[int, int] = {}
    blocks = [_block(form, door, each, i) for i, each in enumerate(shapes)]
    if door is HOT and any("sender" in line for block in blocks for line in block):
        lines.append("sender = _sender_of()")
    for i, block in enumerate(blocks):
        owners |= dict.fromkeys(range(len(lines), len(lines) + len(block)), i)
        lines += block
    return lines, owners


def forget(compiled: Compiled) -> None:
    """Drop the source text of code that left the cache."""
    linecache.cache.pop(compiled.code.co_filename, None)


def _free_names(shapes: tuple[Shape, ...], text: str) -> dict[str, tuple[str, int]]:
    """Return the names in the text that the closure is to provide, and what they stand for."""
    names = {name: (name, -1) for name in PLANS_OWN}
    for i in range(len(shapes)):
        names |= {f"_{kind}{i}": (kind, i) for kind in ("r", "s", "m", "n", "at", "when")}
    used = set(re.findall(r"\b_\w+", text))
    return {name: meaning for name, meaning in names.items() if name in used}


def _block(form: Form, door: Door, each: Shape, i: int) -> list[str]:
    """Return the lines that run one subscription."""
    lines = _call(form, door, each, i)
    conditions = _conditions(form, each, i)
    if conditions:
        lines = [f"if {' and '.join(conditions)}:", *("    " + line for line in lines)]
        if form.counter is None:
            lines.insert(0, f"{INDEX} = _n{i}(sender)")
    if each.errors != "raise":
        lines = [
            "try:",
            *("    " + line for line in lines),
            "except Exception as _error:",
            f"    _s{i}.caught(_error)",
        ]
    return lines


def _conditions(form: Form, each: Shape, i: int) -> list[str]:
    index = form.counter or INDEX
    conditions = []
    if each.start is not None and each.stop is not None:
        conditions.append(f"{each.start} <= {index} < {each.stop}")
    elif each.start is not None:
        conditions.append(f"{index} >= {each.start}")
    elif each.stop is not None:
        conditions.append(f"{index} < {each.stop}")
    if each.every is not None:
        conditions.append(f"not ({index} + 1) % {each.every}")
    if each.at:
        conditions.append(f"{index} in _at{i}")
    return conditions


def _call(form: Form, door: Door, each: Shape, i: int) -> list[str]:
    """Return the lines that find one receiver and call it."""
    direct = not (each.weak or door.results or each.once or each.when is not None or form.timed)
    if direct:
        return [_adapted(door, each, f"_r{i}", each.arguments)]
    arguments = each.arguments
    if each.weak == "method":
        found, function, nobody = f"(_o := _r{i}())", f"_m{i}", "None"
        arguments = ", ".join(filter(None, ["_o", arguments]))
    else:
        found, function = f"(_f := _r{i}{'()' if each.weak else ''})", "_f"
        nobody = "None" if each.weak else "_gone"
    call = _adapted(door, each, function, arguments)
    if door.results:
        receiver = {"method": f"_method(_m{i}, _o)"}.get(each.weak, "_f")
        receiver = "_f.receiver" if each.wrapped else receiver
        inner = [f"_x = {receiver}", *_timed(form, f"_v = {call}", i), "_add((_x, _v))"]
        if receiver == "_f" and not form.timed:
            inner = [f"_add((_f, {call}))"]
    else:
        inner = _timed(form, call, i)
    guards = [f"{found} is not {nobody}"]
    if each.when is not None:  # which may disconnect or mute: so look again after it
        guards += [f"_when{i}({each.when})", *guards]
    if each.once:
        guards.append(f"_s{i}.claim()")
    return [f"if {' and '.join(guards)}:", *("    " + line for line in inner)]


def _adapted(door: Door, each: Shape, function: str, arguments: str) -> str:
    """Return the call, awaited or adapted where coroutines are concerned."""
    if door.awaits:
        if each.coroutine:
            return f"await {function}({arguments})"
        if each.plain:
            return f"await _awaitable(_sync_wrapper, {function})({arguments})"
    elif each.coroutine:
        wrapper = "_async_wrapper" if door.results else "None"
        return f"_callable({wrapper}, {function})({arguments})"
    return f"{function}({arguments})"


def _timed(form: Form, call: str, i: int) -> list[str]:
    if not form.timed:
        return [call]
    return [
        "_t = _clock()",
        "try:",
        f"    {call}",
        "finally:",
        f"    _s{i}.tally(_clock() - _t)",
    ]
