"""Scripts of this folder, each run in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def needs(*modules: str) -> None:
    """Skip the module of tests that calls this where one of the modules is not installed."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed", allow_module_level=True)


@cache
def run(script: str, *arguments: str, backend: str = "") -> Any:
    """Run a script and return what it prints as JSON, once for all tests.

    A framework is imported once for many tests, and Keras has one backend in a process.
    """
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=HERE.parents[1],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                path for path in (str(HERE.parents[1]), *sys.path) if path
            ),
            "KERAS_BACKEND": backend or "jax",
            "OMP_NUM_THREADS": "1",
        },
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> bool:
    """Whether two trees are equal, numbers to a tolerance."""
    if isinstance(expected, float) and isinstance(found, float | int):
        return bool(found == pytest.approx(expected, rel=tolerance, abs=tolerance, nan_ok=True))
    if isinstance(expected, dict) and isinstance(found, dict):
        return found.keys() == expected.keys() and all(
            close(found[key], value, tolerance) for key, value in expected.items()
        )
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(
            close(one, other, tolerance) for one, other in zip(found, expected, strict=True)
        )
    return bool(found == expected)
