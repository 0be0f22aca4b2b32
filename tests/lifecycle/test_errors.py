"""What comes out when something fails, and what is still sent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lifecycle import Loop

Tracer = Callable[[Loop], Any]


class BoomError(Exception):
    """The error of these tests."""


def failing(at: int, error: BaseException, loop: list[Loop]) -> Callable[[int], dict[str, float]]:
    def step(batch: int) -> dict[str, float]:
        if loop[0].state.step == at:
            raise error
        return {"loss": 1.0}

    return step


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (BoomError("x"), "failed"),
        (KeyboardInterrupt(), "interrupted"),
        (SystemExit(3), "interrupted"),
        (MemoryError(), "failed"),
    ],
)
def test_an_error_in_a_step(error: BaseException, outcome: str, trace: Tracer) -> None:
    """exception, then train_end once; the error itself comes out, with a note that says where."""
    box: list[Loop] = []
    loop = Loop(failing(7, error, box))
    box.append(loop)
    sent = trace(loop)
    with pytest.raises(type(error)) as caught:
        loop.fit([0, 1, 2, 3], epochs=3)
    assert caught.value is error
    assert error.__notes__ == ["raised in the step at epoch 1, batch 3"]
    assert sent.points[-3:] == ["train_batch_begin", "exception", "train_end"]
    assert sent.points.count("train_end") == 1
    (told,) = sent.of("exception")
    assert (told["error"], told["stage"]) == (error, "train")
    assert told["where"] == "in the step at epoch 1, batch 3"
    (end,) = sent.of("train_end")
    assert (end["outcome"], end["error"]) == (outcome, error)
    assert end["logs"] == {"loss": 1.0}
    assert loop.state.outcome == outcome
    assert not loop.state.settled
    assert not loop.state.running


def test_the_traceback_is_the_steps_own() -> None:
    """The innermost frame is where it was raised, and it has no other cause or context."""

    def step(batch: int) -> None:
        raise BoomError

    with pytest.raises(BoomError) as caught:
        Loop(step).fit([1])
    assert caught.traceback[-1].name == "step"
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_an_error_in_the_data(trace: Tracer) -> None:
    """It is heard of, and the note says that a batch was being drawn."""

    def data() -> Iterator[int]:
        yield 1
        raise BoomError

    loop = Loop(lambda batch: None)
    sent = trace(loop)
    with pytest.raises(BoomError) as caught:
        loop.fit(lambda epoch: data())
    assert caught.value.__notes__ == ["raised while drawing epoch 0, batch 1"]
    assert sent.points[-3:] == ["train_batch_end", "exception", "train_end"]
    assert loop.state.settled
    assert loop.state.steps_done == 1


@pytest.mark.parametrize(
    ("point", "where"),
    [
        ("train_begin", "at train_begin"),
        ("epoch_begin", "at epoch 0"),
        ("train_batch_begin", "at train_batch_begin of epoch 0, batch 0"),
        ("train_batch_end", "at train_batch_end of epoch 0, batch 0"),
        ("test_begin", "at validation of epoch 0"),
        ("test_batch_end", "at test_batch_end of validation of epoch 0, batch 0"),
        ("epoch_end", "at epoch 0"),
    ],
)
def test_an_error_in_a_subscriber(point: str, where: str, trace: Tracer) -> None:
    """At whatever point, the stages that have begun are ended, and the notes say who and where."""

    def bad(**payload: Any) -> None:
        raise BoomError

    loop = Loop(lambda batch: {"loss": 1.0}, lambda batch: {"loss": 1.0})
    sent = trace(loop)
    loop.connect(point, bad, priority="LOWEST", name="bad")  # after the trace has heard of it
    with pytest.raises(BoomError) as caught:
        loop.fit([1], validation_data=[2])
    notes = "\n".join(caught.value.__notes__)
    assert "bad" in notes
    assert point in notes
    assert f"raised {where}" in notes
    assert sent.points.count("exception") == 1
    assert sent.points[-1] == "train_end"
    begun = {p.removesuffix("_begin") for p in sent.points if p in ("train_begin", "test_begin")}
    assert begun == {p.removesuffix("_end") for p in sent.points if p in ("train_end", "test_end")}


def test_every_subscriber_gets_the_end(caplog: pytest.LogCaptureFixture, trace: Tracer) -> None:
    """Another's failing there does not keep it away; the first error comes out, the rest noted."""
    first, heard = BoomError("first"), []

    def bad(**payload: Any) -> None:
        raise ValueError("late")

    box: list[Loop] = []
    loop = Loop(failing(0, first, box))
    box.append(loop)
    sent = trace(loop)
    loop.connect("exception", bad, priority="HIGHEST")
    loop.connect("train_end", bad, priority="HIGHEST")
    loop.connect("train_end", lambda outcome: heard.append(outcome))
    with caplog.at_level(logging.ERROR, "lifecycle"), pytest.raises(BoomError) as caught:
        loop.fit([1])
    assert caught.value is first
    assert heard == ["failed"]
    assert sent.points[-2:] == ["exception", "train_end"]
    assert first.__notes__[1:] == [
        "then, at exception: ValueError: late",
        "then, at train_end: ValueError: late",
    ]
    assert [record.exc_info is not None for record in caplog.records] == [True, True]


