"""The loop that the user writes."""

# ruff: noqa: PT012 -- the loops of these tests are what raises

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from lifecycle import Loop

Tracer = Callable[[Loop], Any]


class BoomError(Exception):
    """The error of these tests."""


def test_it_sends_what_fit_sends(trace: Tracer) -> None:
    """Points, payloads and history are those of fit, but for what only fit knows beforehand."""
    fitted, written = Loop(lambda b: {"loss": b}, lambda b: {"loss": b * 2}), Loop()
    expected, sent = trace(fitted), trace(written)
    fitted.fit([1, 2], epochs=2, validation_data=[3])
    with written as loop:
        for _ in loop.epochs(2):
            for batch in loop.batches([1, 2]):
                loop.log(loss=batch)
            for batch in loop.batches([3], stage="test"):
                loop.log(loss=batch * 2)
    unknown = ("steps_per_epoch", "outputs")
    for (point, payload), (same, other) in zip(expected, sent, strict=True):
        assert point == same
        for key in payload.keys() - set(unknown):
            assert payload[key] == other[key], (point, key)
    assert written.history is not None
    assert fitted.history is not None
    assert written.history.to_dict() == fitted.history.to_dict()
    assert written.history.outcome == "completed"


@pytest.mark.parametrize("managed", [True, False])
def test_break_out_of_batches_makes_the_epoch_partial(managed: bool, trace: Tracer) -> None:
    """The batch that was left is ended, the epoch is partial, and the next one goes on."""
    loop = Loop()
    sent = trace(loop)

    def run() -> None:
        for _ in loop.epochs(2):
            for batch in loop.batches([1, 2, 3]):
                loop.log(loss=batch)
                if batch == 2:
                    break

    if managed:
        with loop:
            run()
    else:
        run()
    assert [p["batch"] for p in sent.of("train_batch_end")] == [0, 1, 0, 1]
    assert [p["partial"] for p in sent.of("epoch_end")] == [True, True]
    assert [p["logs"] for p in sent.of("epoch_end")] == [{"loss": 1.5}] * 2
    assert sent.of("train_end")[0]["outcome"] == "completed"


@pytest.mark.parametrize("managed", [True, False])
def test_break_out_of_epochs_is_left(managed: bool, trace: Tracer) -> None:
    """The epoch ends, whole where its batches were, and the run's outcome is left."""
    loop = Loop()
    sent = trace(loop)

    def run() -> None:
        for epoch in loop.epochs(5):
            for _ in loop.batches([1, 2]):
                pass
            if epoch == 1:
                break

    if managed:
        with loop:
            run()
            assert "train_end" not in sent.points  # it is sent by the end of the block
    else:
        run()
    assert [p["partial"] for p in sent.of("epoch_end")] == [False, False]
    (end,) = sent.of("train_end")
    assert end["outcome"] == "left"
    assert loop.state.outcome == "left"


def test_leaving_both_loops_at_once(trace: Tracer) -> None:
    """A return out of both sends the ends of the batch, the epoch and the run, in order."""
    loop = Loop()
    sent = trace(loop)

    def search() -> int:
        with loop:
            for epoch in loop.epochs(5):
                for batch in loop.batches([1, 2]):
                    if batch == 2:
                        return epoch
        return -1

    assert search() == 0
    assert sent.points[-3:] == ["train_batch_end", "epoch_end", "train_end"]
    assert sent.of("epoch_end")[0]["partial"] is True
    assert sent.of("train_end")[0]["outcome"] == "left"


@pytest.mark.parametrize(
    ("error", "outcome"), [(BoomError(), "failed"), (KeyboardInterrupt(), "interrupted")]
)
def test_an_error_in_the_body(error: BaseException, outcome: str, trace: Tracer) -> None:
    """exception, then train_end; the open batch and epoch are not ended; it comes out as itself."""
    loop = Loop()
    sent = trace(loop)
    with pytest.raises(type(error)) as caught, loop:
        for epoch in loop.epochs(3):
            for batch in loop.batches([1, 2]):
                if (epoch, batch) == (1, 2):
                    raise error
    assert caught.value is error
    assert error.__notes__ == ["raised in the body of the loop at epoch 1, batch 1"]
    assert sent.points[-3:] == ["train_batch_begin", "exception", "train_end"]
    assert sent.of("train_end")[0]["outcome"] == outcome
    assert not loop.state.settled


def test_an_error_without_with_is_told_as_left(trace: Tracer) -> None:
    """Without ``with`` an error in the body cannot be told from a break."""
    loop = Loop()
    sent = trace(loop)

    def run() -> None:
        for _ in loop.epochs(3):
            for _batch in loop.batches([1, 2]):
                raise BoomError

    with pytest.raises(BoomError):
        run()
    assert sent.of("train_end")[0]["outcome"] == "left"
    assert "exception" not in sent.points


