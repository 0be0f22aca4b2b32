"""fit, evaluate and predict: the points they send, and what they return."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from eventbus import Bus
from lifecycle import EarlyStopping, History, Logs, Loop, bus

Tracer = Callable[[Loop], Any]


def step(batch: float) -> dict[str, float]:
    return {"loss": float(batch)}


def test_fit_sends_the_points_of_a_run_in_order(trace: Tracer) -> None:
    """Train points enclose epochs, epochs their batches, and validation comes before epoch_end."""
    loop = Loop(step, step)
    sent = trace(loop)
    loop.fit([1, 2], epochs=2, validation_data=[3])
    batch = ["train_batch_begin", "train_batch_end"]
    test = ["test_begin", "test_batch_begin", "test_batch_end", "test_end"]
    epoch = ["epoch_begin", *batch, *batch, *test, "epoch_end"]
    assert sent.points == ["train_begin", *epoch, *epoch, "train_end"]


def test_the_counters_say_which_unit_it_is(trace: Tracer) -> None:
    """``batch`` counts within the epoch, ``step`` over the run, all from 0."""
    loop = Loop(step)
    sent = trace(loop)
    loop.fit([1, 2], epochs=2)
    for point in ("train_batch_begin", "train_batch_end"):
        found = [(p["epoch"], p["batch"], p["step"]) for p in sent.of(point)]
        assert found == [(0, 0, 0), (0, 1, 1), (1, 0, 2), (1, 1, 3)]


@pytest.mark.parametrize("listening", [True, False])
def test_state_describes_the_unit_that_just_ended(listening: bool) -> None:
    """At ends the indices are the finished unit's and the counts have it counted."""
    seen: list[tuple[Any, ...]] = []

    def look() -> None:
        s = loop.state
        seen.append((s.epoch, s.batch, s.step, s.epochs_done, s.batches_done, s.steps_done))

    loop = Loop(lambda batch: look())
    assert loop.state.batch == loop.state.step == loop.state.update == -1
    loop.connect(["train_begin", "epoch_begin", "epoch_end", "train_end"], look)
    if listening:
        loop.connect("train_batch_end", look)
    loop.fit([1, 2], epochs=2)
    expected = [
        (-1, -1, -1, 0, 0, 0),
        (0, -1, -1, 0, 0, 0),
        (0, 0, 0, 0, 0, 0),
        (0, 0, 0, 0, 1, 1),
        (0, 1, 1, 0, 1, 1),
        (0, 1, 1, 0, 2, 2),
        (0, 1, 1, 1, 2, 2),
        (1, -1, 1, 1, 0, 2),
        (1, 0, 2, 1, 0, 2),
        (1, 0, 2, 1, 1, 3),
        (1, 1, 3, 1, 1, 3),
        (1, 1, 3, 1, 2, 4),
        (1, 1, 3, 2, 2, 4),
        (1, 1, 3, 2, 2, 4),
    ]
    if not listening:
        expected = [e for i, e in enumerate(expected) if i not in {3, 5, 9, 11}]
    assert seen == expected
    assert loop.state.stage is None
    assert loop.state.outcome == "completed"
    assert "at rest: epoch 1, batch 1, step 3" in repr(loop)


def test_fit_returns_the_history() -> None:
    """The history is that of the loop, with the epochs' means and the outcome."""
    loop = Loop(step, lambda batch: {"loss": batch * 2.0})
    history = loop.fit([1, 3], epochs=2, validation_data=[5])
    assert isinstance(history, History)
    assert history is loop.history
    assert history.to_dict() == {"loss": [2.0, 2.0], "val_loss": [10.0, 10.0]}
    assert history.epochs == [0, 1]
    assert history.outcome == "completed"


def test_subscribers_see_the_epoch_in_the_history() -> None:
    """A user's subscriber of epoch_end finds this epoch there; its additions are kept."""
    seen = []
    loop = Loop(step)

    def look(logs: Logs) -> None:
        assert loop.history is not None
        seen.append(loop.history["loss"])
        logs["extra"] = 1

    loop.connect("epoch_end", look)
    history = loop.fit([1], epochs=2)
    assert seen == [[1.0], [1.0, 1.0]]
    assert history["extra"] == [1, 1]


