"""Nested batches: what is in them, and moving it to a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["moved"]


def moved(batch: Any, device: torch.device | str) -> Any:
    """Return a batch on a device: tensors in mappings, sequences and named tuples alike.

    Whatever has a method `to` of its own is asked to move itself; the rest stays as it is.

    Args:
        batch: any nesting.
        device: where to.
    """
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        pairs = {key: moved(value, device) for key, value in batch.items()}
        return pairs if type(batch) is dict else type(batch)(pairs)  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(value, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(moved(value, device) for value in batch)
    if hasattr(batch, "to"):
        return batch.to(device)
    return batch
