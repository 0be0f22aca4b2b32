"""What holds for every standard subscriber, walked over all that are exported."""

from __future__ import annotations

import copy
import inspect
import io
import json
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from eventbus import PRIORITIES
from lifecycle import Loop, subscribers
from lifecycle.subscribers.memory import Memory, OneLoop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def tensorboard(path: Path) -> Any:
    """Return a TensorBoard subscriber, where its package is installed."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    return subscribers.TensorBoard(path / "board", every=1)


MAKERS: dict[str, Callable[[Path], Any]] = {
    "CSVLogger": lambda path: subscribers.CSVLogger(path / "log.csv"),
    "EMA": lambda path: subscribers.EMA("params", decay=0.5),
    "EarlyStopping": lambda path: subscribers.EarlyStopping("loss", patience=3, restore_best=True),
    "GracefulShutdown": lambda path: subscribers.GracefulShutdown(),
    "History": lambda path: subscribers.History(),
    "LogLines": lambda path: subscribers.LogLines(2, path=path / "l.jsonl", stream=io.StringIO()),
    "Progress": lambda path: subscribers.Progress(stream=io.StringIO()),
    "ReduceOnPlateau": lambda path: subscribers.ReduceOnPlateau(
        "settings", "lr", "loss", patience=1
    ),
    "Schedule": lambda path: subscribers.Schedule(
        lambda epoch: 0.1 / (1 + epoch), "settings", "lr"
    ),
    "StopOnNaN": lambda path: subscribers.StopOnNaN(),
    "StopOnTarget": lambda path: subscribers.StopOnTarget("loss", 0.0),
    "TensorBoard": tensorboard,
    "TimeLimit": lambda path: subscribers.TimeLimit(1000.0),
    "Timer": lambda path: subscribers.Timer(),
}


@pytest.fixture(params=sorted(MAKERS))
def make(request: pytest.FixtureRequest) -> Callable[[Path], Any]:
    """Each standard subscriber in turn, as a function that makes one."""
    return MAKERS[request.param]


def new_loop() -> Loop:
    """Return a loop with all that the subscribers want to find."""
    params = {"w": np.ones(2)}

    def step(batch: int) -> dict[str, float]:
        params["w"] += 1.0
        return {"loss": 1.0 / batch}

    objects = {"params": params, "settings": SimpleNamespace(lr=1.0)}
    return Loop(
        step,
        lambda batch: {"loss": 1.0 / batch},
        predict_step=lambda batch: batch,
        objects=objects,
    )


def plain(tree: Any) -> Any:
    """Return a state as plain values, so that two can be compared."""
    if isinstance(tree, dict):
        return {str(key): plain(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [plain(value) for value in tree]
    return tree.tolist() if hasattr(tree, "tolist") else tree


def test_every_exported_subscriber_is_walked() -> None:
    """The makers here and the exported names are the same."""
    assert sorted(subscribers.__all__) == sorted(MAKERS)
    assert set(subscribers.__all__) <= set(dir(subscribers))


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_the_docstring_names_what_it_answers_to(name: str) -> None:
    """Each says which Keras callback and which OpenMMLab hook it stands for, and its options."""
    kind = getattr(subscribers, name)
    text = inspect.getdoc(kind) or ""
    assert re.search(r"^Keras: .+\. OpenMMLab: ", text, re.MULTILINE), text
    for option in inspect.signature(kind).parameters:
        assert f"    {option}: " in text or f"    *{option}: " in text, (option, text)


def test_its_priority_is_one_that_the_bus_knows(make: Any, tmp_path: Path) -> None:
    """A priority, where there is one, is a name of the bus's."""
    priority = getattr(make(tmp_path), "priority", None)
    assert priority is None or priority in PRIORITIES


def test_by_epochs(make: Any, tmp_path: Path) -> None:
    """A run over epochs with validation completes with it."""
    loop = new_loop()
    loop.attach(make(tmp_path))
    loop.fit([1, 2, 3], epochs=3, validation_data=[1])
    assert loop.state.outcome == "completed"


def test_by_steps(make: Any, tmp_path: Path) -> None:
    """A run over one endless epoch, bounded by its steps, completes with it."""
    loop = new_loop()
    loop.attach(make(tmp_path))
    loop.fit(lambda epoch: iter(range(1, 1000)), epochs=1, steps_per_epoch=5)
    assert loop.state.steps_done == 5


def test_by_hand(make: Any, tmp_path: Path) -> None:
    """A hand-written loop completes with it."""
    with new_loop() as loop:
        loop.attach(make(tmp_path))
        for _ in loop.epochs(2):
            for batch in loop.batches([1, 2]):
                loop.log(loss=1.0 / batch)
    assert loop.state.outcome == "completed"


