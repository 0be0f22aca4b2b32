"""Options that are wrong are told where they are given, not epochs later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

__all__ = ["choice", "file", "whole"]


def whole(value: Any, least: int, meaning: str) -> int:
    """Return a whole number that is at least so much.

    Args:
        value: What was given.
        least: The least that makes sense.
        meaning: What it is, as the message begins: ``every is a number of steps``.

    Raises:
        ValueError: It is another thing.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{meaning}, {least} or more, not {value!r}")
    return value


def choice(value: Any, name: str, *allowed: str) -> str:
    """Return one of some words.

    Raises:
        ValueError: It is another one.
    """
    if value not in allowed:
        *most, last = (f'"{word}"' for word in allowed)
        raise ValueError(f"{name} must be {', '.join(most)} or {last}, not {value!r}")
    return str(value)


def file(value: str | os.PathLike[str]) -> Path:
    """Return the path of a file that will be written.

    Raises:
        ValueError: It names no file, as the empty string.
    """
    path = Path(value)
    if not path.name:
        raise ValueError(f"path is the name of a file, not {str(value)!r}")
    return path
