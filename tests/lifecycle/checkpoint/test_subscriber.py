"""Checkpoint: when it saves, what it tells, and how a run goes on."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lifecycle import Checkpoint, EarlyStopping, Loop
from lifecycle.checkpoint import UnsavableError, list_checkpoints, store


def make(folder: Path, *more: object, losses: Any = None, **options: Any) -> Loop:
    """Return a loop over one number, with a Checkpoint."""
    weights = {"w": np.zeros(2)}

    def step(batch: int) -> dict[str, float]:
        weights["w"] += batch
        return {"loss": losses[loop.state.epoch] if losses else float(weights["w"].sum())}

    loop = Loop(step, objects={"weights": weights})
    loop.attach(Checkpoint(folder, **options), *more)
    return loop


def places(folder: Path) -> list[tuple[int, int]]:
    return [(record.epoch, record.step) for record in list_checkpoints(folder)]


CASES: list[tuple[dict[str, Any], dict[str, Any], list[tuple[int, int]]]] = [
    ({}, {"epochs": 3}, [(1, 4), (2, 8), (3, 12)]),
    ({"every": 2}, {"epochs": 5}, [(2, 8), (4, 16), (5, 20)]),
    ({"steps": 3}, {"epochs": 2}, [(0, 3), (1, 6), (2, 8)]),
    ({"steps": 4}, {"epochs": 2}, [(0, 4), (1, 8), (2, 8)]),
    ({"steps": 3, "every": 1}, {"epochs": 2}, [(0, 3), (1, 4), (1, 6), (2, 8)]),
    ({"every": 9}, {"max_steps": 6}, [(1, 6)]),
    ({"every": 9}, {"epochs": 0}, []),
]


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize(("options", "run", "expected"), CASES)
def test_when_it_saves(
    options: dict[str, Any],
    run: dict[str, Any],
    expected: list[tuple[int, int]],
    background: bool,
    tmp_path: Path,
) -> None:
    """At its epochs, steps, and at the end whatever these are; (epochs, steps) done."""
    loop = make(tmp_path / "run", keep=None, background=background, **options)
    loop.fit(range(4), **({"epochs": None} | run))
    assert places(tmp_path / "run") == expected


def test_it_saves_after_some_time(tmp_path: Path) -> None:
    """With seconds it saves after the batch that ends so long after the last save."""
    loop = make(tmp_path, seconds=0.05, keep=None)
    loop.on("train_batch_begin", at=(2,))(lambda: time.sleep(0.06))
    loop.fit(range(6))
    assert places(tmp_path) == [(0, 3), (1, 6)]


def test_batches_cost_nothing_unless_they_are_counted(tmp_path: Path) -> None:
    """Saving by epochs, it does not listen to batches."""
    loop = make(tmp_path)
    assert not loop.emitter("train_batch_end").live
    assert make(tmp_path, steps=2).emitter("train_batch_end").live


def test_keep_and_the_best(tmp_path: Path) -> None:
    """The newest few are kept, and the one where the metric was best."""
    told: list[tuple[int, bool]] = []
    loop = make(tmp_path, losses=[3.0, 1.0, 2.0, 2.5, 1.0], save_best="loss", keep=2)
    loop.on("checkpoint_saved")(lambda epoch, best: told.append((epoch, best)))
    loop.fit(range(4), epochs=5)
    assert told == [(0, True), (1, True), (2, False), (3, False), (4, False)]
    assert places(tmp_path) == [(2, 8), (4, 16), (5, 20)]
    assert store.locate(tmp_path / "best").name == "000002-epoch-2-step-8"
    assert store.locate(tmp_path / "latest").name == "000005-epoch-5-step-20"


def test_the_best_is_saved_whenever_it_comes(tmp_path: Path) -> None:
    """An epoch that is the best so far is saved even if it is not due."""
    loop = make(tmp_path, losses=[2.0, 3.0, 1.0, 4.0], save_best="loss", every=10, keep=None)
    loop.fit(range(4), epochs=4)
    assert places(tmp_path) == [(1, 4), (3, 12), (4, 16)]


def test_what_is_best_survives_a_resume(tmp_path: Path) -> None:
    """A resumed run does not take its first epoch for the best."""
    losses = [1.0, 3.0, 2.0]
    make(tmp_path, losses=losses, save_best="loss").fit(range(4), epochs=1)
    told: list[bool] = []
    loop = make(tmp_path, losses=losses, save_best="loss")
    loop.on("checkpoint_saved")(lambda best: told.append(best))
    loop.fit(range(4), epochs=3, resume="auto")
    assert told == [False, False]


def test_a_metric_that_is_not_there(tmp_path: Path) -> None:
    """The warning lists those that are."""
    loop = make(tmp_path, save_best="accuracy")
    with pytest.warns(RuntimeWarning, match="Checkpoint: no metric 'accuracy' .* have 'loss'"):
        loop.fit(range(4))


def test_what_it_tells(tmp_path: Path) -> None:
    """checkpoint_saved and checkpoint_loaded carry the path and the place, in the loop's thread."""
    told: list[Any] = []

    def tell(**payload: Any) -> None:
        told.append((threading.current_thread(), payload))

    loop = make(tmp_path)
    loop.connect("checkpoint_saved", tell)
    loop.fit(range(4))
    path = tmp_path / "000001-epoch-1-step-4"
    here = threading.current_thread()
    saved = {"path": path, "epoch": 0, "step": 3, "best": False}
    assert told == [(here, saved)]
    told.clear()
    loop = make(tmp_path)
    loop.connect("checkpoint_loaded", tell)
    loop.fit(range(4), epochs=2, resume="auto")
    assert told == [(here, {"path": path, "epoch": 1, "step": 4})]


