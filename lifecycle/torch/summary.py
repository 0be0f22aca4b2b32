"""What a model is made of."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from lifecycle.subscribers.checks import whole

if TYPE_CHECKING:
    from torch import nn

    from lifecycle.loop import Loop

__all__ = ["ModelSummary"]


class ModelSummary:
    """Print a model's parts with their parameters when a run begins.

    Keras: ``model.summary()``. OpenMMLab: none.

    Args:
        depth: how many names deep to go.
        model: the name of one of the loop's objects, or a module.
        stream: where to; standard error by default.
    """

    priority: ClassVar[str] = "LOW"

    def __init__(
        self, depth: int = 1, *, model: Any = "model", stream: TextIO | None = None
    ) -> None:
        self.depth = whole(depth, 0, "depth is a number of names")
        self.model = model
        self.stream = stream

    def on_train_begin(self, loop: Loop) -> None:
        model = loop.objects[self.model] if isinstance(self.model, str) else self.model
        print(self.text(model), file=self.stream or sys.stderr, flush=True)

    def text(self, model: nn.Module) -> str:
        """Return the table of a model's parts."""
        rows = [("part", "kind", "parameters", "trainable", "MiB")]
        for name, module in model.named_modules():
            depth = len(name.split(".")) if name else 0
            if depth <= self.depth:
                title = "  " * depth + (name.rpartition(".")[2] or "all")
                rows.append((title, type(module).__name__, *_counts(module)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if place < 2 else cell.rjust(width)  # noqa: PLR2004 -- numbers
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        )


def _counts(module: nn.Module) -> tuple[str, str, str]:
    parameters = list(module.parameters())
    size = sum(p.numel() * p.element_size() for p in [*parameters, *module.buffers()])
    trainable = sum(p.numel() for p in parameters if p.requires_grad)
    return f"{sum(p.numel() for p in parameters):,}", f"{trainable:,}", f"{size / (1 << 20):.2f}"
