"""stop, stop_epoch, skip_batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from lifecycle import Loop, StopRequest

Tracer = Callable[[Loop], Any]


def step(batch: float) -> dict[str, float]:
    return {"loss": float(batch)}


@pytest.mark.parametrize("listening", [True, False])
@pytest.mark.parametrize(
    ("point", "steps", "epochs", "partial"),
    [
        ("train_begin", 0, 0, []),
        ("epoch_begin", 0, 1, [True]),
        ("train_batch_begin", 1, 1, [True]),
        ("train_batch_end", 1, 1, [True]),
        ("epoch_end", 3, 1, [False]),
    ],
)
def test_after_a_stop_no_further_batch_starts(
    point: str, steps: int, epochs: int, partial: list[bool], listening: bool, trace: Tracer
) -> None:
    """Wherever it is asked for, what has begun is ended and nothing else begins."""
    done = []
    loop = Loop(lambda batch: done.append(batch))
    sent = trace(loop) if listening else None
    loop.connect(point, lambda loop: loop.stop("enough"), once=True)
    history = loop.fit([1, 2, 3], epochs=3)
    assert len(done) == steps
    assert len(history) == epochs
    assert history.outcome == "stopped"
    assert history.reasons == ("enough",)
    if sent is not None:
        assert [p["partial"] for p in sent.of("epoch_end")] == partial
        assert sent.points[-1] == "train_end"
        assert sent.of("stop_requested")[0]["reason"] == "enough"


def test_a_stop_from_the_step_itself() -> None:
    """The batch under way is finished; no other starts."""

    def train(batch: int) -> dict[str, int]:
        loop.stop()
        return {"loss": batch}

    loop = Loop(train)
    assert loop.fit([1, 2, 3], epochs=2)["loss"] == [1.0]


def test_requests_add_up_and_name_who_asked(trace: Tracer) -> None:
    """Reasons and requesters are in the payload of train_end and on the state."""
    loop = Loop(step)
    sent = trace(loop)

    @loop.on("train_batch_end")
    def first() -> None:
        loop.stop("a")

    @loop.on("train_batch_end")
    def second() -> None:
        loop.stop("b", final=False)
        assert loop.state.stopping

    loop.fit([1, 2])
    (end,) = sent.of("train_end")
    assert end["outcome"] == "stopped"
    assert [(r.reason, r.final) for r in end["reasons"]] == [("a", True), ("b", False)]
    assert end["reasons"][0].requester.endswith("first")
    assert list(end["reasons"]) == loop.state.requests
    assert loop.state.reasons == ("a", "b")
    assert not loop.state.stopping
    assert str(StopRequest("", "me")) == "asked by me"


def test_an_interruption_is_an_outcome_of_its_own(trace: Tracer) -> None:
    """What comes from outside of the run ends it as interrupted, whoever else asked."""
    loop = Loop(step)
    sent = trace(loop)
    loop.connect("train_batch_end", lambda: loop.stop("done"))
    loop.connect("train_batch_end", lambda: loop.stop("SIGTERM", interrupt=True))
    history = loop.fit([1, 2])
    assert history.outcome == loop.state.outcome == "interrupted"
    assert [r.final for r in sent.of("train_end")[0]["reasons"]] == [True, False]


def test_the_next_run_is_not_stopped_by_the_last_ones_requests() -> None:
    """A request holds for the run it was made in; one made at rest for the next."""
    loop = Loop(step)
    loop.connect("train_batch_end", lambda: loop.stop(), once=True)
    assert loop.fit([1, 2]).outcome == "stopped"
    assert loop.fit([1, 2]).outcome == "completed"
    loop.stop("before it began")
    assert loop.fit([1, 2]).outcome == "stopped"
    assert loop.state.steps_done == 0
    assert loop.fit([1, 2]).outcome == "completed"


def test_a_stop_from_another_thread() -> None:
    """It acts before the next batch starts."""
    done = []

    def train(batch: int) -> None:
        done.append(batch)
        if batch == 3:
            thread = threading.Thread(target=loop.stop, args=("other",))
            thread.start()
            thread.join()

    loop = Loop(train)
    loop.fit(range(10))
    assert done == [0, 1, 2, 3]


def test_validation_of_a_broken_epoch_is_skipped_unless_asked_for(trace: Tracer) -> None:
    """``validate_on_stop`` has it run all the same, whole."""
    for asked in (False, True):
        loop = Loop(step, step)
        sent = trace(loop)
        loop.connect("train_batch_end", lambda loop: loop.stop())
        history = loop.fit([1, 2], validation_data=[5, 7], validate_on_stop=asked)
        assert ("val_loss" in history) is asked
        assert sent.points.count("test_batch_end") == 2 * asked
        assert sent.of("epoch_end")[0]["partial"] is True


def test_a_stop_in_the_last_batch_leaves_a_whole_epoch(trace: Tracer) -> None:
    """Where nothing is missing from the epoch, it is not partial; a skipped validation is."""
    for validation in (None, [1]):
        loop = Loop(step, step)
        sent = trace(loop)
        loop.connect("train_batch_end", lambda loop: loop.stop(), at=[1])
        loop.fit([1, 2], epochs=2, validation_data=validation)
        assert [p["partial"] for p in sent.of("epoch_end")] == [validation is not None]


def test_a_stop_within_validation_ends_it(trace: Tracer) -> None:
    """No further test batch starts; half a validation is not in the epoch's logs."""
    loop = Loop(step, step)
    sent = trace(loop)
    loop.connect("test_batch_end", lambda: loop.stop("now"))
    history = loop.fit([1], epochs=2, validation_data=[1, 2])
    assert sent.points.count("test_batch_end") == 1
    (end,) = sent.of("test_end")
    assert end["outcome"] == "stopped"
    assert [r.reason for r in end["reasons"]] == ["now"]
    assert history.to_dict() == {"loss": [1.0]}
    assert sent.of("epoch_end")[0]["partial"] is True