class Last:
    """A subscriber with a state that comes after all others."""

    priority = "LOWEST"

    def __init__(self) -> None:
        self.seen = 0

    def on_train_batch_end(self) -> None:
        self.seen += 1

    def on_epoch_end(self) -> None:
        self.seen += 100

    def state_dict(self) -> dict[str, int]:
        return {"seen": self.seen}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.seen = state["seen"]


@pytest.mark.parametrize("options", [{"steps": 1}, {"every": 1}, {"steps": 3, "every": 1}])
def test_states_are_taken_after_the_last_subscriber(options: Any, tmp_path: Path) -> None:
    """What a subscriber decides at a point is in the checkpoint of that point, in any order."""
    whole = Last()
    make(tmp_path / "whole", whole, **options).fit(range(4), epochs=3)

    killed = Last()
    loop = make(tmp_path / "run", killed, keep=None, **options)
    loop.fit(range(4), epochs=3)
    for record in list_checkpoints(tmp_path / "run"):
        again = Last()
        loop = make(tmp_path / "again", again, **options)
        loop.fit(range(4), epochs=3, resume=record.path)
        assert again.seen == whole.seen, record


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    """A stop in an epoch is saved there; the resumed run ends as if there had been none."""
    whole = make(tmp_path / "whole").fit(range(5), epochs=3)
    loop = make(tmp_path / "run")
    loop.on("train_batch_end", at=(7,))(lambda loop: loop.stop("later", interrupt=True))
    assert loop.fit(range(5), epochs=3).outcome == "interrupted"
    assert places(tmp_path / "run")[-1] == (1, 8)
    loop = make(tmp_path / "run")
    assert loop.fit(range(5), epochs=3, resume="auto").to_dict() == whole.to_dict()


def test_a_run_that_ended_stays_ended(tmp_path: Path) -> None:
    """Resumed, it does not train any further, and saves nothing more."""
    losses = [1.0, 2.0, 3.0, 4.0]
    loop = make(tmp_path, EarlyStopping("loss", patience=1), losses=losses)
    loop.fit(range(5), epochs=4)
    before = places(tmp_path)
    batches: list[int] = []
    loop = make(tmp_path, EarlyStopping("loss", patience=1), losses=losses)
    loop.on("train_batch_begin")(lambda batch: batches.append(batch))
    history = loop.fit(range(5), epochs=4, resume="auto")
    assert (history.outcome, batches, places(tmp_path)) == ("stopped", [], before)


