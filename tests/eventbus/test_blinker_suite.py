"""blinker's own published tests, with our classes in blinker's place.

They are not part of this project. ``.ci/blinker_tests`` downloads blinker's source
distribution and prints the folder that EPOCHBUS_BLINKER_TESTS is to name. The tests left out,
with their reasons, are listed in ``blinker_in_place.LEFT_OUT``.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = os.environ.get("EPOCHBUS_BLINKER_TESTS", "")
HERE = Path(__file__).parent


@pytest.mark.skipif(not FOLDER, reason="EPOCHBUS_BLINKER_TESTS names no folder of blinker's tests")
def test_blinkers_own_tests_pass(tmp_path: Path) -> None:
    """Every one of blinker's tests passes on our classes, but for those listed with a reason."""
    left_out = left_out_names()
    command = [sys.executable, "-m", "pytest", FOLDER, "-v", "-p", "blinker_in_place"]
    command += ["-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={tmp_path}", "-W", "error"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path[1:]])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = re.findall(r"::(\w+)(?:\[.*\])? (PASSED|SKIPPED)", done.stdout)
    assert {name for name, outcome in outcomes if outcome == "SKIPPED"} == left_out
    assert sum(outcome == "PASSED" for _, outcome in outcomes) >= 20


def left_out_names() -> set[str]:
    """Read the names that the plugin leaves out; importing it would replace blinker here too."""
    tree = ast.parse((HERE / "blinker_in_place.py").read_text(encoding="utf-8"))
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LEFT_OUT"
    )
    return set(ast.literal_eval(value))
