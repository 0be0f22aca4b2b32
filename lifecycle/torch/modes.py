"""Evaluation mode for a while, and each module's own mode back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Modes"]


class Modes:
    """Puts a model into evaluation mode; leaving restores what each module was in.

    Args:
        model: whose modes.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._before: list[list[tuple[nn.Module, bool]]] = []

    def enter(self) -> None:
        """Put the model into evaluation mode. It nests."""
        self._before.append([(each, each.training) for each in self.model.modules()])
        self.model.eval()

    def leave(self) -> None:
        """Restore what the last `enter` found, each module by itself: some may be frozen."""
        if self._before:
            for module, training in self._before.pop():
                module.training = training
