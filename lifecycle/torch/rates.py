"""The learning rate of every parameter group, whoever set it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from torch.optim import Optimizer

    from lifecycle.loop import Loop

__all__ = ["LRMonitor", "Rates"]


class Rates:
    """Reads the learning rates of optimizers under the names by which they are logged.

    ``lr`` where there is but one group; else ``lr_`` and the group's ``name`` or number,
    after the optimizer's name where there are several.

    Args:
        optimizers: by name.
    """

    def __init__(self, optimizers: Mapping[str, Optimizer]) -> None:
        self.optimizers = dict(optimizers)
        self.names: list[str] = []
        self.update()

    def update(self) -> None:
        """Name the groups that there are now."""
        parts: list[list[str]] = []
        for name, optimizer in self.optimizers.items():
            groups = optimizer.param_groups
            for number, group in enumerate(groups):
                own = [str(group.get("name", number))] if len(groups) > 1 else []
                parts.append([name, *own] if len(self.optimizers) > 1 else own)
        self.names = ["_".join(["lr", *each]) for each in parts]

    def read(self) -> dict[str, Any]:
        """Return the rates by the names that they are logged under."""
        names = iter(self.names)
        found: dict[str, Any] = {}
        for optimizer in self.optimizers.values():
            for group, name in zip(optimizer.param_groups, names, strict=False):
                rate = group["lr"]
                found[name] = rate if rate.__class__ is float else _own(rate)
        return found


def _own(rate: Any) -> Any:
    """Return a rate that stays as it is: a tensor's would change in place."""
    return rate.clone() if hasattr(rate, "clone") else float(rate)


class LRMonitor:
    """Put the learning rates into the logs of each batch and epoch.

    Keras: none. OpenMMLab: ``RuntimeInfoHook``. A `TorchStep` does it by itself; this is
    for steps of your own.

    Args:
        optimizer: the name of one of the loop's objects, or an optimizer.
    """

    priority: ClassVar[str] = "HIGHEST"  # before others change the rate for what comes next

    def __init__(self, optimizer: Any = "optimizer") -> None:
        self.optimizer = optimizer

    def on_train_batch_end(self, loop: Loop, logs: MutableMapping[str, Any]) -> None:
        logs.update(self._rates(loop).read())

    def on_epoch_end(self, loop: Loop, logs: MutableMapping[str, Any]) -> None:
        logs.update(self._rates(loop).read())

    def _rates(self, loop: Loop) -> Rates:
        named = isinstance(self.optimizer, str)
        return Rates({"": loop.objects[self.optimizer] if named else self.optimizer})