def test_a_failed_run_is_not_saved(tmp_path: Path) -> None:
    """After an error in a step the objects may be half a step ahead: nothing is saved."""
    loop = make(tmp_path)
    loop.on("train_batch_end", at=(2,))(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loop.fit(range(5))
    assert places(tmp_path) == []


def test_subscribers_may_come_and_go(tmp_path: Path) -> None:
    """Those that are missing or new are warned of by name; the others are loaded."""
    make(tmp_path, Last()).fit(range(2))
    loop = make(tmp_path, EarlyStopping("loss", patience=9))
    with pytest.warns(RuntimeWarning) as warned:
        loop.fit(range(2), epochs=2, resume="auto")
    messages = [str(each.message) for each in warned]
    assert any("subscribers Last are not attached now" in each for each in messages)
    assert any("subscribers EarlyStopping were not attached when" in each for each in messages)


def test_an_error_while_loading_names_the_culprit(tmp_path: Path) -> None:
    """The exception of an object's or a subscriber's own loading has a note with its name."""
    make(tmp_path, Last()).fit(range(2))
    broken = Last()
    broken.load_state_dict = lambda _: 1 / 0  # type: ignore[method-assign, assignment]
    with pytest.raises(ZeroDivisionError) as caught:
        make(tmp_path, broken).fit(range(2), resume="auto")
    assert any("loading the state of the subscriber 'Last'" in n for n in caught.value.__notes__)


def test_only_some_objects(tmp_path: Path) -> None:
    """objects= chooses; a name that the loop lacks is told before training."""
    loop = make(tmp_path, objects=["weights"])
    loop.objects["device"] = object()
    loop.fit(range(2))
    assert [path.name for path in list_checkpoints(tmp_path)[0].path.glob("*.safetensors")] != []
    with pytest.raises(LookupError, match="the loop has no object 'wights'; it has 'weights'"):
        make(tmp_path / "other", objects=["wights"]).fit(range(2))


def test_what_cannot_be_saved_is_told_before_training(tmp_path: Path) -> None:
    """No batch is trained for nothing."""
    batches: list[int] = []
    loop = make(tmp_path)
    loop.objects["device"] = object()
    loop.on("train_batch_begin")(lambda batch: batches.append(batch))
    with pytest.raises(UnsavableError, match=r"device is a builtins\.object.*register_adapter"):
        loop.fit(range(2))
    assert batches == []


def test_names_of_objects_are_no_paths(tmp_path: Path) -> None:
    """Any name gives a file of its own inside of the checkpoint."""
    names = ["../up", "_run", ".x", "A", "a", "a b"]
    loop = Loop(lambda _: None, objects={name: np.full(2, i) for i, name in enumerate(names)})
    loop.attach(Checkpoint(tmp_path))
    loop.fit([1])
    fresh = Loop(lambda _: None, objects={name: np.zeros(2, int) for name in names})
    fresh.attach(Checkpoint(tmp_path))
    fresh.fit([1], resume="auto")
    assert [int(fresh.objects[name][0]) for name in names] == list(range(6))


def test_save_by_hand(tmp_path: Path) -> None:
    """A checkpoint can be asked for at the end of any batch."""
    loop = Loop(lambda _: None, objects={"w": np.ones(1)})
    checkpoint = Checkpoint(tmp_path, every=100)
    loop.attach(checkpoint)
    made: list[Path] = []
    loop.on("train_batch_end", at=(1,))(lambda loop: made.append(checkpoint.save(loop)))
    loop.fit(range(4))
    assert made == [tmp_path / "000001-epoch-0-step-2"]
    assert made[0].is_dir()


# -- in the background


def test_the_loop_goes_on_while_a_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written is the state at the point, whatever the steps did to it meanwhile."""
    real, go_on, begun = store.write, threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Path:
        begun.set()
        assert go_on.wait(10)
        return real(*arguments)

    monkeypatch.setattr(store, "write", slow)
    loop = make(tmp_path, steps=2, keep=None)
    loop.on("train_batch_begin", at=(2,))(lambda: begun.wait(10))
    loop.on("train_batch_begin", at=(3,))(go_on.set)
    loop.fit([1] * 5)
    weights = []
    for record in list_checkpoints(tmp_path):
        _, saved = store.read(record.path)
        weights.append(saved["objects"]["weights"]["w"].tolist())
    assert weights == [[2, 2], [4, 4], [5, 5]]


def failing(times: int) -> Callable[..., Path]:
    real, left = store.write, [times]

    def write(*arguments: Any) -> Path:
        if left[0]:
            left[0] -= 1
            raise OSError(28, "No space left on device")
        return real(*arguments)

    return write


@pytest.mark.parametrize("background", [False, True])
def test_a_failed_write_raises(
    background: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default the run fails with the system's own error, that names the folder."""
    monkeypatch.setattr(store, "write", failing(9))
    loop = make(tmp_path, background=background)
    with pytest.raises(OSError, match="No space left") as caught:
        loop.fit(range(3), epochs=3)
    assert any(str(tmp_path) in note for note in caught.value.__notes__)
    assert loop.state.epochs_done <= 2


@pytest.mark.parametrize("background", [False, True])
def test_a_failed_write_is_logged(
    background: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With errors="warn" the run goes on, and later checkpoints are written."""
    monkeypatch.setattr(store, "write", failing(1))
    make(tmp_path, background=background, errors="warn").fit(range(3), epochs=3)
    assert places(tmp_path) == [(2, 6), (3, 9)]
    assert "no checkpoint could be written" in caplog.text


def test_the_last_save_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the write of the last epoch has failed, the end of the run makes up for it."""
    monkeypatch.setattr(store, "write", failing(1))
    make(tmp_path, background=False, errors="warn").fit(range(3))
    assert places(tmp_path) == [(1, 3)]


# -- what is refused at once


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every is a number of epochs"),
        ({"steps": 0}, "steps is a number of steps"),
        ({"seconds": 0}, "seconds must be more than 0"),
        ({"keep": 0}, "keep is a number of checkpoints"),
        ({"keep_every": 0}, "keep_every is a number of epochs"),
        ({"errors": "ignore"}, "errors"),
        ({"save_best": "thing"}, "cannot tell from the name"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Each is refused where it is given."""
    with pytest.raises((TypeError, ValueError), match=message):
        Checkpoint(tmp_path, **options)


def test_a_path_through_a_file(tmp_path: Path) -> None:
    """A folder that cannot be is refused before anything runs."""
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(NotADirectoryError, match=r"checkpoints cannot be in .*file is a file"):
            Checkpoint(path)


def test_nothing_is_made_before_a_run(tmp_path: Path) -> None:
    """Making a Checkpoint touches no disk."""
    Checkpoint(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_without_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install."""
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(ImportError, match=r'pip install "epochbus\[checkpoint\]"'):
        Checkpoint(tmp_path)


def test_two_loops_at_once(tmp_path: Path) -> None:
    """A Checkpoint that follows a running loop refuses a second one."""
    checkpoint = Checkpoint(tmp_path)
    one, two = Loop(lambda _: None), Loop(lambda _: None)
    one.attach(checkpoint)
    two.attach(checkpoint)
    one.on("train_batch_end")(lambda: two.fit(range(2)))
    with pytest.raises(RuntimeError, match="following another loop"):
        one.fit(range(2))


def test_a_run_in_a_run_of_another_loop(tmp_path: Path) -> None:
    """A folder that holds an older run: a new run goes on counting, and resumes its own."""
    make(tmp_path).fit(range(4), epochs=2)
    with pytest.warns(UserWarning, match="an earlier run"):
        make(tmp_path).fit(range(4), epochs=1)
    assert [r.sequence for r in list_checkpoints(tmp_path)] == [1, 2, 3]
    loop = make(tmp_path)
    loop.fit(range(4), epochs=2, resume="auto")
    assert loop.state.epochs_done == 2
    assert places(tmp_path)[-1] == (2, 8)


def test_several_metrics_keep_a_best_each(tmp_path: Path) -> None:
    """With several metrics each has its own best, named after it; ``best`` is the first's."""
    loop = make(tmp_path, losses=[3.0, 0.0, 2.0, 4.0], save_best=["loss", "twin/acc"], keep=1)
    loop.on("epoch_end")(lambda logs, epoch: logs.update({"twin/acc": -epoch}))
    loop.fit(range(4), epochs=4)
    assert store.locate(tmp_path / "best").name == "000002-epoch-2-step-8"
    assert store.locate(tmp_path / "best-loss").name == "000002-epoch-2-step-8"
    assert store.locate(tmp_path / "best-twin%2Facc").name == "000001-epoch-1-step-4"
    assert len([record for record in list_checkpoints(tmp_path) if record.best]) == 2


def test_auto_takes_the_first_metric_that_tells(tmp_path: Path) -> None:
    """save_best="auto" looks at the validation's first metric whose name tells its direction."""
    loop = make(tmp_path, losses=[1.0, 2.0, 3.0], save_best="auto", keep=1)
    values = {"val_thing": 1.0, "val_acc": 0.0}  # a score of exactly 0 counts
    loop.on("epoch_end")(lambda logs, epoch: logs.update(values if epoch == 0 else {"val_acc": -1}))
    loop.fit(range(4), epochs=3)
    assert store.locate(tmp_path / "best").name == "000001-epoch-1-step-4"
    again = make(tmp_path, losses=[1.0] * 4, save_best="auto")
    again.on("epoch_end")(lambda logs: logs.update(val_acc=-0.5))
    again.fit(range(4), epochs=4, resume=True)
    assert store.locate(tmp_path / "best").name == "000001-epoch-1-step-4"


def test_auto_without_a_validation_warns(tmp_path: Path) -> None:
    """A run without a metric of a validation says what there was."""
    with pytest.warns(RuntimeWarning, match="no metric of a validation .* have 'loss'"):
        make(tmp_path, save_best="auto").fit(range(2))


def test_a_metric_named_twice_is_refused(tmp_path: Path) -> None:
    """Each metric decides once."""
    with pytest.raises(ValueError, match="decides once"):
        Checkpoint(tmp_path, save_best=["loss", "loss"])


def test_a_fresh_run_leaves_the_checkpoints_of_an_earlier_one(tmp_path: Path) -> None:
    """Beginning anew beside checkpoints warns, and neither that run nor its resume removes them."""

    def run(epochs: int, *, resume: object = False) -> None:
        loop = Loop(lambda batch: {"loss": batch}, objects={"x": np.zeros(3)})
        loop.attach(Checkpoint(tmp_path, keep=1, background=False))
        loop.fit([1.0], epochs=epochs, resume=resume)

    run(3)
    earlier = {record.name for record in list_checkpoints(tmp_path)}
    with pytest.warns(UserWarning, match="holds checkpoints of an earlier run"):
        run(3)
    run(5, resume="auto")
    names = [record.name for record in list_checkpoints(tmp_path)]
    assert len(earlier) == 1
    assert earlier < set(names)
    assert len(names) == 2
    assert names[-1].endswith("-epoch-5-step-5")


def test_what_a_killed_write_left_is_no_earlier_run(tmp_path: Path) -> None:
    """A run killed in its first write has no checkpoint: beginning anew says nothing."""
    (tmp_path / ".partial-000001-epoch-1-step-1-999999999").mkdir()
    make(tmp_path).fit(range(2), resume="auto")
    assert len(list_checkpoints(tmp_path)) == 1