def test_an_evaluation_asked_for_after_a_stop_runs(trace: Tracer) -> None:
    """A subscriber of train_end may evaluate though the run was stopped."""
    found = []
    loop = Loop(step, step)
    loop.connect("train_batch_end", lambda: loop.stop())
    loop.connect("train_end", lambda: found.append(loop.evaluate([4])))
    loop.fit([1, 2])
    assert found == [{"loss": 4.0}]


def test_stop_epoch_goes_on_with_the_next(trace: Tracer) -> None:
    """The epoch is partial, validated, and the run is not stopped."""
    loop = Loop(step, step)
    sent = trace(loop)
    loop.connect("train_batch_end", loop.stop_epoch, when=lambda batch: batch == 1)
    history = loop.fit([1, 2, 3], epochs=2, validation_data=[4])
    assert [p["batch"] for p in sent.of("train_batch_end")] == [0, 1, 0, 1]
    assert [p["partial"] for p in sent.of("epoch_end")] == [True, True]
    assert history.to_dict() == {"loss": [1.5, 1.5], "val_loss": [4.0, 4.0]}
    assert history.outcome == "completed"


def test_stop_epoch_at_its_begin_runs_no_batch() -> None:
    """An epoch that is cut before its first batch has no means, and no warning."""
    loop = Loop(step)
    loop.connect("epoch_begin", loop.stop_epoch, at=[0])
    assert loop.fit([1, 2], epochs=2)["loss"] == [None, 1.5]


def test_stop_epoch_ends_the_innermost_pass() -> None:
    """Within an evaluation it ends that, and the epoch around it goes on."""
    loop = Loop(step, step)
    loop.connect("test_batch_end", lambda: loop.stop_epoch())
    loop.connect("train_batch_end", lambda logs: logs.update(loop.evaluate([8, 9])))
    history = loop.fit([1, 3])
    assert history["loss"] == [2.0]
    with pytest.raises(RuntimeError, match="stop_epoch: no epoch or other pass"):
        loop.stop_epoch()


def test_a_batch_skipped_at_its_begin_is_not_stepped(trace: Tracer) -> None:
    """Its end says so, and its metrics do not count."""
    done = []

    def train(batch: float) -> dict[str, float]:
        done.append(batch)
        return step(batch)

    loop = Loop(train)
    sent = trace(loop)
    loop.connect("train_batch_begin", loop.skip_batch, when=lambda data: data == 2)
    assert loop.fit([1, 2, 3])["loss"] == [2.0]
    assert done == [1, 3]
    assert [p["skipped"] for p in sent.of("train_batch_end")] == [False, True, False]
    assert [p["step"] for p in sent.of("train_batch_end")] == [0, 1, 2]


