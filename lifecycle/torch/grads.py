"""How large the gradients are, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from lifecycle.subscribers.checks import whole

if TYPE_CHECKING:
    from lifecycle.loop import Loop

__all__ = ["GradStats"]


class GradStats:
    """Log the norms of the gradients and of the parameters, in all and for each part of a model.

    Keras, OpenMMLab: none (``OptimizerHook`` logs ``grad_norm`` where it clips).

    ``grad/all`` and ``grad/<part>`` are what the optimizer is about to use, unscaled and
    clipped; ``weight/all`` and ``weight/<part>`` stand beside them. Values stay on the device
    until somebody reads them. It needs ``optimizer_step_begin``, which a `TorchStep` sends.

    Args:
        every: how many updates apart.
        depth: how many dots deep a part's name is.
        model: the name of one of the loop's objects, or a module.
    """

    priority: ClassVar[str] = "LOW"

    def __init__(self, every: int = 1, *, depth: int = 1, model: Any = "model") -> None:
        self.every = whole(every, 1, "every is a number of updates")
        self.depth = whole(depth, 1, "depth is a number of names")
        self.model = model

    def on_optimizer_step_begin(self, loop: Loop, update: int) -> None:
        if (update + 1) % self.every:
            return
        model = loop.objects[self.model] if isinstance(self.model, str) else self.model
        loop.log(**self.norms(model))

    def norms(self, model: torch.nn.Module) -> dict[str, Any]:
        """Return the norms by name."""
        parts: dict[str, list[torch.nn.Parameter]] = {}
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                path = name.split(".")[:-1][: self.depth]
                for part in {"all", ".".join(path) or name}:
                    parts.setdefault(part, []).append(parameter)
        found: dict[str, Any] = {}
        for part, parameters in parts.items():
            found[f"grad/{part}"] = _norm([p.grad for p in parameters])
            found[f"weight/{part}"] = _norm([p.detach() for p in parameters])
        return found


def _norm(tensors: list[Any]) -> torch.Tensor:
    norms = torch._foreach_norm(tensors)  # noqa: SLF001 -- as clip_grad_norm_ does it
    norm: torch.Tensor = torch.linalg.vector_norm(
        torch.stack([each.to(norms[0].device) for each in norms])
    )
    return norm
