"""A run that was broken off and taken up again is the run that was never broken off."""

# ruff: noqa: S311 -- the global generator is what these tests are about

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lifecycle import Loop, bus

Tracer = Callable[[Loop], Any]


class Stop(BaseException):
    """What kills a run in these tests."""


class Keeper:
    """Saves at every batch, epoch and run end, as a checkpoint does, and restores the last."""

    priority = "VERY_LOW"

    def __init__(self, model: dict[str, float], kill_at: int | None = None) -> None:
        self.model = model
        self.kill_at = kill_at
        self.saves: list[dict[str, Any]] = []
        self.saved: dict[str, Any] | None = None

    def on_train_batch_end(self, loop: Loop) -> None:
        self.save(loop)

    def on_test_end(self, loop: Loop) -> None:
        self.save(loop)

    def on_epoch_end(self, loop: Loop) -> None:
        self.save(loop)

    def on_train_end(self, loop: Loop) -> None:
        if loop.state.settled:
            self.save(loop)

    def save(self, loop: Loop) -> None:
        self.saves.append(
            copy.deepcopy(
                {
                    "model": self.model,
                    "loop": loop.state_dict(),
                    "subscribers": {n: s.state_dict() for n, s in loop.subscribers.items()},
                }
            )
        )
        if self.kill_at is not None and len(self.saves) == self.kill_at:
            raise Stop

    def restore(self, loop: Loop, resume: object) -> Callable[[], None] | None:
        if self.saved is None:
            return None
        self.model.clear()
        self.model.update(self.saved["model"])
        loop.load_state_dict(self.saved["loop"])

        def finish() -> None:
            assert self.saved is not None
            for name, subscriber in loop.subscribers.items():
                subscriber.load_state_dict(self.saved["subscribers"][name])

        return finish


class Shuffled:
    """Data that is shuffled whenever it is begun, and draws again for each batch."""

    def __iter__(self) -> Iterator[float]:
        order = [1.0, 2.0, 3.0, 4.0, 5.0]
        random.shuffle(order)
        for value in order:
            yield value + random.random()

    def __len__(self) -> int:
        return 5


class Stateful:
    """Data that keeps its own position, as torchdata's StatefulDataLoader does."""

    def __init__(self) -> None:
        self.position = 0

    def __iter__(self) -> Iterator[float]:
        while self.position < 5:
            self.position += 1
            yield self.position + random.random()
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


def endless() -> Iterator[float]:
    """Yield for ever, drawing at random."""
    for n in range(10**6):
        yield n + random.random()


PLANS: dict[str, dict[str, Any]] = {
    "shuffled": {"data": Shuffled, "epochs": 3},
    "function": {"data": lambda: lambda epoch: Shuffled(), "epochs": 3},
    "cut": {"data": Shuffled, "epochs": 3, "steps_per_epoch": 3},
    "iterator": {"data": endless, "epochs": 3, "steps_per_epoch": 4},
    "stateful": {"data": Stateful, "epochs": 3},
    "steps": {"data": Shuffled, "max_steps": 12},
    "validated": {"data": Shuffled, "epochs": 3, "validation_data": Shuffled},
    "often": {
        "data": Shuffled,
        "epochs": 2,
        "validation_data": Shuffled,
        "validation_every_steps": 2,
    },
}


def run(plan: str, keeper: Keeper, model: dict[str, float], *, resume: object = False) -> Any:
    """Run a plan with a random step; return everything that came of it."""

    def step(batch: float) -> dict[str, float]:
        model["w"] = model.get("w", 0.0) * 0.9 + batch * random.random()
        loop.log(noise=random.random(), reduce="max")
        return {"loss": model["w"], "batch_size": 1 + int(batch) % 3}

    def test(batch: float) -> dict[str, float]:
        return {"loss": model["w"] + batch * random.random()}

    arguments = dict(PLANS[plan])
    for name in ("data", "validation_data"):
        if name in arguments:
            arguments[name] = arguments[name]()
    loop = Loop(step, test)
    loop.attach(keeper)
    loop.connect("epoch_begin", lambda epoch, logs: logs.update(lr=1 / (epoch + 1)))
    ends: list[Any] = []
    loop.connect("train_end", lambda logs: ends.append(dict(logs)), priority="LOWEST")
    history = loop.fit(**arguments, resume=resume)
    return {
        "model": dict(model),
        "history": history.to_dict(),
        "end": ends[-1],
        "steps": loop.state.steps_done,
        "random": random.random(),
    }


