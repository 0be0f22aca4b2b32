"""Text to values of the types that a signature declares."""

from __future__ import annotations

import builtins
import collections.abc
import contextlib
import inspect
import os
import pathlib
import types
import typing
from collections.abc import Callable
from typing import Any, Final, Literal, Union, get_args, get_origin

from eventbus.errors import nearest

__all__ = ["convert", "resolve"]


class _Opaque:
    """Stands for a type that a signature names but its module imports for type checkers only."""

    def __class_getitem__(cls, _: object) -> type[_Opaque]:
        return cls


class _Names(dict[str, Any]):
    """Names as an annotation sees them, without an error for those there are none of."""

    def __init__(self, module: dict[str, Any]) -> None:
        super().__init__()
        self.module = module

    def __missing__(self, name: str) -> Any:
        if name in self.module:
            return self.module[name]
        for place in (builtins, typing, pathlib, os):
            if hasattr(place, name):
                return getattr(place, name)
        return _Opaque


def resolve(annotation: Any, owner: Callable[..., Any]) -> Any:
    """Return the type that a parameter's annotation stands for.

    Args:
        annotation: As ``inspect.signature`` gives it, often a string.
        owner: The class or function whose signature it is from.
    """
    if annotation is inspect.Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    function = inspect.unwrap(owner.__init__ if isinstance(owner, type) else owner)  # type: ignore[misc]
    names = _Names(getattr(function, "__globals__", {}))
    try:
        return eval(annotation, {}, names)  # noqa: S307 -- the annotation is code of its module
    except (TypeError, AttributeError, SyntaxError):
        return _Opaque


def convert(text: str, hint: Any) -> Any:
    """Return the value that a text means where a value of this type is wanted.

    Of a union's members the narrowest that fits is taken: ``str | int`` reads ``3`` as a
    number, ``str | list[str]`` reads ``a,b`` as a list.

    Raises:
        ValueError: It means none; the message goes after the option's name.
    """
    for member in sorted(_members(hint), key=lambda member: _rank(member, text)):
        reader = _READERS.get(_kind(member))
        if reader is not None:
            with contextlib.suppress(ValueError):
                return reader(text, member)
    raise ValueError(_complaint(text, hint))


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _kind(hint: Any) -> Any:
    return get_origin(hint) or hint


def _rank(hint: Any, text: str) -> int:
    kinds = list(_READERS)
    if _kind(hint) in _SEQUENCES:
        return -1 if "," in text else len(kinds)
    return kinds.index(_kind(hint)) if _kind(hint) in kinds else len(kinds)


# Each reader answers with the value, or ValueError where the text means none of its kind.


def _none(text: str, _: Any) -> None:
    if text.lower() != "none":
        raise ValueError(text)


def _boolean(text: str, _: Any) -> bool:
    if text.lower() in {"true", "yes", "on", "1"}:
        return True
    if text.lower() in {"false", "no", "off", "0"}:
        return False
    raise ValueError(text)


def _literal(text: str, hint: Any) -> Any:
    for choice in get_args(hint):
        if str(choice) == text:
            return choice
    raise ValueError(text)


def _sequence(text: str, hint: Any) -> Any:
    parts = text.split(",")
    of, *more = get_args(hint) or (Any,)
    each = [of, *more] if more not in ([], [...]) else [of] * len(parts)
    values = [convert(part, kind) for part, kind in zip(parts, each, strict=True)]
    return _SEQUENCES[_kind(hint)](values)


def _anything(text: str, _: Any) -> Any:
    return convert(text, int | float | bool | str | None)


_SEQUENCES: Final[dict[Any, Callable[[list[Any]], Any]]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
    collections.abc.Set: set,
}

_READERS: Final[dict[Any, Callable[[str, Any], Any]]] = {
    None: _none,
    types.NoneType: _none,
    Literal: _literal,
    int: lambda text, _: int(text),
    float: lambda text, _: float(text),
    bool: _boolean,
    pathlib.Path: lambda text, _: pathlib.Path(text),
    os.PathLike: lambda text, _: text,
    str: lambda text, _: text,
    Any: _anything,
    object: _anything,
    **dict.fromkeys(_SEQUENCES, _sequence),
}
"""By kind, the narrowest first."""

_WORDS: Final[dict[Any, str]] = {
    None: "none",
    types.NoneType: "none",
    int: "an integer",
    float: "a number",
    bool: "true or false",
}


def _complaint(text: str, hint: Any) -> str:
    kinds = [_describe(member) for member in _members(hint) if _kind(member) in _READERS]
    if not set(kinds) - {"none"}:
        return "cannot be given as text; attach it in the script or in a hook file"
    choices = [str(c) for m in _members(hint) if _kind(m) is Literal for c in get_args(m)]
    return f"is {' or '.join(kinds)}, not {text!r}{nearest(text, choices)}"


def _describe(hint: Any) -> str:
    if _kind(hint) is Literal:
        return " or ".join(map(str, get_args(hint)))
    if _kind(hint) in _SEQUENCES:
        inner = [_describe(arg) for arg in get_args(hint) if arg is not ...]
        return f"{' and '.join(inner) or 'values'}, separated by commas"
    return _WORDS.get(hint, "a text")