def test_evaluate_and_predict_alone(make: Any, tmp_path: Path) -> None:
    """Passes without any training before them go through."""
    loop = new_loop()
    loop.attach(make(tmp_path))
    loop.evaluate([1, 2])
    loop.predict([1, 2])


def test_attached_and_detached_in_mid_run(make: Any, tmp_path: Path) -> None:
    """Attached inside an epoch it takes part from there; after disconnect it hears no more."""
    loop = new_loop()
    groups = []
    loop.on("train_batch_end", at=[1])(
        lambda loop: groups.append(loop.attach(make(tmp_path), name="late"))
    )
    loop.on("train_batch_end", at=[7])(lambda: groups[0].disconnect())
    loop.fit([1, 2, 3], epochs=3, validation_data=[1])
    assert loop.state.outcome == "completed"
    assert not groups[0].active


def test_detached_before_a_run_it_does_nothing(make: Any, tmp_path: Path) -> None:
    """A disconnected subscriber touches no file and changes no object."""
    loop = new_loop()
    loop.attach(make(tmp_path)).disconnect()
    loop.fit([1, 2], epochs=1)
    assert list(tmp_path.iterdir()) == []
    assert loop.objects["settings"].lr == 1.0


def test_a_run_that_fails_comes_out_as_it_is(make: Any, tmp_path: Path) -> None:
    """The step's own error comes out, and a later run goes through with the same subscriber."""
    loop = new_loop()
    loop.attach(make(tmp_path))
    with pytest.raises(ZeroDivisionError):
        loop.fit([1, 0], epochs=1)
    with pytest.raises(ZeroDivisionError):
        loop.fit([1, 2], epochs=1, validation_data=[0])
    loop.fit([1, 2], epochs=2)
    assert loop.state.outcome == "completed"


def test_its_state_goes_round(make: Any, tmp_path: Path) -> None:
    """What it remembers is plain values and arrays, and a new one takes it up as it is."""
    one, other = make(tmp_path), make(tmp_path)
    if not hasattr(one, "state_dict"):
        assert not isinstance(one, Memory)
        return
    loop = new_loop()
    loop.attach(one)
    loop.fit([1, 2], epochs=3)
    state = copy.deepcopy(one.state_dict())
    json.dumps(plain(state))
    other.load_state_dict(state)
    if not isinstance(one, subscribers.TimeLimit):  # whose clock has gone on
        assert plain(other.state_dict()) == plain(state)


def test_two_loops_one_after_the_other(make: Any, tmp_path: Path) -> None:
    """The same subscriber serves a second loop once the first stands still, and starts afresh."""
    subscriber = make(tmp_path)
    for _ in range(2):
        loop = new_loop()
        loop.attach(subscriber)
        loop.fit([1, 2], epochs=2)
        assert loop.state.outcome == "completed"


def test_two_loops_at_once_work_or_are_refused(make: Any, tmp_path: Path) -> None:
    """A run inside another's run goes through, or a RuntimeError says to make one for each loop."""
    subscriber = make(tmp_path)
    outer, inner = new_loop(), new_loop()
    for loop in (outer, inner):
        loop.attach(subscriber)
    refused = []

    def nested() -> None:
        try:
            inner.fit([1, 2], epochs=1)
        except RuntimeError as error:
            refused.append(str(error))

    outer.on("epoch_begin", at=[1])(nested)
    outer.fit([1, 2], epochs=3)
    assert outer.state.outcome == "completed"
    one_at_a_time = isinstance(subscriber, OneLoop)
    assert len(refused) == one_at_a_time
    if one_at_a_time:
        assert "give each loop its own: loop.attach(" in refused[0]


def test_evaluating_another_loop_in_mid_run(make: Any, tmp_path: Path) -> None:
    """A second loop that is only evaluated inside the first one's run is no trouble."""
    subscriber = make(tmp_path)
    outer, inner = new_loop(), new_loop()
    for loop in (outer, inner):
        loop.attach(subscriber)
    outer.on("epoch_end")(lambda: inner.evaluate([1, 2]))
    outer.fit([1, 2], epochs=2)
    assert outer.state.outcome == "completed"


def test_importing_one_imports_nothing_heavy() -> None:
    """The package and all light modules come without NumPy, tqdm, torch or tensorboard."""
    names = [name for name in subscribers.__all__ if name != "TensorBoard"]
    code = (
        "import sys, lifecycle.subscribers as s;"
        f"[getattr(s, name) for name in {names!r}];"
        "print([m for m in ('numpy', 'tqdm', 'torch', 'tensorboard') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_no_attribute() -> None:
    """The package answers as any module does."""
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = subscribers.Nothing