@pytest.mark.parametrize("plan", PLANS)
def test_killed_at_any_save_and_resumed(plan: str) -> None:
    """Parameters, history and logs are equal to the last bit, wherever the run was killed."""
    random.seed(1)
    whole = Keeper({})
    expected = run(plan, whole, whole.model)
    for kill_at in range(1, len(whole.saves)):
        random.seed(1)
        first = Keeper({}, kill_at)
        with pytest.raises(Stop):
            run(plan, first, first.model)
        random.seed(999)  # another process
        second = Keeper({})
        second.saved = first.saves[kill_at - 1]
        assert run(plan, second, second.model, resume="auto") == expected, kill_at


POINTS = ["train_batch_end", "epoch_begin", "epoch_end"]


@pytest.mark.parametrize(
    ("plan", "point"),
    [
        *[(plan, point) for plan in ("shuffled", "validated", "iterator") for point in POINTS],
        ("validated", "test_batch_end"),
    ],
)
def test_stopped_from_outside_and_resumed(plan: str, point: str) -> None:
    """A run that was asked to stop for the time being goes on as if nothing had been."""
    random.seed(1)
    whole = Keeper({})
    expected = run(plan, whole, whole.model)
    random.seed(1)
    first = Keeper({})
    done: list[int] = []

    def stop(loop: Loop) -> None:
        done.append(1)
        if len(done) == 2:
            loop.stop("for now", interrupt=True)

    with bus.connected(point, stop):
        run(plan, first, first.model)
    assert len(done) == 2
    random.seed(999)
    second = Keeper({})
    second.saved = first.saves[-1]
    assert run(plan, second, second.model, resume=True) == expected


@pytest.mark.parametrize("point", ["train_batch_end", "test_batch_end"])
@pytest.mark.parametrize("every", [None, 3])
def test_the_end_of_a_cut_epoch_leaves_nothing_in_the_logs(point: str, every: int | None) -> None:
    """What subscribers add at the end of an epoch that was cut is not there when it goes on."""

    def run(keeper: Keeper, stop_at: int, **options: Any) -> list[tuple[str, Any]]:
        loop = Loop(lambda batch: {"loss": batch}, lambda batch: {"loss": -batch})
        loop.attach(keeper)
        loop.connect("epoch_end", lambda logs, loop: logs.setdefault("at", loop.state.step))
        loop.connect(point, lambda loop: loop.stop("now", final=False), at=stop_at)
        history = loop.fit(
            [1, 2, 3, 4],
            epochs=1,
            validation_data=[5, 6],
            validation_every_steps=every,
            **options,
        )
        return list(history.rows[0].items())  # their order makes the columns of a table

    first, second = Keeper({}), Keeper({})
    expected = run(Keeper({}), 99)
    cut = run(first, 1)
    second.saved = first.saves[-1]
    assert run(second, 99, resume=True) == expected != cut


def test_a_final_stop_is_heeded_after_a_resume(trace: Tracer) -> None:
    """What has decided that the run is over stays decided; an interruption does not."""
    for final in (True, False):
        random.seed(1)
        first = Keeper({})
        loop = Loop(lambda batch: None)
        loop.attach(first)
        loop.connect("train_batch_end", lambda loop, final=final: loop.stop("x", final=final))
        loop.fit([1, 2], epochs=2)
        second = Keeper({})
        second.saved = first.saves[-1]
        later = Loop(lambda batch: None)
        later.attach(second)
        sent = trace(later)
        history = later.fit([1, 2], epochs=2, resume="auto")
        assert history.outcome == ("stopped" if final else "completed")
        assert sent.points.count("train_batch_begin") == (0 if final else 3)
        if final:
            assert history.reasons == ("x",)
            assert second.saves[-1]["loop"]["batch"] == 1


