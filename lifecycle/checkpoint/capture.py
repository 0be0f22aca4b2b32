"""The whole of a run as a tree, and back into the run."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from lifecycle.checkpoint.adapters import state_of
from lifecycle.checkpoint.errors import MismatchError
from lifecycle.checkpoint.objects import Differences, restored
from lifecycle.checkpoint.tree import Encoder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from lifecycle.checkpoint.arrays import Leaf
    from lifecycle.loop import Loop

__all__ = ["capture", "capture_objects", "load_objects", "load_subscribers"]

RUN: Final = "_run"
"""The file of the arrays that belong to no object: no object's file begins so."""


def capture(
    loop: Loop, names: Collection[str] | None
) -> tuple[dict[str, Any], dict[str, dict[str, Leaf]]]:
    """Return the state of a run as JSON holds it, and its arrays by file.

    The arrays share their memory with those of the run.

    Args:
        loop: the run's.
        names: of the objects to save; None for all.

    Raises:
        UnsavableError: something in it cannot be saved.
        LookupError: the loop has no object of a name.
    """
    saved, arrays = capture_objects(loop.objects, names)
    document: dict[str, Any] = {"objects": saved}
    rest = Encoder(RUN, state_of)
    document["loop"] = rest.encode(loop.state_dict(), "loop")
    states = {name: owner.state_dict() for name, owner in loop.subscribers.items()}
    document["subscribers"] = rest.encode(states, "subscribers")
    if rest.leaves:
        arrays[RUN] = rest.leaves
    return document, arrays


def capture_objects(
    objects: Mapping[str, Any], names: Collection[str] | None
) -> tuple[dict[str, Any], dict[str, dict[str, Leaf]]]:
    """Return the states of objects as JSON holds them, and their arrays by file.

    Raises:
        UnsavableError: one cannot be saved.
        LookupError: there is no object of a name.
    """
    saved: dict[str, Any] = {}
    arrays: dict[str, dict[str, Leaf]] = {}
    for name, value in chosen(objects, names).items():
        encoder = Encoder(_stem(name, arrays), state_of)
        saved[name] = encoder.encode(value)
        if encoder.leaves:
            arrays[encoder.stem] = encoder.leaves
    return saved, arrays


def chosen(objects: Mapping[str, Any], names: Collection[str] | None) -> dict[str, Any]:
    """Return those of the objects that are to be saved.

    Raises:
        LookupError: there is no object of a name.
    """
    if names is None:
        return dict(objects)
    for name in names:
        if name not in objects:
            there = ", ".join(map(repr, objects)) or "none"
            raise LookupError(f"Checkpoint: the loop has no object {name!r}; it has {there}")
    return {name: objects[name] for name in objects if name in names}


def _stem(name: str, taken: Collection[str]) -> str:
    """Return what the file of an object's arrays is called, unlike all others on any system."""
    stem = quote(name, safe="")
    if stem[:1] in {"_", "."}:
        stem = f"%{ord(stem[0]):02X}{stem[1:]}"
    folded = {each.casefold() for each in taken}
    unique, number = stem, 1
    while unique.casefold() in folded:
        number += 1
        unique = f"{stem}~{number}"
    return unique


def load_objects(
    objects: dict[str, Any],
    saved: Mapping[str, Any],
    names: Collection[str] | None,
    path: Path,
    *,
    strict: bool,
) -> None:
    """Put saved states into the loop's objects.

    Args:
        objects: the loop's.
        saved: the states by name.
        names: of the objects to load; None for all.
        path: of the checkpoint, for messages.
        strict: whether everything must fit; else what does not is warned of, and left out
            where it has no counterpart.

    Raises:
        MismatchError: they do not fit; nothing was loaded then.
    """
    now = chosen(objects, names)
    differences = Differences()
    differences.compare_keys(now, saved, "")
    for name, value in now.items():
        if name in saved:
            differences.compare(value, saved[name], name)
    if differences:
        found = MismatchError(
            path, differences.missing, differences.unexpected, differences.different
        )
        if strict:
            raise found
        warnings.warn(str(found), RuntimeWarning, stacklevel=2)
    for name, value in now.items():
        if name in saved:
            with _noted(f"the object {name!r} from {path}"):
                objects[name] = restored(value, saved[name])


def load_subscribers(loop: Loop, saved: Mapping[str, Any], path: Path) -> None:
    """Put saved states into the loop's subscribers; warn of those without counterpart."""
    now: dict[str, Any] = loop.subscribers
    differences = Differences()
    differences.compare_keys(now, saved, "")
    for title, names in (
        ("are not attached now: their saved states are left out", differences.unexpected),
        ("were not attached when it was saved: they begin anew", differences.missing),
    ):
        if names:
            warnings.warn(
                f"{path}: subscribers {', '.join(names)} {title}", RuntimeWarning, stacklevel=2
            )
    for name, owner in now.items():
        if name in saved:
            with _noted(f"the subscriber {name!r} from {path}"):
                owner.load_state_dict(saved[name])


@contextlib.contextmanager
def _noted(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"while loading the state of {what}")
        raise
