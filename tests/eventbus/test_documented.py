"""docs/eventbus.md: the tests it names are there, and its migration tables hold."""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from eventbus import Bus

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "eventbus.md").read_text(encoding="utf-8")


def rows() -> Iterator[Any]:
    """Find the rows of the migration tables, with the library that each is about."""
    for section in PAGE.split("\n### From ")[1:]:
        library = section.split("\n", 1)[0].split("'")[0].lower()
        for line in section.split("\n## ")[0].splitlines():
            found = re.fullmatch(r"\| `(.*)` \| `(.*)` \|", line)
            if found:
                yield pytest.param(library, *found.groups(), id=f"{library}: {found[1]}")


class Sender:
    pass


def there(library: str, heard: list[object]) -> dict[str, Any]:
    """Give the names that a row's left side uses."""

    def f(*args: int, size: int | None = None, **_: object) -> None:
        heard.append(args[0] if size is None else size)

    def plain(sender: object, size: int) -> None:
        heard.append(size)

    def fails(**_: object) -> None:
        raise OSError

    names: dict[str, Any] = {"f": f, "plain": plain, "fails": fails}
    peer: ModuleType
    if library == "blinker":
        peer = importlib.import_module("blinker")
        names["saved"] = peer.Namespace().signal("saved")
    elif library == "django":
        peer = pytest.importorskip("django.dispatch")
        names.update(saved=peer.Signal(), receiver=peer.receiver)
    elif library == "pyee":
        names["ee"] = pytest.importorskip("pyee").EventEmitter()
    else:
        peer = pytest.importorskip("psygnal")
        names["model"] = type("Model", (), {"saved": peer.Signal(int)})()
    return names


def here(heard: list[object]) -> dict[str, Any]:
    """Give the names that a row's right side uses."""
    bus = Bus()
    bus.declare("saved", ("size",))

    def f(size: int) -> None:
        heard.append(size)

    def fails() -> None:
        raise OSError

    return {"bus": bus, "f": f, "fails": fails}


@pytest.mark.parametrize(("library", "left", "right"), list(rows()))
def test_migration(library: str, left: str, right: str) -> None:
    """What a row has on its left, in the library, and on its right do the same."""
    outcomes: list[list[object]] = []
    for code, here_or_there in ((left, partial(there, library)), (right, here)):
        heard: list[object] = []
        space = {**here_or_there(heard), "heard": heard, "obj": Sender(), "asyncio": asyncio}
        exec(code, space)  # noqa: S102 -- it is our own page
        outcomes.append(heard)
    assert outcomes[0] == outcomes[1]


def test_there_are_rows_for_every_library() -> None:
    """The tables are found, each with several rows."""
    libraries = [row.values[0] for row in rows()]
    assert {name: libraries.count(name) >= 5 for name in libraries} == {
        "blinker": True,
        "django": True,
        "pyee": True,
        "psygnal": True,
    }


def test_named_tests_exist() -> None:
    """Each test that the page names, and each file, is there."""
    sources = {file.name: file.read_text(encoding="utf-8") for file in HERE.glob("*.py")}
    defined = set(re.findall(r"^def (test_\w+)", "\n".join(sources.values()), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 40
    assert named <= defined
    assert set(re.findall(r"`(test_\w+\.py)`", PAGE)) <= set(sources)


def test_every_test_says_what_holds() -> None:
    """Each test function of this folder has a docstring."""
    for file in HERE.glob("test_*.py"):
        for body in re.split(r"^def test_", file.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            _, _, after = body.partition(":\n")
            assert after.lstrip().startswith('"""'), f"{file.name}: test_{body.split('(')[0]}"
