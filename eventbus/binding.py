"""Which payload values a receiver asks for, decided and checked when it is connected."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

from eventbus.errors import BindingError, nearest

Receiver = Callable[..., Any]

POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Carried:
    """What one point carries: the declared payload and the reserved names.

    Args:
        point: the point's name.
        payload: the declared keys in order; None for a point that accepts any.
        reserved: further names a receiver may ask for, and the source text that gives each.
        positional: whether names that are not carried take the payload by position.

    """

    __slots__ = ("payload", "point", "positional", "reserved")

    def __init__(
        self,
        point: str,
        payload: tuple[str, ...] | None,
        reserved: dict[str, str],
        *,
        positional: bool = False,
    ) -> None:
        self.point: str = point
        self.payload: tuple[str, ...] | None = payload
        self.reserved: dict[str, str] = reserved
        self.positional: bool = positional

    def source(self, name: str) -> str | None:
        """Return the source text for one name, None where it is not carried."""
        if name in self.reserved:
            return self.reserved[name]
        if self.payload is not None and name in self.payload:
            return name
        return None

    def listing(self) -> str:
        """List all names, for messages."""
        return ", ".join([*(self.payload or ()), *sorted(self.reserved)])


class Binding(NamedTuple):
    """How to call one receiver."""

    arguments: str
    """Source text of the call's arguments, in terms of the payload's names."""
    coroutine: bool
    """Whether calling it gives a coroutine."""


def describe(receiver: object) -> str:
    """Name a receiver for messages: its qualified name and where it was defined."""
    target = inspect.unwrap(receiver) if callable(receiver) else receiver
    while isinstance(target, functools.partial):
        target = target.func
    if isinstance(target, MethodType):
        target = target.__func__
    name = getattr(target, "__qualname__", None) or f"{type(target).__qualname__} object"
    code = getattr(target, "__code__", None)
    if code is None:
        return name
    file = code.co_filename.rpartition("/")[2].rpartition("\\")[2]
    return f"{name} ({file}:{code.co_firstlineno})"


def is_coroutine(receiver: Receiver) -> bool:
    """Say whether calling ``receiver`` gives a coroutine, also for partials and objects."""
    while isinstance(receiver, functools.partial):
        receiver = receiver.func
    return inspect.iscoroutinefunction(receiver) or inspect.iscoroutinefunction(
        getattr(type(receiver), "__call__", None)  # noqa: B004 -- the method is what is asked about
    )


def check_callable(receiver: object, point: str) -> None:
    """Raise TypeError for a receiver that cannot be called."""
    if not callable(receiver):
        msg = f"a receiver of {point!r} must be callable, not {receiver!r}"
        raise TypeError(msg)


def _check_kind(receiver: Receiver, point: str) -> None:
    """Raise BindingError for what can be called, but would not do what it is connected for."""
    if isinstance(receiver, type):
        msg = (
            f"{receiver.__qualname__} is a class, and {point!r} would only make an object of it "
            "each time; connect a function, or attach an object"
        )
        raise BindingError(msg)
    function = receiver
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        msg = (
            f"{describe(receiver)} is a generator function: calling it at {point!r} would run "
            "none of its body; connect a function that does not yield"
        )
        raise BindingError(msg)


def bind(receiver: Receiver, carried: Carried) -> Binding:
    """Match a receiver's parameters with what a point carries.

    Args:
        receiver: any Python callable.
        carried: the point's names.

    Raises:
        TypeError: the receiver is not callable.
        BindingError: it has no signature, or requires what the point does not carry.

    """
    code = _deciding_code(receiver)
    if code is None:
        return _bind(receiver, carried)
    key = id(code), type(receiver), carried
    found = _cache.get(key)
    if found is not None:
        return found[1]
    if len(_cache) >= _CACHE_SIZE:
        _cache.clear()
    binding = _bind(receiver, carried)
    _cache[key] = code, binding  # which keeps the code, so that its id stays its own
    return binding


_CACHE_SIZE: Final = 1024
_cache: dict[tuple[int, type, Carried], tuple[CodeType, Binding]] = {}


def _deciding_code(receiver: Receiver) -> CodeType | None:
    """Return the code of a plain function or method, where that alone decides its signature."""
    function: Any = receiver
    if type(receiver) is MethodType:
        function = receiver.__func__
    if type(function) is not FunctionType or function.__dict__:
        return None  # __wrapped__ and __signature__ live there
    if function.__defaults__ is not None or function.__kwdefaults__ is not None:
        return None  # the same code may come with other defaults
    return function.__code__


def _bind(receiver: Receiver, carried: Carried) -> Binding:
    parameters = _parameters(receiver, carried)
    if carried.payload is None:
        arguments = _open_arguments(receiver, parameters, carried)
    else:
        arguments = _declared_arguments(receiver, parameters, carried, carried.payload)
    return Binding(arguments, is_coroutine(receiver))


def _parameters(receiver: Receiver, carried: Carried) -> list[inspect.Parameter]:
    check_callable(receiver, carried.point)
    _check_kind(receiver, carried.point)
    try:
        parameters = list(inspect.signature(receiver).parameters.values())
        built_in = isinstance(receiver, BuiltinFunctionType)  # its names mean nothing here
    except ValueError:
        built_in = True
    if built_in:
        msg = (
            f"{receiver!r} is built in and has no parameter names to take {carried.point!r} by: "
            f"wrap it, as in `lambda {(carried.payload or ('value',))[0]}: ...`"
        )
        raise BindingError(msg)
    bound: set[str] = set()
    partial = receiver
    while isinstance(partial, functools.partial):
        bound |= partial.keywords.keys()
        partial = partial.func
    return [p for p in parameters if p.name not in bound]


def _declared_arguments(
    receiver: Receiver,
    parameters: list[inspect.Parameter],
    carried: Carried,
    payload: tuple[str, ...],
) -> str:
    arguments: list[str] = []
    keywords: list[str] = []
    taken: set[str] = set()
    place = 0  # among the payload, for those bound by position
    for parameter in parameters:
        name = parameter.name
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            keywords += [f"{key}={key}" for key in payload if key not in taken]
            continue
        source = carried.source(name)
        if source is None and carried.positional and parameter.kind in POSITIONAL:
            source = next((k for k in payload[place : place + 1] if k not in taken), None)
        if source is None:
            if parameter.default is inspect.Parameter.empty:
                msg = (
                    f"{describe(receiver)} requires {name!r}, which {carried.point!r} does not "
                    f"carry; it carries {carried.listing()}"
                    f"{nearest(name, [*payload, *carried.reserved])}"
                )
                raise BindingError(msg)
            place += 1
            continue
        place += 1
        by_position = parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        if by_position and len(arguments) == parameters.index(parameter):
            arguments.append(source)
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            continue  # one before it keeps its default, so that this one has to as well
        else:
            keywords.append(f"{name}={source}")
        taken.add(source)
    return ", ".join(arguments + keywords)


def _open_arguments(
    receiver: Receiver, parameters: list[inspect.Parameter], carried: Carried
) -> str:
    names: list[str] = []
    rest = False
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            rest = True
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            msg = (
                f"{describe(receiver)} takes {parameter.name!r} by position only, but the payload "
                f"of {carried.point!r} is not declared and has no order"
            )
            raise BindingError(msg)
        elif parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
            names.append(parameter.name)
    reserved = [f"{n!r}: {carried.reserved[n]}" for n in names if n in carried.reserved]
    chosen = tuple(n for n in names if n not in carried.reserved)
    picked = "payload" if rest else f"_pick(payload, {chosen!r})"
    return f"**{picked}, **{{{', '.join(reserved)}}}" if reserved else f"**{picked}"
