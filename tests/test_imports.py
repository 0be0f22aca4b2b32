"""What imports what, and what importing does."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import eventbus
import lifecycle

HOUSE = {package.__name__: Path(package.__path__[0]) for package in (eventbus, lifecycle)}

EVENTBUS, GROUND, LOOP, AROUND, TOP = range(5)

LAYERS = {
    "eventbus": EVENTBUS,
    "lifecycle.data": GROUND,
    "lifecycle.default": GROUND,
    "lifecycle.logs": GROUND,
    "lifecycle.names": GROUND,
    "lifecycle.points": GROUND,
    "lifecycle.position": GROUND,
    "lifecycle.randomness": GROUND,
    "lifecycle.state": GROUND,
    "lifecycle.bridges": AROUND,
    "lifecycle.checkpoint": AROUND,
    "lifecycle.subscribers": AROUND,
    "lifecycle.torch": AROUND,
    "lifecycle.__main__": TOP,
    "lifecycle.cli": TOP,
    "lifecycle.registry": TOP,
    "lifecycle.script": TOP,
    "lifecycle.typed_text": TOP,
}
"""From the ground up: a module imports from its own layer and those below. The rest is the loop."""

OPTIONAL = {
    "eventbus.pytest_plugin": {"pytest"},
    "eventbus.tables": {"rich"},
}
"""What a module of the core may import, and where: inside of a function, once it is needed."""


def modules() -> dict[str, Path]:
    """Return every module of both packages by its full name."""
    found = {}
    for package, folder in HOUSE.items():
        for file in sorted(folder.rglob("*.py")):
            parts = [package, *file.relative_to(folder).with_suffix("").parts]
            found[".".join(part for part in parts if part != "__init__")] = file
    return found


def layer(module: str) -> int:
    """Return the layer that a module belongs to."""
    if module == "lifecycle":
        return TOP
    for prefix, number in LAYERS.items():
        if f"{module}.".startswith(f"{prefix}."):
            return number
    return LOOP


def imported(file: Path) -> set[str]:
    """Return what a file imports at run time: not what it names for type checkers alone."""
    found: set[str] = set()
    todo: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            todo.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            known = modules()
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in known else node.module or "")
        todo.extend(ast.iter_child_nodes(node))
    return found


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_point_one_way(module: str) -> None:
    """A module imports from its own layer or from below, and eventbus knows no training."""
    own = layer(module)
    for name in imported(modules()[module]):
        if name.partition(".")[0] in HOUSE:
            assert layer(name) <= own, f"{module} imports {name} from above"
            assert own > EVENTBUS or name.startswith("eventbus"), f"{module} imports {name}"


@pytest.mark.parametrize("module", [name for name in sorted(modules()) if layer(name) <= LOOP])
def test_core_needs_blinker_alone(module: str) -> None:
    """The bus and the loop import blinker and the standard library; the rest where it is used."""
    allowed = {"blinker", *HOUSE, *sys.stdlib_module_names} | OPTIONAL.get(module, set())
    assert {name.partition(".")[0] for name in imported(modules()[module])} <= allowed


def fresh(code: str) -> Any:
    """Run code in a new interpreter and return what it prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.returncode == 0
    return json.loads(done.stdout)


def test_importing_brings_only_blinker() -> None:
    """`import lifecycle` loads blinker, the standard library and nothing else."""
    new = fresh(
        "import sys, json; before = set(sys.modules); import lifecycle, eventbus;"
        "print(json.dumps(sorted({m.partition('.')[0] for m in set(sys.modules) - before})))"
    )
    assert {*new} - {*sys.stdlib_module_names} == {"blinker", "eventbus", "lifecycle"}


def test_running_a_loop_brings_no_array_library() -> None:
    """A run over plain numbers, with its history, loads no array library either."""
    new = fresh(
        "import sys, json; from lifecycle import Loop;"
        "Loop(lambda x: {'loss': x}).fit([1.0, 2.0], epochs=2);"
        "print(json.dumps([m for m in ('numpy', 'torch', 'jax', 'rich') if m in sys.modules]))"
    )
    assert new == []


EFFECTS = """
import json, os, signal, sys, threading

def state():
    handlers = [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())]
    hooks = [repr(sys.excepthook), repr(sys.displayhook), repr(threading.excepthook)]
    return [handlers, hooks, len(threading.enumerate()), sorted(os.listdir("/proc/self/fd"))
            if os.path.exists("/proc/self/fd") else [], sorted(os.environ.items()), sys.path]

before = state()
import lifecycle, eventbus, eventbus.testing, lifecycle.registry, lifecycle.subscribers
for name in lifecycle.subscribers.__all__:
    getattr(lifecycle.subscribers, name)
print(json.dumps([before, state()]))
"""


def test_importing_has_no_effects() -> None:
    """No signal handler, hook, thread, open file or changed setting comes from an import."""
    before, after = fresh(EFFECTS)
    assert after == before