def test_the_points_of_a_resumed_run(trace: Tracer) -> None:
    """The open epoch begins once more, and goes on with the batch after the saved one."""
    first = Keeper({}, kill_at=5)  # two batches of epoch 1: 2 + epoch_end + 2
    loop = Loop(lambda batch: {"loss": batch})
    loop.attach(first)
    with pytest.raises(Stop):
        loop.fit([1, 2, 3][:2], epochs=3)
    second = Keeper({})
    second.saved = first.saves[3]
    assert second.saved["loop"]["batch"] == 1
    later = Loop(lambda batch: {"loss": batch})
    later.attach(second)
    seen = []
    later.connect("epoch_begin", lambda loop: seen.append((loop.state.step, loop.state.batch)))
    sent = trace(later)
    later.fit([1, 2], epochs=3, resume="auto")
    assert sent.points[:3] == ["train_begin", "epoch_begin", "train_batch_begin"]
    assert sent.of("train_begin")[0]["initial_epoch"] == 1
    found = [(p["epoch"], p["batch"], p["step"]) for p in sent.of("train_batch_begin")]
    assert found == [(1, 1, 3), (2, 0, 4), (2, 1, 5)]
    assert seen[0] == (2, 0)


def test_a_finished_run_is_resumed_to_nothing_or_to_more() -> None:
    """With the same epochs there is nothing to do; with more of them it goes on."""
    random.seed(1)
    first = Keeper({})
    expected = run("shuffled", first, first.model)
    second = Keeper({})
    second.saved = first.saves[-1]
    again = run("shuffled", second, second.model, resume="auto")
    assert {k: again[k] for k in ("model", "history", "end", "steps")} == {
        k: expected[k] for k in ("model", "history", "end", "steps")
    }


def test_the_position_is_plain() -> None:
    """It is made of what JSON takes, but for the random states of array libraries."""
    keeper = Keeper({})
    random.seed(1)
    run("validated", keeper, keeper.model)
    for save in keeper.saves:
        position = copy.deepcopy(save["loop"])
        for states in position["random"].values():
            if states:
                states.pop("numpy", None)
                states.pop("torch", None)
        assert json.loads(json.dumps(position)) == position


def test_a_position_of_another_kind_is_refused() -> None:
    """Another version, missing and unknown keys are named; only fit(resume=) takes one."""
    keeper = Keeper({})
    loop = Loop(lambda batch: None)
    with pytest.raises(RuntimeError, match="has not run yet"):
        loop.state_dict()
    loop.attach(keeper)
    loop.fit([1])
    good = keeper.saves[-1]
    with pytest.raises(RuntimeError, match="before its train_begin"):
        loop.load_state_dict(good["loop"])
    keeper.saved = {**good, "loop": {**good["loop"], "version": 99}}
    with pytest.raises(ValueError, match="is of version 99; this release reads version 1"):
        loop.fit([1], resume="auto")
    keeper.saved = {
        **good,
        "loop": {k: v for k, v in good["loop"].items() if k != "batch"} | {"x": 1},
    }
    with pytest.raises(ValueError, match=r"lacks \['batch'\] and has \['x'\]"):
        loop.fit([1], resume="auto")


def test_resuming_where_there_is_nothing_begins_afresh() -> None:
    """``resume="auto"`` without a checkpoint is a first run."""
    keeper = Keeper({})
    loop = Loop(lambda batch: None)
    loop.attach(keeper)
    assert loop.fit([1], epochs=2, resume="auto").epochs == [0, 1]


