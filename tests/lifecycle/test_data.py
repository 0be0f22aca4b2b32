"""Where batches come from."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lifecycle import Loop

Tracer = Callable[[Loop], Any]


def step(batch: float) -> dict[str, float]:
    return {"loss": float(batch)}


def test_an_iterable_begins_anew_in_each_epoch() -> None:
    """Every epoch has its first batches, and no more than steps_per_epoch."""
    done: list[int] = []
    Loop(done.append).fit([1, 2, 3], epochs=2, steps_per_epoch=2)
    assert done == [1, 2, 1, 2]


def test_an_iterator_goes_on_from_epoch_to_epoch() -> None:
    """Not a batch is lost between epochs, and none is drawn that is not used."""
    source = iter(range(10))
    done: list[int] = []
    Loop(done.append).fit(source, epochs=3, steps_per_epoch=2)
    assert done == [0, 1, 2, 3, 4, 5]
    assert next(source) == 6


def test_endless_data() -> None:
    """An endless iterable is cut by steps_per_epoch, max_steps or a stop."""
    loop = Loop(step)
    loop.fit(itertools.count(), epochs=2, steps_per_epoch=3)
    assert loop.state.steps_done == 6
    loop.fit(itertools.count(), max_steps=4)
    assert loop.state.steps_done == 4


def test_an_iterator_that_runs_out_ends_the_run_in_order(trace: Tracer) -> None:
    """A clear warning, the epoch is partial, the run is stopped, all ends are sent."""
    loop = Loop(step)
    sent = trace(loop)
    message = "data ran out after 1 of 2 batches of epoch 1; it is an iterator"
    with pytest.warns(RuntimeWarning, match=message) as warned:
        history = loop.fit(iter([1, 2, 3]), epochs=4, steps_per_epoch=2)
    assert warned[0].filename == __file__
    assert history.epochs == [0, 1]
    assert history.outcome == "stopped"
    assert sent.points[-1] == "train_end"


def test_an_iterator_without_steps_has_one_epoch() -> None:
    """A generator given for several epochs is told to be none, after the first."""
    loop = Loop(step)
    with pytest.warns(RuntimeWarning, match="data ran out after 2 batches of epoch 0"):
        assert loop.fit((n for n in (1, 2)), epochs=3).epochs == [0]
    assert loop.fit(n for n in (1, 2)).outcome == "completed"


def test_a_function_of_the_epoch() -> None:
    """It is called with the epoch, and what it returns is that epoch's data."""
    done: list[int] = []
    Loop(done.append).fit(lambda epoch: (epoch * 10 + n for n in range(2)), epochs=3)
    assert done == [0, 1, 10, 11, 20, 21]
    with pytest.raises(TypeError, match=r"data\(0\) must return an iterable of batches, not int"):
        Loop(step).fit(lambda epoch: 3)  # type: ignore[arg-type, return-value]


def test_data_shorter_than_steps_per_epoch_is_told_once() -> None:
    """The epochs are as long as the data, with one warning."""
    loop = Loop(step)
    with pytest.warns(RuntimeWarning, match="has 2 batches, fewer than steps_per_epoch=5") as told:
        history = loop.fit([1, 2], epochs=3, steps_per_epoch=5)
    assert len(told) == 1
    assert history.outcome == "completed"
    assert history["loss"] == [1.5, 1.5, 1.5]


def test_an_epoch_without_a_batch(trace: Tracer) -> None:
    """A warning; its points are sent; there are no means, and no NaN."""
    loop = Loop(step, step)
    sent = trace(loop)
    with pytest.warns(RuntimeWarning, match="epoch 0 had not a single batch: data is empty"):
        history = loop.fit([], validation_data=[2])
    assert sent.points[:2] == ["train_begin", "epoch_begin"]
    assert history.rows == [{"val_loss": 2.0}]
    assert loop.evaluate([]) == {}
    with pytest.warns(RuntimeWarning, match="not a single batch"):
        assert loop.fit([], max_steps=3).outcome == "stopped"


class Sampler:
    def __init__(self) -> None:
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


class Loader(list[int]):
    sampler: Any = None
    batch_sampler: Any = None


def test_samplers_are_told_the_epoch() -> None:
    """The data, its sampler and its batch_sampler, each once; validation data too."""
    loader, validation = Loader([1, 2]), Loader([1])
    loader.sampler = loader.batch_sampler = Sampler()
    validation.batch_sampler = Sampler()
    Loop(step, step).fit(loader, epochs=2, initial_epoch=0, validation_data=validation)
    assert loader.sampler.epochs == [0, 1]
    assert validation.batch_sampler.epochs == [0, 1]

    class Own(Loader, Sampler):
        def __init__(self) -> None:
            Loader.__init__(self, [1])
            Sampler.__init__(self)

    own = Own()
    Loop(step).fit(own, epochs=3)
    assert own.epochs == [0, 1, 2]


