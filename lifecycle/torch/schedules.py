"""Learning rates and momenta that follow a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from lifecycle.subscribers.checks import choice
from lifecycle.subscribers.memory import Memory

if TYPE_CHECKING:
    from lifecycle.loop import Loop
    from lifecycle.torch.policies import Policy, WarmUp

__all__ = ["LRSchedule", "MomentumSchedule"]


class LRSchedule(Memory):
    """Set an optimizer's learning rates by a policy, with a warm-up if wanted.

    Keras: ``LearningRateScheduler``. OpenMMLab: ``LrUpdaterHook`` and its policies,
    ``ParamSchedulerHook``.

    Each parameter group has its own rate, which the policy starts from: the group's
    ``initial_lr``, which is the one it was made with. The rate is set at the begin of each
    epoch or step, from nothing but its index; so a resumed run goes on exactly.

    Args:
        policy: from ``lifecycle.torch.policies``, or any function of base, index and total.
        by: ``epoch`` or ``step``: what the policy counts.
        warmup: what the policy's values are multiplied with at first.
        optimizer: the name of one of the loop's objects, or an optimizer.
        total: how many epochs or steps the policy goes over; by default all of the run.
    """

    priority: ClassVar[str] = "HIGH"
    remembers: ClassVar[tuple[str, ...]] = ("bases",)

    def __init__(
        self,
        policy: Policy,
        *,
        by: str = "epoch",
        warmup: WarmUp | None = None,
        optimizer: Any = "optimizer",
        total: int | None = None,
    ) -> None:
        if not callable(policy):
            raise TypeError(
                "a policy is one of lifecycle.torch.policies, or a function of base, index and"
                f" total, not {policy!r}"
            )
        self.policy = policy
        self.by = choice(by, "by", "epoch", "step")
        self.warmup = warmup
        self.optimizer = optimizer
        self.total = total
        self.reset()

    def reset(self) -> None:
        self.bases: list[float] = []
        """What each group's value starts from."""
        self._length: int | None = None

    def __repr__(self) -> str:
        warmup = f", {self.warmup!r}" if self.warmup is not None else ""
        return f"<{type(self).__name__} {self.policy!r} by {self.by}{warmup}>"

    def on_train_begin(self, loop: Loop) -> None:
        self.begin(loop)
        self.bases = [self.base(group) for group in self._groups(loop)]
        self._set(loop, max(loop.state.initial_epoch, 0), loop.state.steps_done)

    def on_epoch_begin(self, loop: Loop, epoch: int) -> None:
        self.follow(loop)
        if self.by == "epoch" or (self.warmup is not None and self.warmup.by == "epoch"):
            self._set(loop, epoch, loop.state.steps_done)

    def on_train_batch_begin(self, loop: Loop, epoch: int, step: int) -> None:
        warmup = self.warmup
        warming = warmup is not None and warmup.by == "step" and step <= warmup.length
        if self.by == "step" or warming:
            self._set(loop, epoch, step)

    def values(self, epoch: int, step: int, total: int | None = None) -> list[float]:
        """Return each group's value at an epoch and step.

        Args:
            epoch: its 0-based index.
            step: the 0-based index of the step.
            total: how many epochs or steps there are.
        """
        factor = 1.0
        if self.warmup is not None:
            factor = self.warmup.factor(step if self.warmup.by == "step" else epoch)
        index = step if self.by == "step" else epoch
        return [self.policy(base, index, total) * factor for base in self.bases]

    def base(self, group: dict[str, Any]) -> float:
        """Return what a group's value starts from, and have the group remember it."""
        return float(group.setdefault("initial_lr", float(group["lr"])))

    def put(self, group: dict[str, Any], value: float) -> None:
        """Set a group's value."""
        if hasattr(group["lr"], "fill_"):  # a tensor, which a captured graph reads
            group["lr"].fill_(value)
        else:
            group["lr"] = value

    def _set(self, loop: Loop, epoch: int, step: int) -> None:
        groups = self._groups(loop)
        if len(groups) != len(self.bases):  # one was added, or unfrozen, since
            self.bases = [self.base(group) for group in groups]
        total = self._total(loop)
        for group, value in zip(groups, self.values(epoch, step, total), strict=True):
            self.put(group, value)

    def _total(self, loop: Loop) -> int | None:
        if self.total is not None:
            return self.total
        return loop.state.epochs if self.by == "epoch" else loop.state.total_steps

    def _groups(self, loop: Loop) -> list[dict[str, Any]]:
        optimizer = self.optimizer
        if isinstance(optimizer, str):
            if optimizer not in loop.objects:
                there = ", ".join(map(repr, loop.objects)) or "none"
                raise LookupError(f"the loop has no object {optimizer!r}; it has {there}")
            optimizer = loop.objects[optimizer]
        groups: list[dict[str, Any]] = optimizer.param_groups
        return groups


class MomentumSchedule(LRSchedule):
    """Set an optimizer's momentum by a policy: ``momentum``, or the first of ``betas``.

    OpenMMLab: ``MomentumUpdaterHook`` and its policies, ``ParamSchedulerHook``. A warm-up
    multiplies, as mmengine's does (mmcv's divides).

    Args:
        policy: from ``lifecycle.torch.policies``, or any function of base, index and total.
        by: ``epoch`` or ``step``: what the policy counts.
        warmup: what the policy's values are multiplied with at first.
        optimizer: the name of one of the loop's objects, or an optimizer.
        total: how many epochs or steps the policy goes over; by default all of the run.
    """

    def base(self, group: dict[str, Any]) -> float:
        """Return what a group's value starts from, and have the group remember it.

        Raises:
            LookupError: the optimizer has no momentum.
        """
        if "momentum" not in group and "betas" not in group:
            raise LookupError("this optimizer has no momentum to schedule: no betas either")
        now = group["betas"][0] if "betas" in group else group["momentum"]
        return float(group.setdefault("initial_momentum", float(now)))

    def put(self, group: dict[str, Any], value: float) -> None:
        """Set a group's value."""
        if "betas" in group:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value
