"""Keras callbacks on our loop, called as Keras calls them.

Keras is not imported for it: any object with Keras's method names will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from eventbus import SubscriptionGroup

if TYPE_CHECKING:
    from lifecycle.logs import Logs
    from lifecycle.loop import Loop

__all__ = ["KerasCallback", "connect", "use"]

METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "epoch_begin": ("on_epoch_begin",),
    "train_batch_begin": ("on_train_batch_begin", "on_batch_begin"),
    "train_batch_end": ("on_train_batch_end", "on_batch_end"),
    "epoch_end": ("on_epoch_end",),
    "train_end": ("on_train_end",),
    "test_batch_begin": ("on_test_batch_begin",),
    "test_batch_end": ("on_test_batch_end",),
    "test_end": ("on_test_end",),
    "predict_batch_begin": ("on_predict_batch_begin",),
    "predict_batch_end": ("on_predict_batch_end",),
    "predict_end": ("on_predict_end",),
}
"""Which of its methods a callback hears a point with; the first that it has."""

BEGINS: Final = ("train_begin", "test_begin", "predict_begin")
"""Heard by every callback, which gets its model and its params there."""


def use(loop: Loop, callbacks: Any, model: Any = None) -> SubscriptionGroup:
    """Run Keras callbacks on a loop.

    Args:
        loop: whose points they hear.
        callbacks: one, several, nested lists of them, or a ``CallbackList``.
        model: what they get as ``self.model``; the loop's object ``model`` by default.

    Returns:
        One handle for all.
    """
    options = {} if model is None else {"model": model}
    return SubscriptionGroup(connect(loop, each, options) for each in _flat(callbacks))


def connect(loop: Loop, callback: Any, options: Mapping[str, Any]) -> SubscriptionGroup:
    """Connect a callback to a loop; what ``loop.attach(callback)`` does.

    Args:
        loop: whose points it hears.
        callback: a Keras callback, or an object with its method names.
        options: those of its subscriptions, and ``model``.
    """
    rest = dict(options)
    model = rest.pop("model", None)
    if hasattr(callback, "callbacks") and hasattr(callback, "set_model"):  # a CallbackList
        return SubscriptionGroup(connect(loop, each, options) for each in _flat(callback))
    made = KerasCallback(callback, model)
    rest = {"name": type(callback).__name__, "sender": loop, **rest}
    group = SubscriptionGroup()
    for point in (*BEGINS, *(p for p in METHODS if made.method(p) is not None)):
        group.add(loop.bus.connect(point, getattr(made, point), **rest))
    return group


def _flat(callbacks: Any) -> Iterator[Any]:
    inner = getattr(callbacks, "callbacks", callbacks)
    if isinstance(inner, Iterable) and not isinstance(inner, str):
        for each in inner:
            yield from _flat(each)
    elif inner is not None:
        yield inner


class NoModel:
    """What a callback gets as its model where the loop has none: a flag to stop, no more."""

    def __init__(self, callback: object) -> None:
        self.stop_training = False
        self._callback = type(callback).__name__

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{self._callback} asks its model for {name!r}, but the loop has no model: give it"
            " one, as in Loop(objects={'model': model}) or use(loop, callbacks, model)"
        )


class KerasCallback:
    """One Keras callback as a subscriber."""

    def __init__(self, callback: Any, model: Any = None) -> None:
        self.callback = callback
        self._given = model
        self.model: Any = None

    def __repr__(self) -> str:
        return f"<KerasCallback {type(self.callback).__name__}>"

    def method(self, point: str) -> str | None:
        """Return the method that hears a point, None if the callback leaves it out."""
        for name in METHODS.get(point, (f"on_{point}",)):
            method = getattr(self.callback, name, None)
            # Keras marks the methods of its base class that do nothing.
            if callable(method) and not getattr(method, "_is_default", False):
                return name
        return None

    # -- the points

    def train_begin(self, loop: Loop, logs: Logs, epochs: int | None) -> None:
        """Give the callback its model, and its turn."""
        self._enter(loop, epochs, loop.state.steps_per_epoch)
        self._tell("train_begin", loop, logs, {})
        restored = getattr(self.model, "_initial_epoch", None)  # as BackupAndRestore sets it
        if restored is not None:
            loop.state.initial_epoch = max(restored, loop.state.initial_epoch)
            self.model._initial_epoch = None  # noqa: SLF001 -- else it would hold for all later runs

    def epoch_begin(self, loop: Loop, epoch: int, logs: Logs) -> None:
        """Give the callback its turn."""
        self._tell("epoch_begin", loop, logs, {}, epoch)

    def train_batch_begin(self, loop: Loop, batch: int, logs: Logs) -> None:
        """Give the callback its turn."""
        self._tell("train_batch_begin", loop, logs, {}, batch)

    def train_batch_end(self, loop: Loop, batch: int, logs: Logs) -> None:
        """Give the callback its turn."""
        self._tell("train_batch_end", loop, logs, _running(logs), batch)

    def epoch_end(self, loop: Loop, epoch: int, logs: Logs) -> None:
        """Give the callback its turn."""
        self._tell("epoch_end", loop, logs, _sorted(logs), epoch)

    def train_end(self, loop: Loop, logs: Logs, error: BaseException | None) -> None:
        """Give the callback its turn, unless the run has failed: then Keras calls nothing."""
        if error is None:
            self._tell("train_end", loop, logs, _sorted(logs))

    def test_begin(self, loop: Loop, logs: Logs, steps: int | None, epoch: int | None) -> None:
        """Give the callback its turn; alone, its model too."""
        if epoch is None:
            self._enter(loop, 1, steps)
        self._tell("test_begin", loop, logs, {})

    def test_batch_begin(self, loop: Loop, batch: int, logs: Logs) -> None:
        """Give the callback its turn."""
        self._tell("test_batch_begin", loop, logs, {}, batch)

    def test_batch_end(self, loop: Loop, batch: int, logs: Logs) -> None:
        """Give the callback its turn."""
        self._tell("test_batch_end", loop, logs, _running(logs), batch)

    def test_end(self, loop: Loop, logs: Logs, error: BaseException | None) -> None:
        """Give the callback its turn, unless the pass has failed."""
        if error is None:
            self._tell("test_end", loop, logs, _sorted(logs))

    def predict_begin(self, loop: Loop, logs: Logs, steps: int | None) -> None:
        """Give the callback its model, and its turn."""
        if "train" not in loop.state.stages:
            self._enter(loop, 1, steps)
        self._tell("predict_begin", loop, logs, {})

    def predict_batch_begin(self, loop: Loop, batch: int, logs: Logs) -> None:
        """Give the callback its turn."""
        self._tell("predict_batch_begin", loop, logs, {}, batch)

    def predict_batch_end(self, loop: Loop, batch: int, logs: Logs, outputs: Any) -> None:
        """Give the callback its turn."""
        self._tell("predict_batch_end", loop, logs, {"outputs": outputs}, batch)

    def predict_end(self, loop: Loop, logs: Logs, error: BaseException | None) -> None:
        """Give the callback its turn, unless the pass has failed."""
        if error is None:
            self._tell("predict_end", loop, logs, {})

    # -- what they have in common

    def _enter(self, loop: Loop, epochs: int | None, steps: int | None) -> None:
        """Do what Keras does before it begins: the model, the params, the flag."""
        model = self._given
        if model is None:
            model = loop.objects.get("model")
        self.model = NoModel(self.callback) if model is None else model
        self.model.stop_training = False
        if hasattr(self.callback, "set_model"):
            self.callback.set_model(self.model)
        if hasattr(self.callback, "set_params"):
            self.callback.set_params({"verbose": 1, "epochs": epochs, "steps": steps})

    def _tell(
        self, point: str, loop: Loop, logs: Logs, told: MutableMapping[str, Any], *index: int
    ) -> None:
        """Call the callback's method; take over what it puts into the logs, and its flag."""
        name = self.method(point)
        if self.model is None:  # attached to a run under way
            self._enter(loop, loop.state.epochs, loop.state.steps_per_epoch)
        if name is None:
            return
        before = dict(told)
        getattr(self.callback, name)(*index, logs=told)
        for key, value in told.items():
            if key not in before or before[key] is not value:
                logs[key] = value
        if self.model.stop_training and not loop.state.stopping:
            loop.stop(f"{type(self.callback).__name__} set model.stop_training")


def _running(logs: Logs) -> dict[str, Any]:
    """Return what Keras tells after a batch: the means so far, by sorted names."""
    found = {}
    for key in sorted(logs):
        try:
            found[key] = logs.mean(key)
        except KeyError:  # put in by a subscriber, and not averaged
            found[key] = logs[key]
    return found


def _sorted(logs: Logs) -> dict[str, Any]:
    return {key: logs[key] for key in sorted(logs)}