def test_no_epochs_is_a_run_all_the_same(trace: Tracer) -> None:
    """With nothing to do, train_begin and train_end are sent."""
    loop = Loop(step)
    sent = trace(loop)
    loop.fit([1], epochs=0)
    loop.fit([1], epochs=2, initial_epoch=2)
    assert sent.points == ["train_begin", "train_end"] * 2


def test_a_run_can_begin_at_a_later_epoch(trace: Tracer) -> None:
    """``epochs`` is the index after the last one; the counters of the loop go on."""
    loop = Loop(step)
    loop.fit([1, 2], epochs=2)
    sent = trace(loop)
    history = loop.fit([1, 2], epochs=3, initial_epoch=2)
    assert [p["epoch"] for p in sent.of("epoch_begin")] == [2]
    assert [p["step"] for p in sent.of("train_batch_begin")] == [4, 5]
    assert history.epochs == [2]


def test_a_loop_runs_again_from_the_start(trace: Tracer) -> None:
    """After a run has ended, fit begins anew with fresh counters and history."""
    loop = Loop(step)
    sent = trace(loop)
    first, second = loop.fit([1, 2]), loop.fit([3])
    assert [p["step"] for p in sent.of("train_batch_begin")] == [0, 1, 0]
    assert (first["loss"], second["loss"]) == ([1.5], [3.0])


def test_evaluate_returns_the_means(trace: Tracer) -> None:
    """Means of the metrics, and what subscribers add at test_end."""
    loop = Loop(test_step=step)
    sent = trace(loop)
    loop.connect("test_end", lambda logs: logs.update(auc=0.5))
    assert loop.evaluate([1, 2, 6], steps=2) == {"loss": 1.5, "auc": 0.5}
    assert sent.points == [
        "test_begin",
        *["test_batch_begin", "test_batch_end"] * 2,
        "test_end",
    ]
    assert sent.of("test_begin")[0]["steps"] == 2
    assert sent.of("test_end")[0]["epoch"] is None


def test_evaluate_takes_several_sets() -> None:
    """A mapping of names gives metrics by set."""
    loop = Loop(test_step=step)
    assert loop.evaluate({"clean": [1], "noisy": [2]}) == {"clean_loss": 1.0, "noisy_loss": 2.0}


def test_predict_returns_what_the_step_makes(trace: Tracer) -> None:
    """One output for each batch, None included; subscribers see them in outputs and logs."""
    loop = Loop(predict_step=lambda batch: None if batch == 2 else batch * 10)
    sent = trace(loop)
    assert loop.predict([1, 2, 3]) == [10, None, 30]
    assert [p["outputs"] for p in sent.of("predict_batch_end")] == [10, None, 30]
    assert sent.of("predict_batch_end")[0]["logs"] == {"outputs": 10}
    assert sent.points[0] == "predict_begin"
    assert loop.predict(iter([4, 5]), steps=1) == [40]


def test_outputs_are_what_the_step_returned(trace: Tracer) -> None:
    """``outputs`` at a batch's end is the very object."""
    result = {"loss": 1.0}
    loop = Loop(lambda batch: result)
    sent = trace(loop)
    loop.fit([1])
    assert sent.of("train_batch_end")[0]["outputs"] is result


