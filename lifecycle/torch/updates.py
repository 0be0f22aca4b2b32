"""From losses to changed parameters: accumulation, scaling, clipping, optimizer steps."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn
    from torch.optim import Optimizer

    from eventbus import Emitter
    from lifecycle.loop import Loop

__all__ = ["Updates"]

CHECKED: Final = 3
"""The first updates of a run, by which every trainable parameter should have had a gradient."""


class Updates:
    """Makes optimizer steps out of losses, within a run of a loop.

    Losses are gathered in windows: each is divided by the batches of its window, of which
    the last of an epoch may be shorter.

    Args:
        model: whose parameters are watched for gradients.
        optimizers: all of them, by name; they step together.
        accumulate: batches in a window.
        clip_norm: the greatest norm of all gradients together.
        clip_value: the greatest absolute value in a gradient.
        scaler: scales the loss, so that small gradients survive half precision.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Mapping[str, Optimizer],
        *,
        accumulate: int = 1,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        self.model = model
        self.optimizers = dict(optimizers)
        self.sent = next(iter(self.optimizers.values()))
        """What the points carry: the optimizer, or all of them by name."""
        if len(self.optimizers) > 1:
            self.sent = self.optimizers  # type: ignore[assignment]
        self.accumulate = accumulate
        self.clip_norm, self.clip_value = clip_norm, clip_value
        self.scaler = scaler
        self.count = 0
        """Batches in the window that is open."""
        self.size = accumulate
        """Batches that it will have."""
        self.skipped = 0
        """Updates of the run that were skipped on an overflow."""
        self.loop: Loop | None = None
        """The loop whose run is under way."""
        self._unfed: dict[str, nn.Parameter] = {}
        self._checks = 0
        self._made = 0
        self._first_step = 0

    # -- a run

    def begin(self, loop: Loop) -> None:
        """Take part in a run."""
        self.loop = loop
        self._backward_end: Emitter = loop.emitter("backward_end")
        self._step_begin: Emitter = loop.emitter("optimizer_step_begin")
        self._step_end: Emitter = loop.emitter("optimizer_step_end")
        self.count, self.size, self.skipped = 0, self.accumulate, 0
        self._first_step = loop.state.steps_done
        self._checks, self._made = CHECKED, 0
        held = {id(p) for p in self.parameters()}
        trainable = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self._unfed = {n: p for n, p in trainable.items() if id(p) in held}
        _warn_of("trainable, but in no optimizer", [n for n in trainable if n not in self._unfed])

    def end(self, outcome: str) -> None:
        """Leave the run, and warn if it has changed nothing."""
        loop, self.loop = self.loop, None
        if loop is None or outcome in {"failed", "interrupted"}:
            return
        steps = loop.state.steps_done - self._first_step
        if steps and not self._made:
            why = f"{self.skipped} were skipped on an overflow" if self.skipped else "none was due"
            warnings.warn(
                f"the run has ended after {steps} steps without one optimizer step: {why};"
                " the parameters are what they were",
                RuntimeWarning,
                stacklevel=3,
            )
        elif self._made and self._checks:
            self._warn_of_unfed()

    def parameters(self) -> list[nn.Parameter]:
        """Return the parameters of all optimizers, each once."""
        found: dict[int, nn.Parameter] = {}
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                found.update((id(parameter), parameter) for parameter in group["params"])
        return list(found.values())

    # -- a batch

    def open(self) -> None:
        """Begin a window if none is open; before the model runs, so that its memory is there."""
        if self.count:
            return
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()
        if self.accumulate > 1:
            assert self.loop is not None
            state = self.loop.state
            left = [self.accumulate]
            if state.steps_per_epoch is not None:
                left.append(state.steps_per_epoch - state.batch)
            if state.max_steps is not None:
                left.append(state.max_steps - state.step)
            self.size = max(min(left), 1)

    def backward(self, loss: torch.Tensor) -> torch.Tensor | None:
        """Add a batch's gradients to the window, and step where it is full.

        Returns:
            The norm of the gradients before they were clipped, where they were.
        """
        part = loss / self.size if self.size > 1 else loss
        if self.scaler is not None:
            part = self.scaler.scale(part)
        part.backward()  # type: ignore[no-untyped-call]
        if self._backward_end.live:
            assert self.loop is not None
            state = self.loop.state
            self._backward_end.send(loss.detach(), state.epoch, state.batch, state.step)
        self.count += 1
        return self._update() if self.count == self.size else None

    def flush(self) -> None:
        """Step with a window that ended before it was full."""
        if not self.count:
            return
        grads = [p.grad for p in self.parameters() if p.grad is not None]
        torch._foreach_mul_(grads, self.size / self.count)  # as torch.optim does
        self._update()

    def _update(self) -> torch.Tensor | None:
        self.count = 0
        if self._checks:
            self._check()
        assert self.loop is not None
        state = self.loop.state
        norm = self._clipped()
        update = state.updates_done
        if self._step_begin.live:
            self._step_begin.send(update, state.step, self.sent)
        skipped = self._stepped()
        if not skipped:
            state.updates_done += 1
            self._made += 1
        if self._step_end.live:
            self._step_end.send(update, state.step, self.sent, skipped)
        return norm

    def _clipped(self) -> torch.Tensor | None:
        if self.scaler is not None:
            for optimizer in self.optimizers.values():
                self.scaler.unscale_(optimizer)
        if self.clip_value is not None:
            clip_grad_value_(self.parameters(), self.clip_value)
        if self.clip_norm is None:
            return None
        return clip_grad_norm_(self.parameters(), self.clip_norm)

    def _stepped(self) -> bool:
        """Have the optimizers step; say whether that was skipped on an overflow."""
        scaler = self.scaler
        if scaler is None:
            for optimizer in self.optimizers.values():
                optimizer.step()
            return False
        before = scaler.get_scale()
        for optimizer in self.optimizers.values():
            scaler.step(optimizer)
        scaler.update()
        skipped = scaler.get_scale() < before
        if skipped:
            self.skipped += 1
        return skipped

    # -- watching

    def _check(self) -> None:
        self._checks -= 1
        self._unfed = {n: p for n, p in self._unfed.items() if p.requires_grad and p.grad is None}
        if not self._unfed:
            self._checks = 0
        elif not self._checks:
            self._warn_of_unfed()

    def _warn_of_unfed(self) -> None:
        self._checks = 0
        _warn_of("trainable, but without a gradient in the first updates", list(self._unfed))

    # -- going on later

    def state_dict(self) -> dict[str, Any]:
        """Return the open window with its gradients, and the scaler's state."""
        gradients = {}
        if self.count:
            for index, parameter in enumerate(self.parameters()):
                if parameter.grad is not None:
                    gradients[str(index)] = parameter.grad
        return {
            "count": self.count,
            "size": self.size,
            "skipped": self.skipped,
            "gradients": gradients,
            "scaler": {} if self.scaler is None else self.scaler.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        self.count, self.size = state["count"], state["size"]
        self.skipped = state["skipped"]
        for index, parameter in enumerate(self.parameters()):
            saved = state["gradients"].get(str(index))
            parameter.grad = None
            if saved is not None:
                parameter.grad = torch.as_tensor(saved).to(parameter, copy=True)
        if self.scaler is not None and state["scaler"]:
            self.scaler.load_state_dict(dict(state["scaler"]))


def _warn_of(what: str, names: list[str]) -> None:
    if names:
        warnings.warn(
            f"{what}: {', '.join(names)}. Freeze with requires_grad_(False) what is not to learn",
            RuntimeWarning,
            stacklevel=3,
        )