@pytest.mark.parametrize("managed", [True, False])
@pytest.mark.parametrize(
    "point",
    ["train_begin", "epoch_begin", "train_batch_begin", "train_batch_end", "test_end", "epoch_end"],
)
def test_an_error_in_a_subscriber(point: str, managed: bool, trace: Tracer) -> None:
    """Wherever it comes from, it passes out, after exception and the end of what has begun."""

    def bad(**payload: Any) -> None:
        raise BoomError

    loop = Loop()
    sent = trace(loop)
    loop.connect(point, bad, priority="LOWEST")

    def run() -> None:
        for _ in loop.epochs(2):
            for _ in loop.batches([1]):
                pass
            for _ in loop.batches([1], stage="test"):
                pass

    with pytest.raises(BoomError):
        if managed:
            with loop:
                run()
        else:
            run()
    assert sent.points[-1] == "train_end"
    assert sent.points.count("train_end") == 1
    assert sent.of("train_end")[0]["outcome"] == "failed"
    assert not loop.state.running


def test_errors_at_the_close_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Without ``with``, what end subscribers raise at a break can only be logged."""

    def bad() -> None:
        raise BoomError("lost")

    loop = Loop()
    loop.connect("train_end", bad)
    with caplog.at_level(logging.ERROR, "lifecycle"):
        for _ in loop.epochs(3):
            break
    assert "BoomError" in caplog.text
    with pytest.raises(BoomError), loop:
        for _ in loop.epochs(3):
            break


def test_a_stop_ends_it(trace: Tracer) -> None:
    """No further batch is yielded; all ends are sent."""
    done = []
    loop = Loop()
    sent = trace(loop)
    with loop:
        for _ in loop.epochs(3):
            for batch in loop.batches([1, 2, 3]):
                done.append(batch)
                if batch == 2:
                    loop.stop("enough")
            done += [-batch for batch in loop.batches([7], stage="test")]
    assert done == [1, 2, -7]  # the test pass was asked for after the stop
    assert sent.of("epoch_end")[0]["partial"] is True
    assert sent.of("train_end")[0]["outcome"] == "stopped"


@pytest.mark.parametrize("listening", [True, False])
def test_skipping_a_batch(listening: bool, trace: Tracer) -> None:
    """Skipped at its begin it is not yielded; in the body, ``continue`` and it does not count."""
    loop, done = Loop(), []
    sent = trace(loop) if listening else None
    loop.connect("train_batch_begin", loop.skip_batch, when=lambda data: data == 1)
    with loop:
        for _ in loop.epochs(1):
            for batch in loop.batches([1, 2, 3]):
                loop.log(loss=batch)
                done.append(batch)
                if batch == 2:
                    loop.skip_batch()
                    continue
    assert done == [2, 3]
    assert loop.history is not None
    assert loop.history["loss"] == [3.0]
    if sent is not None:
        assert [p["skipped"] for p in sent.of("train_batch_end")] == [True, True, False]


def test_stop_epoch_and_on(trace: Tracer) -> None:
    """The epoch ends early, the next one is whole."""
    loop = Loop()
    sent = trace(loop)
    with loop:
        for epoch in loop.epochs(2):
            for _ in loop.batches([1, 2]):
                if epoch == 0:
                    loop.stop_epoch()
    assert [p["partial"] for p in sent.of("epoch_end")] == [True, False]
    assert len(sent.of("train_batch_end")) == 3


def test_connecting_between_batches_takes_effect(trace: Tracer) -> None:
    """Connect, mute and disconnect in the body hold from the next send."""
    loop, heard = Loop(), []
    with loop:
        for _ in loop.epochs(1):
            for batch in loop.batches(range(6)):
                if batch == 1:
                    sub = loop.connect("train_batch_end", lambda batch: heard.append(batch))
                if batch == 2:
                    sub.mute()
                if batch == 3:
                    sub.unmute()
                if batch == 4:
                    sub.disconnect()
    assert heard == [1, 3]


def test_alone_test_and_predict_passes(trace: Tracer) -> None:
    """Outside of any epoch they are stages of their own; a break makes them left."""
    loop = Loop()
    sent = trace(loop)
    with loop:
        for batch in loop.batches([1, 2], stage="test"):
            loop.log(loss=batch)
        for _ in loop.batches([1, 2], stage="predict"):
            break
    assert sent.of("test_end")[0]["logs"] == {"loss": 1.5}
    assert sent.of("test_end")[0]["outcome"] == "completed"
    assert sent.of("predict_end")[0]["outcome"] == "left"
    for _ in loop.batches([1, 2], stage="test"):
        break  # without `with`, the close sends what is due
    assert sent.of("test_end")[1]["outcome"] == "left"
    with pytest.raises(BoomError):
        for _ in loop.batches(_failing_data(), stage="test"):
            pass
    assert sent.of("test_end")[2]["outcome"] == "failed"


def _failing_data() -> Any:
    yield 1
    raise BoomError


def test_a_named_and_a_broken_test_pass_are_in_the_epochs_logs() -> None:
    """``name=`` gives val_<name>_...; a break out of a test pass keeps what it came to."""
    with Loop() as loop:
        for _ in loop.epochs(1):
            for batch in loop.batches([1, 2, 9], stage="test", name="clean"):
                loop.log(loss=batch)
                if batch == 2:
                    break
            for batch in loop.batches([3, 4], stage="test", steps=1):
                loop.log(loss=batch)
    assert loop.history is not None
    assert loop.history.to_dict() == {"val_clean_loss": [1.5], "val_loss": [3.0]}


def test_the_means_of_training_are_there_before_validation_ends() -> None:
    """Within an epoch, the train means come before val_* in the logs."""
    with Loop() as loop:
        for _ in loop.epochs(1):
            for batch in loop.batches([1, 3]):
                loop.log(loss=batch, batch_size=batch)
            for batch in loop.batches([1], stage="test"):
                loop.log(loss=batch)
            loop.log(lr=0.5)
    assert loop.history is not None
    assert loop.history.rows == [{"loss": 2.5, "val_loss": 1.0, "lr": 0.5}]


def test_wrong_use_is_told() -> None:
    """Batches without an epoch, an unknown stage, a wrong number of epochs, epochs in epochs."""
    loop = Loop()
    with pytest.raises(RuntimeError, match="batches to train on belong to an epoch"):
        loop.batches([1])
    with pytest.raises(ValueError, match="stage must be 'train', 'test' or 'predict', not 'val'"):
        loop.batches([1], stage="val")
    with pytest.raises(TypeError, match="epochs must be an int"):
        loop.epochs("5")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="data must be an iterable"):
        loop.batches(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="steps must be at least 1"):
        loop.batches([1], steps=0)


def test_a_second_run_in_one_block_closes_the_first(trace: Tracer) -> None:
    """A run that was left is ended when the next one begins."""
    loop = Loop()
    sent = trace(loop)
    with loop:
        for _ in loop.epochs(2):
            break
        for _ in loop.epochs(1):
            pass
    assert [p["outcome"] for p in sent.of("train_end")] == ["left", "completed"]


@pytest.mark.parametrize("managed", [True, False])
def test_batches_within_batches_are_refused(managed: bool, trace: Tracer) -> None:
    """The inner pass ends the outer one's batch, so the outer one cannot go on."""
    loop = Loop()
    sent = trace(loop)

    def run() -> None:
        for _ in loop.epochs(2):
            for _ in loop.batches([1, 2]):
                for _ in loop.batches([3]):
                    pass

    with pytest.raises(RuntimeError, match="another batches"), loop if managed else nullcontext():
        run()
    batch = ["train_batch_begin", "train_batch_end"]
    assert sent.points[:6] == ["train_begin", "epoch_begin", *batch, *batch]
    assert sent.points[-1] == "train_end"