@pytest.mark.parametrize("listening", [True, False])
def test_a_batch_skipped_by_its_step_does_not_count(listening: bool, trace: Tracer) -> None:
    """Neither what the step logged nor what it returned is averaged."""

    def train(batch: int) -> dict[str, float]:
        loop.log(own=batch)
        if batch == 2:
            loop.skip_batch()
        return step(batch)

    loop = Loop(train)
    sent = trace(loop) if listening else None
    assert loop.fit([1, 2, 3]).to_dict() == {"own": [2.0], "loss": [2.0]}
    if sent is not None:
        assert [p["skipped"] for p in sent.of("train_batch_end")] == [False, True, False]
        assert sent.of("train_batch_end")[1]["logs"] == {}


def test_skipping_where_there_is_no_batch_is_refused() -> None:
    """At rest, between batches, and once a batch has ended."""
    loop = Loop(step)
    with pytest.raises(RuntimeError, match="skip_batch: no epoch or other pass"):
        loop.skip_batch()

    def late() -> None:
        with pytest.raises(RuntimeError, match="skip_batch: no batch is under way"):
            loop.skip_batch()

    loop.connect(["epoch_begin", "train_batch_end"], late)
    loop.fit([1])


def test_max_steps_is_the_plan_and_no_stop(trace: Tracer) -> None:
    """Epochs go on until the steps are done; the run is completed."""
    loop = Loop(step)
    sent = trace(loop)
    history = loop.fit([1, 2, 3], max_steps=7)
    assert loop.state.steps_done == 7
    assert history.outcome == "completed"
    assert [p["partial"] for p in sent.of("epoch_end")] == [False, False, True]
    assert sent.of("train_begin")[0]["epochs"] is None
    assert loop.fit([1, 2, 3], max_steps=6).epochs == [0, 1]
    assert loop.fit([1, 2, 3], epochs=1, max_steps=6).epochs == [0]
    assert loop.fit([1], max_steps=0).epochs == []


def test_max_time_stops_at_the_first_batch_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is looked at between batches; the outcome is stopped, for a reason."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def train(batch: int) -> None:
        now[0] += 1

    loop = Loop(train, step)
    history = loop.fit([1, 2, 3], max_time=4.5, validation_data=[1])
    assert loop.state.steps_done == 5
    assert history.outcome == "stopped"
    assert history.reasons == ("max_time of 4.5 seconds is over",)
    assert [r.final for r in loop.state.requests] == [False]
    loop.connect("test_batch_end", lambda: now.__setitem__(0, now[0] + 10))
    history = loop.fit([1, 2], epochs=3, max_time=5, validation_data=[1, 2])
    assert history.epochs == [0]
    assert "val_loss" not in history
    assert loop.fit([1], max_time=0).epochs == []


def test_a_stop_at_the_begin_of_a_lone_pass() -> None:
    """No batch of an evaluation or a prediction starts."""
    loop = Loop(None, step, lambda batch: batch)
    loop.connect(["test_begin", "predict_begin"], lambda loop: loop.stop())
    assert loop.evaluate([1, 2]) == {}
    assert loop.predict([1, 2]) == []
    assert loop.state.outcome == "stopped"


def test_validation_by_steps_after_a_stop() -> None:
    """Where it is due at the very step of the stop, it runs only if asked for."""
    for asked in (False, True):
        loop = Loop(step, step)
        loop.connect("train_batch_end", lambda loop: loop.stop(), at=[1])
        history = loop.fit(
            [1, 2, 3], validation_data=[4], validation_every_steps=2, validate_on_stop=asked
        )
        assert ("val_loss" in history) is asked


@pytest.mark.parametrize(
    ("arguments", "total"),
    [
        ({"epochs": 3}, 6),
        ({"max_steps": 5}, 5),
        ({"epochs": 1, "max_steps": 5}, 2),
        ({"epochs": 2, "steps_per_epoch": 1}, 2),
        ({"max_time": 0}, None),
    ],
)
def test_the_length_of_the_run(arguments: dict[str, Any], total: int | None) -> None:
    """``total_steps`` follows from the plan, where it can be known."""
    loop = Loop(step)
    loop.fit([1, 2], **arguments)
    assert loop.state.total_steps == total


def test_actions_for_afterwards() -> None:
    """They are done once all subscribers of the point had their turn; elsewhere refused."""
    done: list[str] = []
    loop = Loop(step)
    with pytest.raises(RuntimeError, match="afterwards is for subscribers of"):
        loop.afterwards(lambda: None)
    loop.connect("train_batch_end", lambda: loop.afterwards(lambda: done.append("saved")))
    loop.connect("train_batch_end", lambda: done.append("last"), priority="LOWEST")
    loop.fit([1, 2])
    assert done == ["last", "saved"] * 2
