"""Keras, both ways: its ``fit`` as the sender of our points, its callbacks on our loop.

model.fit(x, y, callbacks=[KerasBridge()])     # subscribers hear Keras
use(loop, [keras.callbacks.CSVLogger("log")])  # Keras callbacks hear our loop
"""

from __future__ import annotations

import functools
import inspect
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lifecycle.bridges.facade import Facade, Given, Later
from lifecycle.bridges.keras_batches import BatchMetrics
from lifecycle.bridges.keras_callbacks import use
from lifecycle.bridges.keras_objects import KerasModel, KerasOptimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

    from eventbus import Bus
    from lifecycle.logs import Logs

__all__ = ["KerasBridge", "KerasLoop", "use"]

Told = dict[str, Any] | None
"""The logs that Keras hands to its callbacks, one dict for all of one event."""

THIS_EPOCH: Final = "this epoch"
"""Stands in ``model.stop_training``, true like any other, where only the epoch shall end."""


class KerasLoop(Facade):
    """The loop that subscribers see while Keras trains; ``bridge.loop``."""

    framework: ClassVar[str] = "Keras"
    runs_by: ClassVar[str] = "model.fit, model.evaluate or model.predict with the bridge"

    model: Any = None
    """The Keras model."""

    params: Mapping[str, Any] = {}
    """What Keras tells its callbacks: verbose, epochs, steps."""

    @property
    def optimizer(self) -> Any:
        """The model's optimizer."""
        return self.model.optimizer

    def rate(self) -> Any:
        """Return the learning rate, read when someone asks."""
        optimizer = self.objects.get("optimizer")
        if not isinstance(optimizer, KerasOptimizer) or self.model.optimizer is None:
            return None
        return Later(lambda: optimizer.learning_rate)

    def halt(self) -> None:
        """Have Keras stop; it looks after each batch, and before the first epoch."""
        model, training = self.model, self.training
        if "train" in self.state.stages:
            model.stop_training = True
            if training is not None and training.epoch is None and self.state.train is None:
                model._initial_epoch = self.params.get("epochs")  # noqa: SLF001 -- so that none runs
        if self.state.stage == "test":
            model.stop_evaluating = True
        elif self.state.stage == "predict":
            model.stop_predicting = True

    def halt_epoch(self) -> None:
        """Have Keras end the pass, and go on after it."""
        if self.state.stage == "train" and not self.model.stop_training:
            self.model.stop_training = THIS_EPOCH
        elif self.state.stage != "train":
            self.halt()


