"""The same recorder and the same ten subscribers with every sender.

Our own loop is what the others are held against: traces with all counters and logs, what the
subscribers have to show, and the weight that was trained. What differs is in
`differences.DIFFERENCES`, and nothing else does. What the framework told its own callbacks in
the same run is the reference for the points themselves.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from differences import DIFFERENCES, SENDERS, Run, table
from process import close, run
from subscribers import SCENARIOS

from lifecycle.testing import assert_well_formed

DOCS = Path(__file__).parents[2] / "docs" / "bridges.md"

SOURCES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "own": ("run_own.py", "", ("numpy",)),
    "own by steps": ("run_own.py", "", ("numpy",)),
    "by hand": ("run_own.py", "", ("numpy",)),
    "Keras on JAX": ("run_keras.py", "jax", ("keras", "jax")),
    "Keras on torch": ("run_keras.py", "torch", ("keras", "torch")),
    "Keras on TensorFlow": ("run_keras.py", "tensorflow", ("keras", "tensorflow")),
    "mmengine by epochs": ("run_mmengine.py", "", ("mmengine", "torch")),
    "mmengine by steps": ("run_mmengine.py", "", ("mmengine", "torch")),
}
"""The script of each sender, its Keras backend, and what it needs."""

SLOW = "Keras on TensorFlow"
"""Left to `-m slow`: a third backend of Keras takes its time."""

EACH = [pytest.param(s, marks=pytest.mark.slow) if s == SLOW else s for s in SENDERS]
BRIDGED = [sender for sender in EACH if sender != "by hand"]


def result(sender: str, scenario: str) -> Run:
    """Return what a sender has made of a scenario; skip where its framework is missing."""
    script, backend, needs = SOURCES[sender]
    if missing(sender):
        pytest.skip(f"needs {', '.join(needs)}")
    found = run(script, backend=backend)
    found = found.get(sender, found)[scenario]
    made: Run = copy.deepcopy(found)
    return made


def missing(sender: str) -> bool:
    """Whether something that a sender needs is not installed."""
    return any(importlib.util.find_spec(module) is None for module in SOURCES[sender][2])


def compared(sender: str, scenario: str) -> tuple[Run, Run, list[int]]:
    """Return a sender's run and our own without the known differences, and which these are."""
    found = result(sender, scenario)
    own = result("own by steps" if sender.endswith("by steps") else "own", scenario)
    places = []
    for place, difference in enumerate(DIFFERENCES):
        if sender.startswith(difference.senders) and scenario in difference.scenarios:
            before = copy.deepcopy((found, own))
            difference.leave_out(found)
            difference.leave_out(own)
            if not _alike_where_left_out(before, (found, own)):
                places.append(place)
    return found, own, places


def _alike_where_left_out(before: tuple[Run, Run], after: tuple[Run, Run]) -> bool:
    """Whether what was taken out of two runs was the same."""
    if [len(run["trace"]) for run in before] != [len(run["trace"]) for run in after]:
        return False
    one, other = before
    return all(
        close(mine.get(key), theirs.get(key))
        for (_, mine), (_, theirs), (_, kept) in zip(
            one["trace"], other["trace"], after[0]["trace"], strict=True
        )
        for key in mine.keys() - kept.keys()
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("sender", EACH)
def test_points_and_payloads_are_those_of_our_loop(sender: str, scenario: str) -> None:
    """Points in order, with every counter, outcome and log, but for the known differences."""
    found, own, _ = compared(sender, scenario)
    assert [point for point, _ in found["trace"]] == [point for point, _ in own["trace"]]
    for mine, theirs in zip(found["trace"], own["trace"], strict=True):
        assert close(mine, theirs), (mine, theirs)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("sender", EACH)
def test_subscribers_have_the_same_effect(sender: str, scenario: str) -> None:
    """What the ten subscribers show, the trained weight and the error that came out are equal."""
    found, own, _ = compared(sender, scenario)
    for name, value in own["shown"].items():
        assert close(found["shown"][name], value), name
    assert close(found["weight"], own["weight"])
    assert found["raised"] == own["raised"]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("sender", ["own", "own by steps", *EACH])
def test_traces_are_well_formed(sender: str, scenario: str) -> None:
    """Begins and ends nest, and each stage ends once."""
    trace = result(sender, scenario)["trace"]
    assert_well_formed([(point, payload) for point, payload in trace])
    assert trace[-1][0] == "train_end"


STAGES = {
    "before_train": "train_begin",
    "before_train_epoch": "epoch_begin",
    "before_train_iter": "train_batch_begin",
    "after_train_iter": "train_batch_end",
    "before_val": "test_begin",
    "before_val_iter": "test_batch_begin",
    "after_val_iter": "test_batch_end",
    "after_val_epoch": "test_end",
    "after_train": "train_end",
}
"""mmengine's stages as points. Its epochs end before validation, so their ends are moved."""


def natively(sender: str, notes: list[Any]) -> Iterator[list[Any]]:
    """Translate what the framework told its own callback: point, index, metrics of test data."""
    for name, index, metrics in notes:
        if sender.startswith("Keras"):
            yield [name, index, metrics]
        elif name in STAGES:
            yield [STAGES[name], index, metrics]


def ours(sender: str, trace: list[Any]) -> Iterator[list[Any]]:
    """Take the same out of our trace."""
    keras = sender.startswith("Keras")
    for point, payload in trace:
        if point in ("exception", "stop_requested") or (point == "epoch_end" and not keras):
            continue
        index = payload.get("batch", payload.get("epoch") if keras and "epoch_" in point else None)
        told = point == "test_end" or (keras and point == "epoch_end")
        logs = {key: value for key, value in payload["logs"].items() if key != "lr"}
        yield [point, index, logs if told else {}]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("sender", BRIDGED)
def test_the_framework_told_its_own_callback_the_same(sender: str, scenario: str) -> None:
    """Each point is one that a native callback heard, with the same index and metrics."""
    found = result(sender, scenario)
    theirs = list(natively(sender, found["native"]))
    mine = list(ours(sender, found["trace"]))
    if found["raised"]:
        mine = mine[:-1]  # train_end, of which frameworks say nothing after a failure
    if sender.startswith("Keras") and scenario == "stop in validation":
        for _, _, logs in theirs:  # in ours, half a validation does not pass for a whole one
            logs.pop("val_loss", None)
    if sender == "mmengine by steps" and scenario == "stop at train_begin":
        theirs = [each for each in theirs if each[0] != "epoch_begin"]  # an epoch of no batch
    assert close(mine, theirs)


def test_the_table_in_the_docs_is_what_the_suite_finds() -> None:
    """docs/bridges.md holds the table of differences; run this file to print it."""
    for sender in ("Keras on JAX", "mmengine by epochs"):
        if missing(sender):
            pytest.skip(f"needs {', '.join(SOURCES[sender][2])}")
    assert differences_found() in DOCS.read_text(encoding="utf-8")


def differences_found() -> str:
    """Return the table."""
    there = [sender for sender in SENDERS if not missing(sender) and sender != SLOW]
    return table({s: {c: compared(s, c)[2] for c in SCENARIOS} for s in there})


if __name__ == "__main__":
    sys.stdout.write(differences_found())