def test_a_hand_written_loop_resumes_too() -> None:
    """``epochs(resume=...)`` yields the open epoch first, ``batches`` what is left of it."""
    random.seed(1)

    def train(keeper: Keeper, resume: object) -> Any:
        loop = Loop()
        loop.attach(keeper)
        model = keeper.model
        with loop:
            for _ in loop.epochs(3, resume=resume):
                for batch in loop.batches(Shuffled()):
                    model["w"] = model.get("w", 0.0) * 0.9 + batch * random.random()
                    loop.log(loss=model["w"])
        assert loop.history is not None
        return dict(model), loop.history.to_dict(), random.random()

    whole = Keeper({})
    expected = train(whole, resume=False)
    for kill_at in (3, 5, 6, 8, 12):
        random.seed(1)
        first = Keeper({}, kill_at)
        with pytest.raises(Stop):
            train(first, resume=False)
        second = Keeper({})
        second.saved = first.saves[-1]
        assert train(second, resume=True) == expected


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_random_states_of_libraries_go_along(library: str) -> None:
    """What is loaded is captured and put back."""
    from lifecycle import randomness

    if library == "numpy":
        numpy = pytest.importorskip("numpy")
        draw: Callable[[], float] = numpy.random.rand
    else:
        torch = pytest.importorskip("torch")

        def draw() -> float:
            return float(torch.rand(()))

    draw()
    states = randomness.capture()
    expected = [draw(), random.random()]
    randomness.restore(states)
    assert [draw(), random.random()] == expected


def test_the_state_of_a_torch_loader_is_exact() -> None:
    """A shuffling DataLoader, which draws a seed at iter(), goes on with the same batches."""
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    def train(keeper: Keeper, resume: object) -> list[float]:
        loop = Loop(lambda batch: {"loss": batch.float().sum() * torch.rand(())})
        loop.attach(keeper)
        numbers: Any = list(range(12))
        loader: Any = DataLoader(numbers, batch_size=3, shuffle=True)
        loop.fit(loader, epochs=3, resume=resume)
        assert loop.history is not None
        return loop.history["loss"]

    torch.manual_seed(3)
    expected = train(Keeper({}), resume=False)
    for kill_at in (2, 4, 5, 7):
        torch.manual_seed(3)
        first = Keeper({}, kill_at)
        with pytest.raises(Stop):
            train(first, resume=False)
        torch.manual_seed(99)
        second = Keeper({})
        second.saved = first.saves[-1]
        assert train(second, resume=True) == expected


def test_a_hand_written_epoch_of_so_many_steps_resumes() -> None:
    """``steps`` counts the batches that the broken run had of the epoch already."""
    first = Keeper({}, kill_at=2)
    loop = Loop()
    loop.attach(first)

    def train(loop: Loop, resume: object) -> list[int]:
        done = []
        with loop:
            for _ in loop.epochs(1, resume=resume):
                for batch in loop.batches(range(10), steps=3):
                    loop.log(loss=batch)
                    done.append(batch)
        return done

    with pytest.raises(Stop):
        train(loop, resume=False)
    second = Keeper({})
    second.saved = first.saves[-1]
    later = Loop()
    later.attach(second)
    assert train(later, resume=True) == [2]
    assert later.history is not None
    assert later.history["loss"] == [1.0]


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_run_killed_on_its_way_to_a_final_stop_ends_as_it_would_have(by_hand: bool) -> None:
    """The epoch that the stop has cut is ended with the means of its batches."""

    def train(keeper: Keeper, resume: object) -> Any:
        loop = Loop(lambda batch: {"loss": batch})
        loop.connect("train_batch_end", lambda loop: loop.stop("enough"), at=[3])
        loop.attach(keeper)
        if by_hand:
            with loop:
                for _ in loop.epochs(3, resume=resume):
                    for batch in loop.batches([1, 2, 3]):
                        loop.log(loss=batch)
        else:
            loop.fit([1, 2, 3], epochs=3, resume=resume)
        assert loop.history is not None
        return loop.history.to_dict(), loop.history.outcome

    whole = Keeper({})
    expected = train(whole, resume=False)
    assert expected == ({"loss": [2.0, 1.0]}, "stopped")
    first = Keeper({}, kill_at=5)
    with pytest.raises(Stop):
        train(first, resume=False)
    second = Keeper({})
    second.saved = first.saves[-1]
    assert train(second, resume=True) == expected
