"""Set a value by a function of the epoch or the step."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar

from lifecycle.subscribers.checks import choice
from lifecycle.subscribers.memory import Memory
from lifecycle.subscribers.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from lifecycle.loop import Loop

__all__ = ["Schedule"]


class Schedule(Memory):
    """Set a value, such as a learning rate, by a function of the epoch or the step.

    Keras: ``LearningRateScheduler``. OpenMMLab: ``LrUpdaterHook``, ``MomentumUpdaterHook``,
    ``ParamSchedulerHook``.

    ``Schedule(lambda epoch: 0.1 * 0.9**epoch, optimizer, "lr")`` sets it at each epoch's
    begin. The value goes into the epoch's logs too.

    Args:
        function: Takes the 0-based epoch or step, and the present value if it asks for a
            second argument; returns the value to set.
        target: An object, the name of one of the loop's objects, or a function that sets
            the value.
        key: The attribute or item to set on the target (see `Place`).
        by: ``epoch`` or ``step``.
        log: The name in the logs; the key's last part by default.
    """

    priority: ClassVar[str] = "HIGH"
    remembers: ClassVar[tuple[str, ...]] = ("index", "values")

    def __init__(
        self,
        function: Callable[..., Any],
        target: Any,
        key: str | int | None = None,
        *,
        by: str = "epoch",
        log: str | None = None,
    ) -> None:
        if not callable(function):
            raise TypeError(f"a schedule is a function of the epoch or step, not {function!r}")
        self.function = function
        self.place = Place(target, key)
        self.by = choice(by, "by", "epoch", "step")
        self.log = log or self.place.name
        self._takes_value = _required_parameters(function) > 1
        if self._takes_value:
            self.place.require_readable(f"{function!r} asks for the present value")
        self.reset()

    def reset(self) -> None:
        self.index: int | None = None
        self.values: list[Any] = []

    def on_train_begin(self, loop: Loop) -> None:
        self.begin(loop)
        if self.values:  # resumed: the target itself may not have been saved
            self._set(loop)

    def on_epoch_begin(self, loop: Loop, epoch: int) -> None:
        if self.by == "epoch":
            self._advance(loop, epoch)

    def on_train_batch_begin(self, loop: Loop, step: int) -> None:
        if self.by == "step":
            self._advance(loop, step)

    def on_epoch_end(self, logs: MutableMapping[str, Any]) -> None:
        if self.values:
            logs.setdefault(self.log, self.values[0])

    def _advance(self, loop: Loop, index: int) -> None:
        self.follow(loop)
        if index != self.index:  # an epoch that a resumed run enters again is not counted twice
            slots = self.place.slots(loop)
            if self._takes_value:
                self.values = [self.function(index, slot.get()) for slot in slots]
            else:
                self.values = [self.function(index)] * len(slots)
            self.index = index
        self._set(loop)

    def _set(self, loop: Loop) -> None:
        for slot, value in zip(self.place.slots(loop), self.values, strict=True):
            slot.set(value)


def _required_parameters(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins tell nothing
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is inspect.Parameter.empty for p in parameters)