class KerasBridge:
    """A Keras callback that makes Keras the sender of our points.

    Give it to ``fit``, ``evaluate`` or ``predict`` of a Keras model (Keras 3 or later, any
    backend). Subscribers of the bus hear it; ``bridge.loop`` is the loop they see, to which
    more can be attached.

    Args:
        bus: where the points are sent; the default bus unless given.
        objects: what subscribers shall reach in ``loop.objects``, beside ``model`` and
            ``optimizer``.
        resume: what an attached Checkpoint shall restore when ``fit`` begins, as in
            `Loop.fit`. Keras begins an epoch at its first batch, so a run that was saved
            within an epoch goes on with that whole epoch.

    Raises:
        ImportError: Keras is not installed.
    """

    def __init__(
        self,
        bus: Bus | None = None,
        *,
        objects: Mapping[str, Any] | None = None,
        resume: object = False,
    ) -> None:
        _guard()
        self.loop = KerasLoop(bus, objects)
        self.resume = resume
        self._own_objects = dict(objects or {})
        self._told: MutableMapping[str, Any] = {}
        self._moved = False
        """Whether the model was told at which epoch to begin."""
        _bridges.add(self)

    # -- what Keras tells a callback of itself

    def set_params(self, params: dict[str, Any]) -> None:
        """Take the params of the run that is about to begin."""
        self.loop.params = params

    def set_model(self, model: Any) -> None:
        """Take the model."""
        if model is not self.loop.model:
            self._train, self._test = BatchMetrics(model), BatchMetrics(model)
        self.loop.model = model
        self.loop.objects = {
            "model": KerasModel(model),
            "optimizer": KerasOptimizer(model),
            **self._own_objects,
        }

    @property
    def model(self) -> Any:
        """The model."""
        return self.loop.model

    # -- training

    def on_train_begin(self, logs: Told = None) -> None:  # noqa: ARG002
        """Send ``train_begin``."""
        loop, model = self.loop, self.loop.model
        wanted = model._initial_epoch or _initial_epochs.get(model, 0)  # noqa: SLF001
        epochs = loop.params.get("epochs")
        loop.state.train = None
        first = loop.train_begins(
            epochs, loop.params.get("steps"), initial_epoch=wanted, resume=self.resume
        )
        if first != wanted and not model.stop_training:
            model._initial_epoch = first  # noqa: SLF001 -- Keras reads it next, BackupAndRestore's way
        self._moved = model._initial_epoch is not None  # noqa: SLF001

    def on_epoch_begin(self, epoch: int, logs: Told = None) -> None:  # noqa: ARG002
        """Send ``epoch_begin``."""
        self._train.reset()
        self._told = {}
        self.loop.epoch_begins(epoch, Given())

    def on_train_batch_begin(self, batch: int, logs: Told = None) -> None:  # noqa: ARG002
        """Send ``train_batch_begin``."""
        self._batch_begins(self._train, batch)

    def on_train_batch_end(self, batch: int, logs: Told = None) -> None:
        """Send ``train_batch_end``."""
        told = {} if logs is None else logs
        self._batch_ends(self._train, batch, told, steps=self.loop.state.steps_per_epoch)

    def on_epoch_end(self, epoch: int, logs: Told = None) -> None:  # noqa: ARG002
        """Send ``epoch_end``."""
        loop, told = self.loop, {} if logs is None else logs
        assert loop.training is not None
        current = loop.training.epoch
        assert current is not None
        self._look_at_flag()
        current.means.values = {  # type: ignore[attr-defined]  # a half validation's are dropped
            key: value
            for key, value in told.items()
            if not key.startswith("val_") or key in current.logs
        }
        loop.epoch_over()
        loop.training.fill(current)
        rate = loop.rate()
        if rate is not None:
            current.logs.setdefault("lr", float(rate))
        _write_back(loop.epoch_ends(), told)

    def on_train_end(self, logs: Told = None) -> None:  # noqa: ARG002
        """Send ``train_end``."""
        if self.loop.model.stop_training is True:
            self.loop.stopped_by("model.stop_training")
        try:
            self.loop.train_ends()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._moved:  # else the next fit would begin there too
            self.loop.model._initial_epoch = None  # noqa: SLF001
            self._moved = False

    def _look_at_flag(self) -> None:
        """Clear the flag that ended one epoch; take in one that others have set."""
        model = self.loop.model
        if model.stop_training is THIS_EPOCH:
            model.stop_training = False
        elif model.stop_training:
            self.loop.stopped_by("model.stop_training")

    # -- evaluation and prediction

    def on_test_begin(self, logs: Told = None) -> None:  # noqa: ARG002
        """Send ``test_begin``."""
        loop = self.loop
        inside = loop.training is not None and loop.training.epoch is not None
        if inside:
            self._look_at_flag()
            loop.epoch_over()
        self._test.reset()
        self._told = {}
        steps = loop.params.get("steps")
        if inside:  # the params are those of the training data
            data = getattr(loop.model, "_eval_epoch_iterator", None)
            steps = getattr(data, "num_batches", None)
        loop.test_begins(steps, Given())

    def on_test_batch_begin(self, batch: int, logs: Told = None) -> None:  # noqa: ARG002
        """Send ``test_batch_begin``."""
        self._batch_begins(self._test, batch)

    def on_test_batch_end(self, batch: int, logs: Told = None) -> None:
        """Send ``test_batch_end``."""
        self._batch_ends(self._test, batch, {} if logs is None else logs)

    def on_test_end(self, logs: Told = None) -> None:
        """Send ``test_end``."""
        told = {} if logs is None else logs
        self.loop.state.passes[-1].means.values = dict(told)  # type: ignore[attr-defined]
        _write_back(self.loop.pass_ends(), told)

    def on_predict_begin(self, logs: Told = None) -> None:  # noqa: ARG002
        """Send ``predict_begin``."""
        self.loop.predict_begins(self.loop.params.get("steps"))

    def on_predict_batch_begin(self, batch: int, logs: Told = None) -> None:  # noqa: ARG002
        """Send ``predict_batch_begin``."""
        self.loop.batch_begins(batch)

    def on_predict_batch_end(self, batch: int, logs: Told = None) -> None:
        """Send ``predict_batch_end``."""
        self.loop.batch_ends(batch, None, (logs or {}).get("outputs"))

    def on_predict_end(self, logs: Told = None) -> None:  # noqa: ARG002
        """Send ``predict_end``."""
        self.loop.pass_ends()

    def on_batch_begin(self, batch: int, logs: Told = None) -> None:
        """Do nothing: Keras 3 looks for this older name."""

    def on_batch_end(self, batch: int, logs: Told = None) -> None:
        """Do nothing: Keras 3 looks for this older name."""

    # -- batches

    def _batch_begins(self, metrics: BatchMetrics, batch: int) -> None:
        loop = self.loop
        loop.batch_begins(batch)
        if loop.state.passes[-1].end.live:  # type: ignore[attr-defined]
            metrics.look(self._told)

    def _batch_ends(
        self,
        metrics: BatchMetrics,
        batch: int,
        told: MutableMapping[str, Any],
        *,
        steps: int | None = None,
    ) -> None:
        made: Any = self.loop.state.passes[-1]
        made.means.values = self._told = told
        if steps is not None and batch >= steps:  # the last execution is shorter than Keras says
            batch = steps - 1
        outputs: dict[str, Any] = {}
        if made.end.live:
            outputs = metrics.of_batch(told)
        else:
            metrics.forget()
        carried = self.loop.batch_ends(batch, None, outputs, steps=metrics is self._train)
        added = [key for key in carried or () if key not in outputs and key != "lr"]
        if carried is not None and added:
            made.means.values = self._told = dict(told)  # which Keras's means are, no more
            told.update({key: carried[key] for key in added})