def test_batches_cannot_outlive_their_epoch(trace: Tracer) -> None:
    """An iterator that is kept over epochs is refused in the second one; nothing is sent for it."""
    loop = Loop()
    sent = trace(loop)
    with pytest.raises(RuntimeError, match="the epoch has ended"), loop:
        batches = None
        for _ in loop.epochs(2):
            batches = batches or loop.batches([1, 2, 3, 4])
            next(batches)
    assert [p["batch"] for p in sent.of("train_batch_end")] == [0]
    assert sent.of("train_end")[0]["outcome"] == "failed"


def test_batches_cannot_outlive_an_error(trace: Tracer) -> None:
    """After the run has failed, an iterator that was kept sends nothing more."""
    loop = Loop()
    sent = trace(loop)
    batches = None
    with pytest.raises(BoomError), loop:
        for _ in loop.epochs(1):
            batches = loop.batches([1, 2])
            next(batches)
            raise BoomError
    assert batches is not None
    with pytest.raises(RuntimeError, match="these batches are over"):
        next(batches)
    assert sent.points[-2:] == ["exception", "train_end"]


def test_closing_old_batches_late_disturbs_nothing(trace: Tracer) -> None:
    """Batches that were left, but held on to, as by a progress bar, may be freed at any time."""
    loop = Loop()
    sent = trace(loop)
    with loop:
        held = None
        for epoch in loop.epochs(2):
            if epoch == 0:
                held = loop.batches([1, 2])
                next(held)
                continue
            for _ in loop.batches([1, 2]):
                held = None
    assert held is None
    assert [p["partial"] for p in sent.of("epoch_end")] == [True, False]
    assert [p["batch"] for p in sent.of("train_batch_end")] == [0, 0, 1]


