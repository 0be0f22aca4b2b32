"""Run a Python file the way ``python FILE`` does, and load hook files before it."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NamedTuple

__all__ = ["Script", "load_hooks", "without_frames_before"]


class Script(NamedTuple):
    """A script with its arguments."""

    path: str
    arguments: Sequence[str] = ()

    def prepare(self) -> None:
        """Give it its own ``sys.argv``, and its folder the first place on ``sys.path``."""
        sys.argv = [self.path, *self.arguments]
        if Path(self.path).is_file() and not sys.flags.safe_path:
            # In the place of the folder that Python put there for the command itself.
            sys.path[0] = str(Path(os.path.realpath(self.path)).parent)

    def run(self) -> None:
        """Run it as ``__main__``.

        What it raises comes out as it is, ``SystemExit`` too. An uncaught exception's
        traceback is printed as Python prints it, beginning in the script.
        """
        sys.excepthook = self._show
        file = Path(self.path).absolute()
        if not file.is_file():  # a folder or an archive with a __main__.py in it
            runpy.run_path(self.path, run_name="__main__")
            return
        # runpy would take the module away at the end, before threads and atexit are done.
        module = sys.modules["__main__"] = ModuleType("__main__")
        module.__file__ = str(file)
        module.__loader__ = SourceFileLoader("__main__", str(file))
        exec(compile(file.read_bytes(), str(file), "exec", dont_inherit=True), vars(module))  # noqa: S102

    def _show(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if Path(self.path).is_file():
            trace = without_frames_before(self.path, trace)
        sys.__excepthook__(kind, error.with_traceback(trace), trace)


def load_hooks(path: str) -> ModuleType:
    """Run a file whose ``@on`` functions are to be connected, and return it as a module.

    The script may import it by its name too, and then gets this same module.

    Raises:
        FileNotFoundError: There is no such Python file.
        Exception: What the file raises.
    """
    file = Path(path)
    name = file.stem
    if name in sys.modules or name in sys.stdlib_module_names:
        name = f"{name} (hooks)"  # never in the place of another module
    spec = importlib.util.spec_from_file_location(name, file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise FileNotFoundError(f"there is no Python file {path}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def without_frames_before(path: str, trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins in a file; None if it never got there."""
    file = Path(path).absolute()
    while trace is not None and Path(trace.tb_frame.f_code.co_filename).absolute() != file:
        trace = trace.tb_next
    return trace
