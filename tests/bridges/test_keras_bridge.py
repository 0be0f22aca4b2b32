"""Keras as sender, with the standard subscribers on a Keras model."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from process import needs

needs("keras", "numpy")

if "KERAS_BACKEND" not in os.environ:
    try:
        needs("jax")
    except pytest.skip.Exception:
        os.environ["KERAS_BACKEND"] = "torch"
    else:
        os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

from eventbus import Bus
from eventbus.testing import record
from lifecycle import (
    EMA,
    Checkpoint,
    EarlyStopping,
    GracefulShutdown,
    Loop,
    ReduceOnPlateau,
    Schedule,
)
from lifecycle.bridges.keras import KerasBridge, use
from lifecycle.bridges.keras_batches import BatchMetrics
from lifecycle.bridges.keras_objects import KerasModel
from lifecycle.points import declare
from lifecycle.testing import assert_well_formed

pytestmark = pytest.mark.filterwarnings(  # what NumPy 2.4 says of Keras's torch backend
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)

INPUTS = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
TARGETS = INPUTS.sum(axis=1, keepdims=True)


@pytest.fixture
def bus() -> Bus:
    return declare(Bus(sender="loop"))


def compiled(**more: Any) -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"], **more)
    return model


def fit(model: Any, *callbacks: Any, **options: Any) -> Any:
    options = {"epochs": 3, "batch_size": 8, "verbose": 0, "shuffle": False, **options}
    if "validation_data" not in options:
        options["validation_data"] = (INPUTS[:16], TARGETS[:16])
    return model.fit(INPUTS, TARGETS, callbacks=list(callbacks), **options)


def weights(model: Any) -> list[Any]:
    return list(KerasModel(model).state_dict().values())


def same(one: list[Any], other: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_additions_to_logs_reach_the_history_and_later_callbacks(bus: Bus) -> None:
    """What a subscriber puts into epoch logs is in Keras's History and in callbacks after it."""
    seen = []
    bus.connect("epoch_end", lambda logs: logs.update(gap=logs["val_loss"] - logs["loss"]))
    bus.connect("train_batch_end", lambda logs: logs.update(extra=1.0))
    later = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(logs["extra"])
    )
    history = fit(compiled(), KerasBridge(bus), later, epochs=2).history
    assert history["gap"] == [
        v - t for v, t in zip(history["val_loss"], history["loss"], strict=True)
    ]
    assert seen == [1.0] * 10
    assert set(history) == {"loss", "mae", "val_loss", "val_mae", "gap"}


def test_batches_have_their_own_values_and_the_means_of_keras(bus: Bus) -> None:
    """Logs of a batch hold its own metrics, `mean` what Keras tells; epochs what History has."""
    own, means, told = [], [], []
    bus.connect("train_batch_end", lambda logs: own.append((logs["loss"], logs["mae"], logs["lr"])))
    bus.connect("train_batch_end", lambda logs: means.append(logs.mean("loss")))
    keep = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: told.append(logs["loss"])
    )
    bridge = KerasBridge(bus)
    history = fit(compiled(), bridge, keep).history
    assert means == told
    for epoch in range(3):
        losses = [loss for loss, _, _ in own[epoch * 5 : epoch * 5 + 5]]
        assert np.mean(losses) == pytest.approx(history["loss"][epoch], rel=1e-5)
    assert {round(rate, 6) for _, _, rate in own} == {0.05}
    assert bridge.loop.history is not None
    assert bridge.loop.history["val_mae"] == history["val_mae"]
    assert bridge.loop.history["lr"] == pytest.approx([0.05] * 3)


def test_metrics_that_are_no_means_stay_as_keras_tells_them(bus: Bus) -> None:
    """A root of a mean has no value for one batch: the running one stays, the loss is its own."""
    found: list[Any] = []
    model = compiled()
    model.compile("sgd", "mse", metrics=[keras.metrics.RootMeanSquaredError(name="rmse")])
    bus.connect("train_batch_end", lambda logs: found.append((logs["loss"], logs["rmse"])))
    bus.connect("train_batch_end", lambda logs: found.append(logs.mean("rmse")))
    fit(model, KerasBridge(bus), epochs=1, validation_data=None)
    pairs, running = found[::2], found[1::2]
    assert [rmse for _, rmse in pairs] == running
    assert [loss for loss, _ in pairs] != pytest.approx([rmse**2 for _, rmse in pairs])


