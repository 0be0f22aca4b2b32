"""The loss among what a model returns that computes its own losses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["own_losses"]


def own_losses(outputs: Any) -> tuple[torch.Tensor, dict[str, Any]] | None:
    """Find the loss in a model's outputs, as the models of OpenMMLab return it.

    A tensor of one element is the loss. In a mapping it is what stands under ``loss``;
    failing that, the sum of all entries with the word loss in their names, such as
    ``loss_cls`` or ``rpn.loss_bbox`` but not ``lossless``, of each its mean, or where it is a
    list the sum of its means.

    Returns:
        The loss, and all numbers of the mapping to log; None if there is no loss.
    """
    if isinstance(outputs, torch.Tensor):
        return (outputs.reshape(()), {}) if outputs.numel() == 1 else None
    if not isinstance(outputs, Mapping):
        return None
    logs = {str(key): one for key, value in outputs.items() if (one := _one(value)) is not None}
    if "loss" in logs:
        return logs["loss"], logs
    parts = [value for key, value in logs.items() if "loss" in re.split(r"[^a-zA-Z]+", key)]
    if not parts:
        return None
    loss = parts[0]
    for part in parts[1:]:
        loss = loss + part
    return loss, {"loss": loss, **logs}


def _one(value: Any) -> torch.Tensor | None:
    """Return the mean of a tensor, or the sum of a list's means; None where it is neither."""
    if isinstance(value, torch.Tensor):
        return value.mean() if value.is_floating_point() or value.numel() == 1 else None
    if isinstance(value, list | tuple) and value:
        means = [_one(each) for each in value]
        if all(mean is not None for mean in means):
            return torch.stack([mean for mean in means if mean is not None]).sum()
    return None
