"""Text to values of declared types."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from lifecycle.typed_text import convert, resolve

if TYPE_CHECKING:
    from decimal import Decimal


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("3", int, 3),
        ("-1", int, -1),
        ("3", float, 3.0),
        ("1e-3", float, 1e-3),
        ("3", str, "3"),
        ("", str, ""),
        ("yes", bool, True),
        ("Off", bool, False),
        ("1", bool, True),
        ("none", int | None, None),
        ("None", str | None, None),
        ("none", str, "none"),
        ("3", int | str, 3),
        ("x", int | str, "x"),
        ("1", int | bool, 1),
        ("true", int | bool, True),
        ("max", Literal["min", "max"], "max"),
        ("2", Literal[1, 2], 2),
        ("a/b", Path, Path("a/b")),
        ("a/b", str | os.PathLike[str], "a/b"),
        ("a,b", list[str], ["a", "b"]),
        ("a", list[str], ["a"]),
        ("a", Sequence[str] | None, ["a"]),
        ("a", str | Sequence[str], "a"),
        ("a,b", str | Sequence[str], ["a", "b"]),
        ("1,2", tuple[int, ...], (1, 2)),
        ("1,x", tuple[int, str], (1, "x")),
        ("1,1,2", set[int], {1, 2}),
        ("1,x", list, [1, "x"]),
        ("3", Any, 3),
        ("0.5", Any, 0.5),
        ("no", Any, False),
        ("none", object, None),
        ("word", Any, "word"),
    ],
)
def test_reading(text: str, hint: Any, value: object) -> None:
    """A text becomes the value of the narrowest type that fits it."""
    found = convert(text, hint)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "hint", "message"),
    [
        ("x", int, "is an integer, not 'x'"),
        ("x", float | None, "is a number or none, not 'x'"),
        ("2", bool, "is true or false, not '2'"),
        ("mix", Literal["min", "max"], "is min or max, not 'mix'; did you mean 'min'?"),
        ("1,x", list[int], "is an integer, separated by commas, not '1,x'"),
        ("1,2,3", tuple[int, int], "is an integer and an integer, separated by commas"),
        ("x", Callable[[], None], "cannot be given as text"),
        ("x", Callable[[], None] | None, "cannot be given as text"),
    ],
)
def test_refusing(text: str, hint: Any, message: str) -> None:
    """What cannot be read says what was expected."""
    with pytest.raises(ValueError, match=re.escape(message)):
        convert(text, hint)


class Odd:
    """Annotations of all kinds, some only for type checkers."""

    def __init__(self, a: int | Decimal, b: Decimal, c, d: Path | None = None) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [("int | Decimal", "3", 3), ("Path | None", "x", Path("x")), ("Literal['a']", "a", "a")],
)
def test_resolving(annotation: str, text: str, value: object) -> None:
    """A string annotation is read with its module's names, or else typing's."""
    assert convert(text, resolve(annotation, Odd)) == value


def test_annotations_that_are_no_strings() -> None:
    """A module without postponed annotations has types in its signatures; none means anything."""
    assert resolve(int, Odd) is int
    assert resolve(inspect.Parameter.empty, Odd) is Any


def test_names_for_type_checkers_only() -> None:
    """A type that exists for type checkers alone makes its option one that only code can give."""
    with pytest.raises(ValueError, match="cannot be given as text"):
        convert("3", resolve("Decimal", Odd))
    with pytest.raises(ValueError, match="cannot be given as text"):
        convert("3", resolve("1 + 'x'", Odd))
    assert resolve("Decimal[int] | None", Odd) != Any