def test_joining_within_an_epoch_gives_the_batch_s_own_values(bus: Bus) -> None:
    """Who connects after some batches sees the same values as one who was there all along."""
    whole, late = [], []
    with bus.connected("train_batch_end", lambda step, logs: whole.append((step, logs["loss"]))):
        fit(compiled(), KerasBridge(bus), epochs=1)

    def join(self: Any, batch: int, logs: Any = None) -> None:
        if batch == 1:
            bus.connect("train_batch_end", lambda step, logs: late.append((step, logs["loss"])))

    joining = type("Join", (keras.callbacks.Callback,), {"on_train_batch_end": join})()
    fit(compiled(), KerasBridge(bus), joining, epochs=1)
    assert late == [(step, pytest.approx(loss, rel=1e-4)) for step, loss in whole[2:]]


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="Keras has it not on torch")
def test_steps_per_execution(bus: Bus) -> None:
    """Batches come in groups; the last one ends where the data does, not where Keras says."""
    sent: list[Any] = []
    bus.connect("train_batch_begin", lambda batch: sent.append(batch))
    bus.connect("train_batch_end", lambda batch, step: sent.append((batch, step)))
    bridge = KerasBridge(bus)
    fit(compiled(steps_per_execution=3), bridge, epochs=2, validation_data=None)
    assert sent == [0, (2, 2), 3, (4, 4), 0, (2, 7), 3, (4, 9)]
    assert bridge.loop.state.steps_done == 10


def test_initial_epoch_and_lengths_are_in_the_payload(bus: Bus) -> None:
    """train_begin says where the run begins and how long it will be; test_begin its steps."""
    begins: list[Any] = []
    bus.connect(
        "train_begin",
        lambda epochs, initial_epoch, steps_per_epoch: begins.append(
            (epochs, initial_epoch, steps_per_epoch)
        ),
    )
    bus.connect("test_begin", lambda steps, epoch: begins.append((steps, epoch)))
    fit(compiled(), KerasBridge(bus), initial_epoch=2)
    assert begins == [(3, 2, 5), (2, 2)]


def test_nobody_listening_costs_no_work_at_batches(bus: Bus, monkeypatch: Any) -> None:
    """Without listeners to batches no metric is read, and Keras makes no threads for us."""
    threads: set[threading.Thread] = set()
    before = set(threading.enumerate())  # those of other tests' frameworks
    monkeypatch.setattr(BatchMetrics, "_sums", lambda self, logs: pytest.fail("read"))
    bus.connect("epoch_end", lambda: threads.update(threading.enumerate()))
    fit(compiled(), KerasBridge(bus))
    assert not any("ThreadPool" in thread.name for thread in threads - before)


def test_a_failing_generator_is_heard_of(bus: Bus) -> None:
    """keras#12309: exception and train_end are sent once, and the error comes out as itself."""
    error = ValueError("no more data")

    def data() -> Iterator[Any]:
        for _ in range(8):  # Keras draws some before anyone hears of the run
            yield INPUTS[:8], TARGETS[:8]
        raise error

    bridge = KerasBridge(bus)
    with record(bus) as sent, pytest.raises(ValueError, match="no more data") as caught:
        compiled().fit(
            data(), steps_per_epoch=3, epochs=4, shuffle=False, verbose=0, callbacks=[bridge]
        )
    assert caught.value is error
    assert sent.points[-2:] == ["exception", "train_end"]
    assert sent[-1][1]["outcome"] == "failed"
    assert_well_formed(sent)
    assert not bridge.loop.state.running


def test_the_same_bridge_runs_again_after_a_failure(bus: Bus) -> None:
    """A run that failed leaves nothing behind that the next one stumbles on."""
    bridge, model = KerasBridge(bus), compiled()
    with bus.connected("train_batch_end", lambda: 1 / 0), pytest.raises(ZeroDivisionError):
        fit(model, bridge)
    with record(bus) as sent:
        fit(model, bridge)
        model.evaluate(INPUTS, TARGETS, verbose=0, callbacks=[bridge])
        model.predict(INPUTS, verbose=0, callbacks=[bridge])
    assert_well_formed(sent)
    assert [point for point in sent.points if point.endswith("t_end")] == [
        *["test_end"] * 4,
        "predict_end",
    ]
    assert sent.values("outcome") == ["completed"] * 6