class Unsized:
    """Like torch's loader of an iterable data set: a length that cannot be told."""

    def __iter__(self) -> Iterator[int]:
        return iter([1, 2])

    def __len__(self) -> int:
        raise TypeError


@pytest.mark.parametrize(
    ("data", "given", "steps"),
    [
        ([1, 2, 3], None, 3),
        ([1, 2, 3], 2, 2),
        (Unsized(), None, None),
        (Unsized(), 2, 2),
        (iter([1, 2]), None, None),
        (lambda epoch: [1, 2], None, None),
    ],
)
def test_the_length_of_an_epoch(data: Any, given: int | None, steps: int | None) -> None:
    """``steps_per_epoch`` is known where the data has a length or it was given."""
    seen = []
    loop = Loop(step)
    loop.connect("epoch_begin", lambda steps_per_epoch: seen.append(steps_per_epoch))
    loop.fit(data, steps_per_epoch=given)
    assert seen == [steps]
    assert loop.state.steps_per_epoch == steps


def test_old_style_sequences_are_iterable() -> None:
    """What has ``__getitem__`` alone can be iterated, so it is data."""

    class Sequence:
        def __getitem__(self, index: int) -> int:
            if index > 1:
                raise IndexError
            return index

    assert Loop(step).fit(Sequence())["loss"] == [0.5]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("freq", "validated"), [(1, [0, 1, 2, 3]), (2, [1, 3]), ([0, 2], [0, 2]), (range(3, 9), [3])]
)
def test_validation_freq(freq: Any, validated: list[int], trace: Tracer) -> None:
    """Every n-th epoch, or the epochs (0-based) of a collection."""
    loop = Loop(step, step)
    sent = trace(loop)
    history = loop.fit([1], epochs=4, validation_data=[1, 2], validation_freq=freq)
    assert [p["epoch"] for p in sent.of("test_begin")] == validated
    expected = [1.5 if epoch in validated else None for epoch in range(4)]
    assert history["val_loss"] == expected


def test_validation_steps_and_several_sets(trace: Tracer) -> None:
    """Each set has its own test stage and prefix, and at most so many batches."""
    loop = Loop(step, step)
    sent = trace(loop)
    history = loop.fit([1], validation_data={"a": [1, 9], "b": [3, 9]}, validation_steps=1)
    assert history.rows == [{"loss": 1.0, "val_a_loss": 1.0, "val_b_loss": 3.0}]
    assert [(p["name"], p["steps"]) for p in sent.of("test_begin")] == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("counts", [range(3, 10, 2), {3, 5, 7, 9}, [9, 7, 5, 3]])
def test_validation_after_counts_of_steps(counts: Any) -> None:
    """A collection says after how many steps to validate: a start, an interval, a last time."""
    loop, seen = Loop(lambda batch: None, lambda batch: None), []
    loop.connect("test_begin", lambda loop: seen.append(loop.state.steps_done))
    loop.fit(range(4), epochs=3, validation_data=[1], validation_every_steps=counts)
    assert seen == [3, 5, 7, 9]


def test_what_test_end_adds_is_in_the_epochs_logs() -> None:
    """A metric over the whole set, added at test_end, arrives under its prefix."""
    loop = Loop(step, step)
    loop.connect("test_end", lambda logs: logs.update(auc=0.75))
    assert loop.fit([1], validation_data=[1])["val_auc"] == [0.75]


def test_validation_every_steps(trace: Tracer) -> None:
    """In the middle of epochs, between batches, and not at their ends besides."""
    loop = Loop(step, step)
    sent = trace(loop)
    loop.fit([1, 2, 3], epochs=2, validation_data=[5], validation_every_steps=2)
    steps, found = [], []
    for point, payload in sent:
        if point == "train_batch_end":
            steps.append(payload["step"])
        elif point == "test_begin":
            found.append(steps[-1])
    assert found == [1, 3, 5]
    assert [p["logs"] for p in sent.of("epoch_end")] == [{"val_loss": 5.0, "loss": 2.0}] * 2


def test_validation_data_is_one_shot_at_ones_own_risk() -> None:
    """An iterator for validation is used up by the first epoch."""
    loop = Loop(step, step)
    history = loop.fit([1], epochs=2, validation_data=iter([4]))
    assert history["val_loss"] == [4.0, None]