@pytest.mark.parametrize("value", [1.0, [1], "loss", (1, 2)])
def test_a_step_returns_a_mapping_or_none(value: object) -> None:
    """Anything else is a TypeError that names the type."""
    kind = type(value).__name__
    with pytest.raises(TypeError, match=f"a train step must return a mapping.*not {kind}"):
        Loop(lambda batch: value).fit([1])
    with pytest.raises(TypeError, match=f"a test step must return a mapping.*not {kind}"):
        Loop(test_step=lambda batch: value).evaluate([1])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"epochs": -1}, ValueError, "epochs must be at least 0, not -1"),
        ({"epochs": 1.5}, TypeError, "epochs must be an int, not 1.5"),
        ({"epochs": True}, TypeError, "epochs must be an int, not True"),
        ({"initial_epoch": None}, TypeError, "initial_epoch must be an int, not None"),
        ({"steps_per_epoch": 0}, ValueError, "steps_per_epoch must be at least 1, not 0"),
        ({"validation_steps": "2"}, TypeError, "validation_steps must be an int, not '2'"),
        ({"validation_freq": 0}, ValueError, "validation_freq must be at least 1"),
        ({"validation_freq": None}, TypeError, "validation_freq must be an int"),
        ({"validation_freq": "2"}, TypeError, "validation_freq must be an int, not '2'"),
        ({"validation_every_steps": -1}, ValueError, "validation_every_steps must be at least 1"),
        ({"max_steps": 2.0}, TypeError, "max_steps must be an int"),
        ({"max_time": "1h"}, TypeError, "max_time must be a number of seconds, not '1h'"),
        ({"max_time": -1}, ValueError, "max_time must be at least 0 seconds"),
        ({"validation_data": 3}, TypeError, "validation_data must be an iterable of batches"),
        ({"validation_data": {"a": 3}}, TypeError, r"validation_data\['a'\] must be an iterable"),
        ({"resume": "auto"}, ValueError, "resume='auto' needs something attached"),
        ({"subscribers": [object()]}, TypeError, "has nothing to attach"),
    ],
)
def test_a_wrong_argument_is_told_before_anything_is_sent(
    arguments: dict[str, Any], error: type[Exception], message: str, trace: Tracer
) -> None:
    """Each wrong argument of fit is refused by name, and the loop stays usable."""
    loop = Loop(step, step)
    sent = trace(loop)
    with pytest.raises(error, match=message):
        loop.fit([1], **arguments)
    assert sent == []
    assert loop.fit([1])["loss"] == [1.0]


@pytest.mark.parametrize(("data", "kind"), [(3, "int"), (None, "NoneType")])
def test_data_must_be_iterable(data: Any, kind: str) -> None:
    """Data that is neither iterable nor a function is refused by its type."""
    for use in (Loop(step).fit, Loop(test_step=step).evaluate):
        if data is not None or use.__name__ == "fit":
            with pytest.raises(TypeError, match=f"data must be an iterable of batches.*not {kind}"):
                use(data)


def test_what_has_no_step_cannot_run() -> None:
    """Each use names the step that is missing."""
    with pytest.raises(RuntimeError, match="fit needs a train_step"):
        Loop().fit([1])
    with pytest.raises(RuntimeError, match="validation_data needs a test_step"):
        Loop(step).fit([1], validation_data=[1])
    with pytest.raises(RuntimeError, match="evaluate needs a test_step"):
        Loop().evaluate([1])
    with pytest.raises(RuntimeError, match="predict needs a predict_step"):
        Loop().predict([1])
    with pytest.raises(TypeError, match="test_step must be a function of the batch, not 3"):
        Loop(step, 3)  # type: ignore[arg-type]


def test_evaluate_and_predict_from_inside_a_subscriber(trace: Tracer) -> None:
    """They run within fit; the state and the open epoch are as before when they return."""
    found: list[Any] = []
    loop = Loop(step, step, lambda batch: batch)
    sent = trace(loop)

    def look(batch: int) -> None:
        found.append((loop.evaluate([10, 20]), loop.predict([7])))
        assert (loop.state.stage, loop.state.batch, loop.state.step) == ("train", batch, batch)

    loop.connect("train_batch_end", look)
    history = loop.fit([1, 2])
    assert found == [({"loss": 15.0}, [7])] * 2
    assert history.to_dict() == {"loss": [1.5]}
    assert sent.points.count("test_end") == 2


def test_fit_inside_itself_is_refused() -> None:
    """A subscriber, a step and an evaluation cannot start another fit of the same loop."""
    loop = Loop(step, step)
    told = []

    def again() -> None:
        with pytest.raises(
            RuntimeError, match=r"in the middle of t.*cannot train inside of itself"
        ):
            loop.fit([1])
        with pytest.raises(RuntimeError, match="cannot train inside of itself"):
            next(iter(loop.epochs(1)))
        told.append(loop.state.stage)

    loop.connect(["epoch_begin", "test_begin"], again)
    loop.fit([1], validation_data=[1])
    loop.evaluate([1])
    assert told == ["train", "test", "test"]


