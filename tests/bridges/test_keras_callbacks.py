"""Keras's own callbacks leave on our loop what they leave in Keras's fit, from the same seed."""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

import pytest
from process import close, needs, run

needs("keras")

BACKENDS = [
    pytest.param(
        backend,
        marks=[
            pytest.mark.skipif(
                importlib.util.find_spec(backend) is None, reason=f"{backend} is not installed"
            ),
            *([pytest.mark.slow] if backend == "tensorflow" else []),
        ],
    )
    for backend in ("jax", "torch", "tensorflow")
]

CALLBACKS = (
    *("EarlyStopping", "ModelCheckpoint", "ReduceLROnPlateau", "LearningRateScheduler"),
    *("CSVLogger", "TensorBoard", "TerminateOnNaN", "LambdaCallback", "History"),
    *("ProgbarLogger", "SwapEMAWeights", "BackupAndRestore", "RemoteMonitor"),
)


def pair(backend: str, name: str) -> tuple[Any, Any]:
    theirs, ours = copy.deepcopy(run("run_keras_callbacks.py", backend=backend)[name])
    if "missing" in theirs:
        pytest.skip(theirs["missing"])
    return theirs, ours


@pytest.mark.parametrize("name", CALLBACKS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_builtin_callbacks_leave_what_they_leave_in_fit(backend: str, name: str) -> None:
    """Weights, files, logs of batches and epochs, rates and the callback's state are equal."""
    theirs, ours = pair(backend, name)
    if name == "TerminateOnNaN":  # our loop does not validate the epoch that a stop has broken
        for _, logs in theirs["epochs"]:
            logs.pop("val_loss"), logs.pop("val_mae")
    for aspect, value in theirs.items():
        assert close(ours[aspect], value, 1e-4), aspect


@pytest.mark.parametrize("backend", BACKENDS)
def test_callbacks_had_an_effect(backend: str) -> None:
    """The runs stopped early, reduced the rate, wrote files and sent requests."""
    assert len(pair(backend, "EarlyStopping")[0]["epochs"]) < 6
    assert len(pair(backend, "TerminateOnNaN")[0]["epochs"]) == 1
    assert len(set(pair(backend, "ReduceLROnPlateau")[0]["rates"])) > 1
    assert {name[-3:] for name in pair(backend, "ModelCheckpoint")[0]["files"]} == {".h5", "ras"}
    assert len(pair(backend, "RemoteMonitor")[0]["sent"]) == 6
    assert pair(backend, "LambdaCallback")[0]["lambdas"][-1] == "end"


@pytest.mark.parametrize("backend", BACKENDS)
def test_backup_and_restore_goes_on_where_fit_would(backend: str) -> None:
    """A run that failed in its fifth epoch goes on with that epoch, to the same weights."""
    theirs, ours = pair(backend, "resumed")
    assert ours["epochs"] == theirs["epochs"] == [4, 5]
    assert close(ours["weights"], theirs["weights"])
