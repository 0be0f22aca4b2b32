"""A Keras model and its optimizer as subscribers want them: with a state to save and load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["KerasModel", "KerasOptimizer", "synchronise"]


def synchronise(model: Any) -> None:
    """Let the model's variables hold what was trained so far.

    On JAX the values travel outside of them during an epoch; what is written to them
    after this takes effect in the next batch.
    """
    sync = getattr(model, "jax_state_sync", None)
    if sync is not None:
        sync()


def _saved(variables: Iterable[Any]) -> dict[str, Any]:
    return {key: _array(variable).copy() for key, variable in _keyed(variables).items()}


def _keyed(variables: Iterable[Any]) -> dict[str, Any]:
    """Name variables by their places: their paths count up with each model of a process."""
    return {f"{place:03d}": variable for place, variable in enumerate(variables)}


def _array(variable: Any) -> Any:
    value = getattr(variable, "value", variable)
    if hasattr(value, "detach"):  # NumPy 2.4 warns of what Keras does with a torch tensor
        value = value.detach().cpu()
        return (value.float() if "bfloat16" in str(value.dtype) else value).numpy()
    from keras import ops  # noqa: PLC0415 -- Keras is there once a model is

    return ops.convert_to_numpy(value)


def _assign(variables: Iterable[Any], state: Mapping[str, Any], whose: str) -> None:
    known = _keyed(variables)
    if known.keys() != state.keys():
        missing, unknown = sorted(known.keys() - state.keys()), sorted(state.keys() - known.keys())
        raise KeyError(f"this is no state of {whose}: it lacks {missing} and has {unknown}")
    for key, variable in known.items():
        variable.assign(state[key])


class _Stand:
    """What forwards everything else to the Keras object that it stands for."""

    __slots__ = ("_model",)

    def __init__(self, model: Any) -> None:
        object.__setattr__(self, "_model", model)

    def _object(self) -> Any:
        return self._model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._object(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        else:
            setattr(self._object(), name, value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._model!r}>"


class KerasModel(_Stand):
    """A Keras model; called, it predicts and returns what no gradient flows through."""

    __slots__ = ()

    def _object(self) -> Any:
        synchronise(self._model)
        return self._model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model, not in training mode unless told so."""
        from keras import ops  # noqa: PLC0415

        kwargs.setdefault("training", False)
        outputs: Any = self._object()(*args, **kwargs)
        return ops.stop_gradient(outputs) if hasattr(outputs, "shape") else outputs

    def state_dict(self) -> dict[str, Any]:
        """Return the weights, trainable and not, as NumPy arrays by their places."""
        return _saved(self._object().variables)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over weights.

        Raises:
            KeyError: they are another model's.
        """
        _assign(self._object().variables, state, "this model")


class KerasOptimizer(_Stand):
    """A Keras model's optimizer; ``lr`` and ``learning_rate`` read as floats."""

    __slots__ = ()

    def _object(self) -> Any:
        synchronise(self._model)
        return self._model.optimizer

    @property
    def learning_rate(self) -> float:
        """The learning rate."""
        return float(_array(self._object().learning_rate))

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._object().learning_rate = value

    @property
    def lr(self) -> float:
        """The learning rate, under the name that other frameworks give it."""
        return self.learning_rate

    @lr.setter
    def lr(self, value: float) -> None:
        self.learning_rate = value

    def state_dict(self) -> dict[str, Any]:
        """Return its variables, the learning rate among them, as NumPy arrays."""
        return _saved(self._object().variables)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over saved variables; those of a fresh optimizer are made first.

        Raises:
            KeyError: they are another optimizer's.
        """
        optimizer = self._object()
        if not optimizer.built:
            optimizer.build(self._model.trainable_variables)
        _assign(optimizer.variables, state, "this optimizer")