def test_a_failure_at_the_end_alone_comes_out_as_itself(trace: Tracer) -> None:
    """One failing subscriber of train_end: its error, no group."""
    heard = []

    def bad() -> None:
        raise BoomError

    loop = Loop(lambda batch: None)
    loop.connect("train_end", bad)
    loop.connect("train_end", lambda outcome: heard.append(outcome))
    with pytest.raises(BoomError):
        loop.fit([1])
    assert heard == ["completed"]
    assert not loop.state.running


def test_several_failures_at_the_end_come_as_a_group() -> None:
    """An ExceptionGroup, where no error came first and two subscribers failed."""

    def bad() -> None:
        raise BoomError

    def worse() -> None:
        raise ValueError

    loop = Loop(lambda batch: None)
    loop.connect("train_end", bad)
    loop.connect("train_end", worse)
    with pytest.raises(ExceptionGroup, match="2 subscribers of train_end failed") as caught:
        loop.fit([1])
    assert [type(e) for e in caught.value.exceptions] == [BoomError, ValueError]


def test_a_ctrl_c_at_the_end_is_not_hidden_in_a_group(caplog: pytest.LogCaptureFixture) -> None:
    """``except KeyboardInterrupt`` must work; the other failure is logged and noted."""

    def bad() -> None:
        raise BoomError("b")

    def interrupt() -> None:
        raise KeyboardInterrupt

    loop = Loop(lambda batch: None)
    loop.connect("train_end", bad)
    loop.connect("train_end", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        loop.fit([1])
    assert "then, at train_end: BoomError: b" in caught.value.__notes__
    assert len(caplog.records) == 1


def test_an_error_in_a_nested_stage_is_told_once(trace: Tracer) -> None:
    """Validation that fails ends both stages with one exception point."""

    def test(batch: int) -> None:
        raise BoomError

    loop = Loop(lambda batch: None, test)
    sent = trace(loop)
    with pytest.raises(BoomError) as caught:
        loop.fit([1], validation_data={"clean": [1]})
    assert sent.points[-3:] == ["exception", "test_end", "train_end"]
    assert sent.of("test_end")[0]["outcome"] == sent.of("train_end")[0]["outcome"] == "failed"
    where = "raised in the step at validation of epoch 0 on 'clean', batch 0"
    assert caught.value.__notes__ == [where]


def test_a_caught_error_of_an_evaluation_leaves_the_run_alone(trace: Tracer) -> None:
    """Where a subscriber catches it, the run goes on, with its counters as before."""

    def test(batch: int) -> None:
        raise BoomError

    def look(batch: int) -> None:
        with pytest.raises(BoomError):
            loop.evaluate([1, 2])

    loop = Loop(lambda batch: {"loss": 1.0}, test)
    sent = trace(loop)
    loop.connect("train_batch_end", look)
    assert loop.fit([1, 2]).outcome == "completed"
    assert sent.points.count("exception") == 2
    assert sent.of("test_end")[0]["outcome"] == "failed"


@pytest.mark.parametrize("kind", ["test", "predict"])
def test_evaluation_and_prediction_end_too(kind: str, trace: Tracer) -> None:
    """Their end is sent, with the outcome and the error."""

    def step(batch: int) -> None:
        raise BoomError

    loop = Loop(None, step, step)
    sent = trace(loop)
    with pytest.raises(BoomError) as caught:
        (loop.evaluate if kind == "test" else loop.predict)([1])
    assert sent.points[-2:] == ["exception", f"{kind}_end"]
    assert sent.of(f"{kind}_end")[0]["outcome"] == "failed"
    title = "test" if kind == "test" else "prediction"
    assert caught.value.__notes__ == [f"raised in the step at {title} batch 0"]


def test_a_generator_exit_is_not_told_as_an_exception(trace: Tracer) -> None:
    """The one BaseException without an exception point; the end is sent all the same."""

    def step(batch: int) -> None:
        raise GeneratorExit

    loop = Loop(step)
    heard: list[str] = []
    loop.connect(["exception", "train_end"], lambda signal: heard.append(signal))
    with pytest.raises(GeneratorExit):
        loop.fit([1])
    assert heard == ["train_end"]


def test_a_loop_is_usable_after_a_failure() -> None:
    """The next run begins anew."""
    box: list[Loop] = []
    loop = Loop(failing(1, BoomError(), box))
    box.append(loop)
    for _ in range(2):
        with pytest.raises(BoomError):
            loop.fit([1, 2])
    assert loop.fit([1])["loss"] == [1.0]