def test_a_stop_by_a_keras_callback_is_a_request(bus: Bus) -> None:
    """model.stop_training set by another callback ends the run as stopped, with that reason."""
    early = keras.callbacks.EarlyStopping("loss", patience=0, min_delta=1e9)
    with record(bus, "train_end") as sent:
        fit(compiled(), KerasBridge(bus), early)
    assert sent[0][1]["outcome"] == "stopped"
    assert str(sent[0][1]["reasons"][0]) == "model.stop_training was set"


def test_checkpoint_resumes_fit_at_the_right_epoch(bus: Bus, tmp_path: Path) -> None:
    """A run that is killed after two epochs and resumed ends with the same weights and history."""
    whole = compiled()
    through = fit(whole, epochs=4).history

    bridge = KerasBridge(bus)
    bridge.loop.attach(Checkpoint(tmp_path))
    fit(compiled(), bridge, epochs=2)

    resumed, again = compiled(), KerasBridge(bus, resume="auto")
    again.loop.attach(Checkpoint(tmp_path))
    history = fit(resumed, again, epochs=4).history
    assert history["loss"] == through["loss"][2:]
    assert same(weights(resumed), weights(whole))
    assert again.loop.history is not None
    assert again.loop.history["loss"] == through["loss"]
    assert again.loop.state.steps_done == 20
    assert resumed._initial_epoch is None


def test_checkpoint_of_a_broken_epoch_runs_it_again(bus: Bus, tmp_path: Path) -> None:
    """Keras cannot begin within an epoch: a run stopped in one goes on with that whole epoch."""
    bridge = KerasBridge(bus)
    bridge.loop.attach(Checkpoint(tmp_path, steps=1))
    bridge.loop.connect("train_batch_end", lambda loop: loop.stop("time", final=False), at=7)
    fit(compiled(), bridge, validation_data=None)
    again = KerasBridge(bus, resume="auto")
    again.loop.attach(Checkpoint(tmp_path))
    with record(bus, "epoch_begin", "train_batch_end") as sent:
        fit(compiled(), again, validation_data=None)
    assert [payload["epoch"] for point, payload in sent if point == "epoch_begin"] == [1, 2]
    assert sent.values("step") == list(range(5, 15))


def test_early_stopping_restores_the_best_weights(bus: Bus) -> None:
    """The weights and the optimizer are put back to those of the best epoch."""
    kept: dict[int, Any] = {}
    bridge, model = KerasBridge(bus), compiled()
    stopping = EarlyStopping("val_loss", patience=1, restore_best=True)
    bridge.loop.attach(
        stopping, Schedule(lambda epoch: 0.05 if epoch < 2 else 5.0, "optimizer", "lr")
    )
    bridge.loop.connect("epoch_end", lambda epoch: kept.update({epoch: weights(model)}))
    fit(model, bridge, epochs=10)
    assert stopping.best_epoch in kept
    assert len(kept) < 10
    assert same(weights(model), kept[stopping.best_epoch])


def test_plateau_lowers_the_rate_of_the_model(bus: Bus) -> None:
    """ReduceOnPlateau sets the optimizer's rate, which the logs of later epochs show."""
    bridge, model = KerasBridge(bus), compiled()
    bridge.loop.attach(ReduceOnPlateau(patience=1, min_delta=1e9, factor=0.5))
    fit(model, bridge)
    assert bridge.loop.history is not None
    assert bridge.loop.history["lr"] == pytest.approx([0.05, 0.05, 0.025])
    assert bridge.loop.objects["optimizer"].lr == pytest.approx(0.0125)


def test_ema_is_in_place_for_validation_and_gone_after_it(bus: Bus) -> None:
    """Validation runs with the average; training goes on with the weights it had."""
    seen: dict[str, Any] = {}
    bridge, model = KerasBridge(bus), compiled()
    bridge.loop.attach(EMA("model", decay=0.9))
    for point in ("train_batch_end", "test_batch_end", "epoch_end"):
        bridge.loop.connect(
            point, lambda signal, loop: seen.update({signal: loop.objects["model"].state_dict()})
        )
    trained = compiled()
    fit(trained, epochs=1)
    fit(model, bridge, epochs=1)
    for path, value in seen["train_batch_end"].items():
        assert np.array_equal(seen["epoch_end"][path], value)
    assert any(
        not np.array_equal(seen["test_batch_end"][path], value)
        for path, value in seen["train_batch_end"].items()
    )
    assert same(weights(model), weights(trained))