@pytest.mark.parametrize("managed", [True, False])
def test_epochs_within_epochs_are_refused(managed: bool, trace: Tracer) -> None:
    """The inner run ends the outer one, which says so when it is asked for its next epoch."""
    loop = Loop()
    sent = trace(loop)
    with pytest.raises(RuntimeError, match="this run is over"), loop if managed else nullcontext():
        for _ in loop.epochs(2):
            for _ in loop.epochs(1):
                pass
    assert [p["outcome"] for p in sent.of("train_end")] == ["completed", "completed"]


def test_closing_an_old_run_late_disturbs_nothing(trace: Tracer) -> None:
    """Epochs that were left, but held on to, do not end the run under way when they are freed."""
    loop = Loop()
    sent = trace(loop)
    held: Any = loop.epochs(2)
    next(held)
    for _ in loop.epochs(2):
        held = None
    assert held is None
    assert [p["epoch"] for p in sent.of("epoch_end")] == [0, 0, 1]
    assert [p["outcome"] for p in sent.of("train_end")] == ["completed", "completed"]


def test_epochs_without_end(trace: Tracer) -> None:
    """With no number given, it goes on until it is stopped."""
    loop = Loop()
    with loop:
        for epoch in loop.epochs():
            if epoch == 3:
                loop.stop()
    assert loop.history is not None
    assert loop.history.epochs == [0, 1, 2, 3]


def test_fit_within_a_block() -> None:
    """``with Loop()`` does not keep fit from being used in it."""
    with Loop(lambda b: {"loss": b}) as loop:
        assert loop.fit([1, 3])["loss"] == [2.0]
        for _ in loop.epochs(1):
            with pytest.raises(RuntimeError, match="cannot train inside of itself"):
                loop.fit([1])


@pytest.mark.parametrize("managed", [True, False])
def test_an_error_while_a_left_epoch_is_closed(managed: bool, trace: Tracer) -> None:
    """What a subscriber of epoch_end raises there comes out, or is logged; the run has ended."""

    def bad() -> None:
        raise BoomError

    loop = Loop()
    sent = trace(loop)
    loop.connect("epoch_end", bad)

    def run() -> None:
        for _ in loop.epochs(2):
            for _ in loop.batches([1, 2]):
                break
            break

    if managed:
        with pytest.raises(BoomError), loop:
            run()
    else:
        run()
    assert sent.points[-1] == "train_end"
    assert sent.of("train_end")[0]["outcome"] == "failed"


def test_a_stop_before_the_first_batch(trace: Tracer) -> None:
    """Asked for at the begin of an epoch or of a test pass, no batch of it is yielded."""
    loop, done = Loop(), []
    sent = trace(loop)
    loop.connect(["epoch_begin", "test_begin"], lambda loop: loop.stop())
    with loop:
        for _ in loop.epochs(2):
            done += list(loop.batches([1]))
        done += list(loop.batches([1], stage="test"))
    assert done == []
    assert [p["outcome"] for p in sent.of("test_end")] == ["stopped"]


def test_an_error_of_a_subscriber_of_a_lone_pass(trace: Tracer) -> None:
    """Also at its end, where the pass was gone through."""
    loop = Loop()
    sent = trace(loop)

    def bad() -> None:
        raise BoomError

    loop.connect("test_end", bad)
    with pytest.raises(BoomError):
        list(loop.batches([1], stage="test"))
    assert sent.points[-1] == "test_end"
    assert not loop.state.running


def test_a_caught_error_of_the_data_leaves_the_next_epoch_whole(trace: Tracer) -> None:
    """Where the body catches it, the batch before is not ended twice."""
    loop = Loop()
    sent = trace(loop)
    with loop:
        for epoch in loop.epochs(2):
            try:
                for batch in loop.batches(_failing_data() if epoch == 0 else [1, 2]):
                    loop.log(loss=batch)
            except BoomError:
                pass
    assert [p["partial"] for p in sent.of("epoch_end")] == [True, False]
    assert len(sent.of("train_batch_end")) == 3