def _write_back(carried: Logs, told: MutableMapping[str, Any]) -> None:
    """Let Keras and its later callbacks see what subscribers have put into the logs."""
    for key, value in carried.items():
        if key != "lr" and (key not in told or told[key] is not value):
            told[key] = value


# -- failures: Keras tells its callbacks nothing of them, so whoever makes a bridge has
# the three methods that run batches watched, on the class since `fit` is entered before
# any callback hears of its model

_bridges: weakref.WeakSet[KerasBridge] = weakref.WeakSet()
_initial_epochs: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def _guard() -> None:
    """Have `keras.Model`'s methods tell the bridges in use what they raise; once.

    Raises:
        ImportError: Keras is not installed.
    """
    try:
        from keras import Model  # noqa: PLC0415 -- only where a bridge is made
    except ImportError as error:
        raise ImportError('KerasBridge needs Keras: pip install "epochbus[keras]"') from error
    for name, kind in (("fit", "train"), ("evaluate", "test"), ("predict", "predict")):
        method = getattr(Model, name)
        if not hasattr(method, "__lifecycle_guard__"):
            setattr(Model, name, _guarded(method, kind))


def _guarded(method: Callable[..., Any], kind: str) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kind == "train":
            given = signature.bind_partial(self, *args, **kwargs).arguments
            _initial_epochs[self] = given.get("initial_epoch", 0)
        try:
            return method(self, *args, **kwargs)
        except BaseException as error:
            for bridge in tuple(_bridges):
                if bridge.loop.model is self and bridge.loop.stages:
                    bridge.loop.fails(error, kind)
                    if kind == "train":
                        bridge._let_go()  # noqa: SLF001
            raise

    guarded.__lifecycle_guard__ = True  # type: ignore[attr-defined]
    return guarded