def test_a_change_of_weights_in_a_batch_takes_effect(bus: Bus) -> None:
    """keras#19054: weights set at a batch's end are what the next batch trains."""
    bridge, model = KerasBridge(bus), compiled()

    def zero(loop: Loop) -> None:
        state = loop.objects["model"].state_dict()
        loop.objects["model"].load_state_dict({path: 0 * value for path, value in state.items()})

    bridge.loop.connect("train_batch_end", zero)
    fit(model, bridge, epochs=1, validation_data=None)
    assert all(not each.any() for each in weights(model))


def test_graceful_shutdown_ends_fit_and_lets_the_interrupt_out(bus: Bus) -> None:
    """Ctrl-C lets the batch finish, sends the ends, and comes out of fit as KeyboardInterrupt."""
    bridge = KerasBridge(bus)
    bridge.loop.attach(GracefulShutdown())
    bridge.loop.connect(
        "train_batch_begin", lambda: signal.raise_signal(signal.SIGINT), at=6, priority="HIGHEST"
    )
    with (
        record(bus, "epoch_end", "train_end", "train_batch_end") as sent,
        pytest.raises(KeyboardInterrupt),
    ):
        fit(compiled(), bridge, validation_data=None)
    assert sent.points[-3:] == ["train_batch_end", "epoch_end", "train_end"]
    assert sent[-1][1]["outcome"] == "interrupted"
    assert sent.values("step")[-1] == 6


@pytest.mark.parametrize("name", ["fit", "evaluate", "predict", "epochs", "batches", "skip_batch"])
def test_what_keras_does_itself_is_refused_by_name(bus: Bus, name: str) -> None:
    """The facade says what it cannot do, and what to do instead."""
    with pytest.raises(RuntimeError, match=rf"loop\.{name} is not to be had here: Keras runs"):
        getattr(KerasBridge(bus).loop, name)()


def test_the_facade_gives_model_optimizer_and_params(bus: Bus) -> None:
    """Subscribers reach what Keras has; a model that is called returns no gradients."""
    bridge, model = KerasBridge(bus, objects={"teacher": 1}), compiled()
    fit(model, bridge)
    loop = bridge.loop
    assert loop.model is model
    assert loop.optimizer is model.optimizer
    assert loop.params["epochs"] == 3
    assert loop.objects["teacher"] == 1
    assert np.asarray(loop.objects["model"](INPUTS)).shape == (40, 1)
    assert loop.objects["model"].count_params() == model.count_params()
    loop.objects["optimizer"].learning_rate = 0.5
    assert loop.objects["optimizer"].lr == 0.5


def test_attach_knows_keras_callbacks() -> None:
    """loop.attach(callback) gives it a model, params and Keras's order, and detaches it."""
    calls: list[Any] = []

    class Mine(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            calls.append((epoch, self.params["steps"], self.model.name, logs["loss"]))
            self.model.stop_training = epoch == 1

    model = compiled()
    loop = Loop(lambda x: {"loss": x}, objects={"model": model})
    mine = Mine()
    group = loop.attach(mine)
    loop.fit([1.0, 3.0], epochs=5)
    assert calls == [(0, 2, model.name, 2.0), (1, 2, model.name, 2.0)]
    assert loop.state.outcome == "stopped"
    assert loop.state.reasons == ("Mine set model.stop_training",)
    assert {subscription.name for subscription in group} == {"Mine"}
    loop.detach(mine)
    loop.fit([1.0], epochs=1)
    assert len(calls) == 2


def test_use_takes_objects_with_keras_s_names_and_lists_of_them() -> None:
    """Without a base class, without a model; running means at batches, as Keras gives them."""
    seen: list[Any] = []

    class Plain:
        def on_batch_end(self, batch: int, logs: Any) -> None:
            seen.append((batch, logs["loss"]))

    loop = Loop(lambda x: {"loss": x})
    use(loop, [[Plain()], keras.callbacks.CallbackList([keras.callbacks.History()])])
    loop.fit([1.0, 3.0])
    assert seen == [(0, 1.0), (1, 2.0)]


def test_a_callback_that_wants_a_model_is_told_how_to_give_it() -> None:
    """The error names the callback, what it asked for and where a model goes."""
    loop = Loop(lambda x: {"loss": x})
    loop.attach(keras.callbacks.ModelCheckpoint("x.weights.h5", save_weights_only=True))
    with pytest.raises(AttributeError, match=r"ModelCheckpoint asks its model for 'save_weights'"):
        loop.fit([1.0])
