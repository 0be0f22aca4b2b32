"""Parts of a model that do not learn for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from eventbus.errors import nearest
from lifecycle.subscribers.checks import whole
from lifecycle.subscribers.memory import OneLoop

if TYPE_CHECKING:
    from torch import nn

    from lifecycle.loop import Loop

__all__ = ["FreezeUntil"]


class FreezeUntil(OneLoop):
    """Freeze modules until an epoch or a step, or for the whole run.

    Keras: ``trainable``. OpenMMLab: ``frozen_stages`` and ``norm_eval`` of its models.

    While they are frozen their parameters get no gradients, and their modules stay in
    evaluation mode, so that batch norm's statistics stand still too. Then each parameter
    and module is as it was before.

    Args:
        modules: their names, such as ``backbone.stem``.
        epoch: the first epoch (0-based) in which they learn.
        step: or the first step in which they do.
        norm_eval: whether they are in evaluation mode while frozen.
        model: the name of one of the loop's objects, or a module.
    """

    priority: ClassVar[str] = "VERY_HIGH"

    def __init__(
        self,
        *modules: str,
        epoch: int | None = None,
        step: int | None = None,
        norm_eval: bool = True,
        model: Any = "model",
    ) -> None:
        if not modules:
            raise ValueError('name the modules to freeze, such as FreezeUntil("backbone", epoch=2)')
        if epoch is not None and step is not None:
            raise ValueError("modules are frozen until an epoch or until a step, not both")
        self.modules = modules
        self.epoch = None if epoch is None else whole(epoch, 0, "epoch is a count of epochs")
        self.step = None if step is None else whole(step, 0, "step is a count of steps")
        self.norm_eval = norm_eval
        self.model = model
        self._parameters: list[tuple[nn.Parameter, bool]] = []
        self._modes: list[tuple[nn.Module, bool]] = []

    def __repr__(self) -> str:
        return f"<FreezeUntil {', '.join(self.modules)}{' frozen' if self.frozen else ''}>"

    @property
    def frozen(self) -> bool:
        """Whether they are frozen now."""
        return bool(self._parameters or self._modes)

    def on_train_begin(self, loop: Loop) -> None:
        self.follow(loop)
        found = self._find(loop)
        state = loop.state
        epoch_over = self.epoch is not None and state.initial_epoch >= self.epoch
        step_over = self.step is not None and state.steps_done >= self.step
        if epoch_over or step_over:
            return
        for module in found:
            self._parameters += [(p, p.requires_grad) for p in module.parameters()]
            if self.norm_eval:
                self._modes += [(each, each.training) for each in module.modules()]
                module.eval()
        for parameter, _ in self._parameters:
            parameter.requires_grad_(False)  # noqa: FBT003 -- torch's own signature

    def on_epoch_begin(self, epoch: int) -> None:
        if self.epoch is not None and epoch >= self.epoch:
            self.thaw()

    def on_train_batch_begin(self, step: int) -> None:
        if self.step is not None and step >= self.step:
            self.thaw()

    def on_train_end(self) -> None:
        self.thaw()

    def thaw(self) -> None:
        """Let all be as it was before it was frozen."""
        for parameter, before in self._parameters:
            parameter.requires_grad_(before)
        for module, training in self._modes:
            module.training = training
        self._parameters, self._modes = [], []

    def _find(self, loop: Loop) -> list[nn.Module]:
        model = loop.objects[self.model] if isinstance(self.model, str) else self.model
        there = dict(model.named_modules())
        for name in self.modules:
            if name not in there:
                raise LookupError(f"the model has no module {name!r}{nearest(name, there)}")
        return [there[name] for name in self.modules]
