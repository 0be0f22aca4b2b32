"""Lower a value when a metric no longer gets better."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from lifecycle.subscribers.checks import whole
from lifecycle.subscribers.memory import Memory
from lifecycle.subscribers.monitor import Monitor
from lifecycle.subscribers.place import Place

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from lifecycle.loop import Loop

__all__ = ["ReduceOnPlateau"]

logger = logging.getLogger("lifecycle")


class ReduceOnPlateau(Memory):
    """Multiply a value, such as a learning rate, when a metric has not got better for some epochs.

    Keras: ``ReduceLROnPlateau``. OpenMMLab: ``ReduceOnPlateauLR`` under ``ParamSchedulerHook``.

    The value that was in force goes into each epoch's logs.

    Args:
        target: An object, or the name of one of the loop's objects.
        key: The attribute or item to reduce (see `Place`).
        monitor: The metric's name.
        factor: What to multiply with, between 0 and 1.
        patience: For how many epochs to wait for something better.
        mode: ``min``, ``max`` or ``auto``, by the metric's name.
        min_delta: How much better counts as better.
        cooldown: For how many epochs after a reduction not to count.
        minimum: The value is never set below this.
        log: The name in the logs; the key's last part by default.
    """

    priority: ClassVar[str] = "BELOW_NORMAL"
    remembers: ClassVar[tuple[str, ...]] = ("best", "wait", "cooling", "values")

    def __init__(
        self,
        target: Any = "optimizer",
        key: str | int = "lr",
        monitor: str = "val_loss",
        *,
        factor: float = 0.1,
        patience: int = 10,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        minimum: float = 0.0,
        log: str | None = None,
    ) -> None:
        if not 0 < factor < 1:
            raise ValueError(f"factor must lie between 0 and 1, or nothing is reduced: {factor!r}")
        self.place = Place(target, key)
        self.place.require_readable("a reduction starts from the present value")
        self.monitor = Monitor(monitor, mode, min_delta)
        self.factor = factor
        self.patience = whole(patience, 0, "patience is a number of epochs")
        self.cooldown = whole(cooldown, 0, "cooldown is a number of epochs")
        self.minimum = minimum
        self.log = log or self.place.name
        self.reset()

    @property
    def best(self) -> float | None:
        """The best value of the metric so far."""
        return self.monitor.best

    @best.setter
    def best(self, value: float | None) -> None:
        self.monitor.best = value

    def reset(self) -> None:
        self.monitor.reset()
        self.wait = 0
        self.cooling = 0
        self.values: list[float] = []

    def __repr__(self) -> str:
        metric = self.monitor.metric
        return f"<ReduceOnPlateau {self.log} on {metric} wait={self.wait}/{self.patience}>"

    def on_train_begin(self, loop: Loop) -> None:
        self.begin(loop)
        slots = self.place.slots(loop)  # a wrong name is told before any work is done
        if self.values:  # resumed: the target itself may not have been saved
            for slot, value in zip(slots, self.values, strict=True):
                slot.set(value)

    def on_epoch_end(self, loop: Loop, logs: MutableMapping[str, Any], partial: bool) -> None:
        self.follow(loop)
        logs.setdefault(self.log, self.place.slots(loop)[0].get())
        if partial:
            return
        value = self.monitor.read_or_warn(logs, "ReduceOnPlateau")
        if value is None:
            return
        if self.cooling:
            self.cooling -= 1
            self.wait = 0
        if self.monitor.update(value):
            self.wait = 0
        elif not self.cooling:
            self.wait += 1
            if self.wait >= self.patience:
                self._reduce(loop)

    def on_train_end(self, logs: MutableMapping[str, Any]) -> None:
        self.monitor.warn_if_unseen(logs, "ReduceOnPlateau")

    def _reduce(self, loop: Loop) -> None:
        self.wait = 0
        self.cooling = self.cooldown
        slots = self.place.slots(loop)
        self.values = [max(slot.get() * self.factor, self.minimum) for slot in slots]
        for slot, value in zip(slots, self.values, strict=True):
            slot.set(value)
        logger.info(
            "%s reduced to %s on a plateau of %s", self.log, self.values[0], self.monitor.metric
        )