def test_two_loops_in_two_threads_do_not_disturb_each_other() -> None:
    """On one bus, each loop's subscribers hear their own loop alone, and all counts are right."""
    heard: dict[int, list[tuple[Loop, int]]] = {0: [], 1: []}
    loops = [Loop(step), Loop(step)]
    for n, loop in enumerate(loops):
        loop.connect(
            "train_batch_end", lambda loop, step, n=n: heard[n].append((loop, step)), name=f"n{n}"
        )
    start = threading.Barrier(2)

    def run(loop: Loop) -> None:
        start.wait()
        loop.fit(range(500), epochs=2)

    threads = [threading.Thread(target=run, args=(loop,)) for loop in loops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, loop in enumerate(loops):
        assert heard[n] == [(loop, number) for number in range(1000)]


def test_one_loop_in_two_threads_is_refused() -> None:
    """A loop that runs in one thread cannot be run from another meanwhile."""
    errors: list[BaseException] = []

    def other() -> None:
        for use in (lambda: loop.fit([1]), lambda: loop.evaluate([1])):
            try:
                use()
            except RuntimeError as error:
                errors.append(error)

    def train(batch: int) -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    loop = Loop(train, step)
    loop.fit([1])
    assert len(errors) == 2
    assert all("running in another thread" in str(error) for error in errors)


def test_guests_of_fit_are_gone_after_it() -> None:
    """What fit is given in ``subscribers`` hears that run alone, also when it fails."""

    class Guest:
        heard = 0

        def on_train_batch_end(self, batch: int, logs: Logs) -> None:
            self.heard += 1

    loop, guest = Loop(step), Guest()
    loop.fit([1, 2], subscribers=[guest])
    loop.fit([1, 2])
    assert guest.heard == 2
    with pytest.raises(ValueError, match="could not convert"):
        loop.fit([1, "x"], subscribers=[guest])
    before = guest.heard
    loop.fit([1])
    assert guest.heard == before


def test_attach_and_detach() -> None:
    """One handle for several objects; detach disconnects one; what is not attached says so."""

    class Watch:
        def __init__(self) -> None:
            self.heard = 0

        def on_epoch_end(self) -> None:
            self.heard += 1

    one, two = Watch(), Watch()
    loop = Loop(step)
    group = loop.attach(one, two)
    loop.fit([1])
    loop.detach(one)
    loop.fit([1])
    group.disconnect()
    loop.fit([1])
    assert (one.heard, two.heard) == (1, 2)
    with pytest.raises(ValueError, match="is not attached to this loop"):
        loop.detach(one)
    with pytest.raises(TypeError, match="attach takes the objects"):
        loop.attach()


def test_attach_is_all_or_nothing() -> None:
    """If one of several objects cannot be attached, none is."""

    class Watch:
        def on_epoch_end(self) -> None: ...

    loop = Loop(step)
    with pytest.raises(TypeError, match="nothing to attach"):
        loop.attach(Watch(), object())
    assert loop.subscriptions == ()


class Counting:
    """A subscriber with a state."""

    def __init__(self) -> None:
        self.count = 0

    def on_epoch_end(self) -> None:
        self.count += 1

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


def test_subscribers_with_a_state_are_known_by_name() -> None:
    """``loop.subscribers`` has them, those of the bus included, under their names."""
    mine, everyones = Counting(), Counting()
    loop = Loop(step)
    with bus.scope():
        bus.attach(everyones, name="everyones")
        loop.attach(mine)
        assert loop.subscribers == {"everyones": everyones, "Counting": mine}


def test_two_states_of_one_name_are_refused() -> None:
    """A checkpoint could not tell them apart; a name does."""
    loop = Loop(step)
    loop.attach(Counting())
    with pytest.raises(ValueError, match="two subscribers are named 'Counting'"):
        loop.attach(Counting())
    loop.attach(Counting(), name="second")
    assert set(loop.subscribers) == {"Counting", "second"}
    with bus.scope():
        bus.attach(Counting())
        with pytest.raises(ValueError, match="two subscribers are named 'Counting'"):
            _ = loop.subscribers


def test_a_loop_of_ones_own_bus() -> None:
    """A loop sends on the bus it was given, and not on the default one."""
    own, heard = Bus(sender="loop"), []
    loop = Loop(step, bus=own)
    own.connect("epoch_end", lambda loop: heard.append(loop))
    loop.fit([1])
    assert heard == [loop]
    assert Loop(step).bus is bus


def test_points_of_ones_own() -> None:
    """A declared point is sent with its filters and payload; counters are the loop's."""
    own, heard = Bus(sender="loop"), []
    own.declare("policy_update", payload=("reward",), count="step")
    loop = Loop(lambda batch: loop.send("policy_update", reward=batch * 10), bus=own)
    loop.on("policy_update", every=2)(lambda reward, step: heard.append((reward, step)))
    loop.fit(range(4))
    assert heard == [(10, 1), (30, 3)]
    with pytest.raises(TypeError, match="reward"):
        loop.send("policy_update")


def test_what_is_connected_to_a_loop_dies_with_it() -> None:
    """A loop and its subscribers are freed once nobody holds them, without a collection."""
    gc.collect()
    gc.disable()
    try:
        loop = Loop(step)
        owner = Counting()
        loop.attach(owner)
        loop.fit([1])
        gone = weakref.ref(loop), weakref.ref(owner)
        del loop, owner
        gc.collect()
        assert [ref() for ref in gone] == [None, None]
    finally:
        gc.enable()


def test_order_shows_who_runs_when() -> None:
    """``loop.order`` lists who hears this loop, in the order of the calls."""
    loop = Loop(step)
    loop.connect("epoch_end", lambda: None, name="late", priority="LOW")
    loop.connect("epoch_end", lambda: None, name="early", priority="HIGH")
    assert [each.name for each in loop.subscriptions] == ["early", "late"]
    assert str(loop.order("epoch_end")).index("early") < str(loop.order("epoch_end")).index("late")


def test_connected_lasts_as_long_as_the_block() -> None:
    """Also when the block is left by an error."""
    heard = []
    loop = Loop(step)

    def block() -> None:
        with loop.connected("epoch_end", lambda epoch: heard.append(epoch)):
            loop.fit([1])
            raise KeyError

    with pytest.raises(KeyError):
        block()
    loop.fit([1])
    assert heard == [0]


@pytest.mark.parametrize("number", [1, 2])
def test_connecting_takes_effect_from_inside(number: int) -> None:
    """A subscriber connected, muted or disconnected within a send takes part from the next."""
    heard = []
    loop = Loop(step)
    subs = {}

    def change(batch: int) -> None:
        if batch == 0:
            subs["late"] = loop.connect("train_batch_end", lambda batch: heard.append(batch))
        elif batch == 2:
            subs["late"].mute() if number == 1 else subs["late"].disconnect()
        elif batch == 4 and number == 1:
            subs["late"].unmute()

    loop.connect("train_batch_end", change, priority="HIGH")
    loop.fit(range(7))
    assert heard == ([1, 4, 5, 6] if number == 1 else [1])


def test_the_package_hands_out_what_it_names() -> None:
    """Every public name can be had from the package; another is an AttributeError."""
    import lifecycle

    for name in lifecycle.__all__:
        assert getattr(lifecycle, name).__class__ is not None
        assert name in dir(lifecycle)
    assert lifecycle.testing.assert_well_formed([]) is None
    with pytest.raises(AttributeError, match="has no attribute 'Lop'"):
        _ = lifecycle.Lop


def test_readable_reprs() -> None:
    """Points, states and loops show what they are."""
    loop = Loop(step)
    seen = []
    loop.connect("train_batch_end", lambda loop: loop.stop())
    loop.connect("train_batch_end", lambda loop: seen.append(repr(loop.state)))
    loop.fit([1])
    assert seen == ["<State train: epoch 0, batch 0, step 0, stopping>"]
    assert repr(bus.signal("epoch_end").payload) in "('epoch', 'logs', 'partial')"
    from lifecycle import POINTS

    assert repr(POINTS[0]).startswith("<Point train_begin(logs, epochs")


def test_steps_may_be_methods_of_a_subclass() -> None:
    """A subclass brings its steps as methods; a function that is given comes before them."""

    class Ours(Loop):
        def train_step(self, batch: Any) -> Any:
            return {"loss": float(batch)}

    assert Ours().fit([1, 3])["loss"] == [2.0]
    assert Ours(lambda batch: {"loss": 0.0}).fit([1, 3])["loss"] == [0.0]


def test_subscribers_are_several() -> None:
    """One object in place of several is refused before anything is sent."""
    with pytest.raises(TypeError, match="subscribers must be several objects"):
        Loop(step).fit([1], subscribers=EarlyStopping("loss"))  # type: ignore[arg-type]


def test_a_negative_batch_size_is_refused() -> None:
    """A weight below 0 would turn the means around."""
    with pytest.raises(ValueError, match="batch_size must be at least 0, not -3"):
        Loop(lambda batch: {"loss": 1.0, "batch_size": -3}).fit([1])
