"""Weights from a plain file: safetensors, or what ``torch.save`` wrote."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    import os

    from torch import nn

__all__ = ["Differences", "load_weights"]

WRAPPERS = ("state_dict", "model", "model_state_dict")
"""Under which of its keys a training checkpoint keeps the weights."""


class Differences(NamedTuple):
    """How a file's weights and a model's differ."""

    missing: tuple[str, ...]
    """In the model alone."""

    unexpected: tuple[str, ...]
    """In the file alone."""

    mismatched: tuple[str, ...]
    """Of another shape, which is told beside the name."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.mismatched)

    def __str__(self) -> str:
        parts = [f"{kind} {', '.join(names)}" for kind, names in self._asdict().items() if names]
        return "; ".join(parts) or "none"


def load_weights(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    strict: bool = True,
    prefix: str | None = None,
) -> Differences:
    """Load weights from a ``.safetensors`` file, or one that ``torch.save`` wrote.

    No code from the file is run: ``torch.load`` is called with ``weights_only=True``. A
    ``module.`` that a parallel wrapper put before all names is taken off, and a training
    checkpoint is looked into for its weights.

    Args:
        model: what takes them.
        path: of the file.
        strict: whether any difference is an error; otherwise what fits is loaded.
        prefix: of the file, take only what begins so, and take the prefix off.

    Returns:
        The differences, which are none where it is strict.

    Raises:
        ValueError: the file holds no weights, or they differ from the model's; all names are
            listed, and nothing was loaded.
    """
    there = _read(Path(path))
    if prefix is not None:
        there = {k.removeprefix(prefix): v for k, v in there.items() if k.startswith(prefix)}
    elif there and all(key.startswith("module.") for key in there):
        there = {key.removeprefix("module."): value for key, value in there.items()}
    here = model.state_dict()
    found = Differences(
        missing=tuple(key for key in here if key not in there),
        unexpected=tuple(key for key in there if key not in here),
        mismatched=tuple(
            f"{key} ({tuple(there[key].shape)} in the file, {tuple(here[key].shape)} in the model)"
            for key in here
            if key in there and there[key].shape != here[key].shape
        ),
    )
    if strict and found:
        raise ValueError(f"{path} does not fit {type(model).__name__}: {found}")
    fitting = {k: v for k, v in there.items() if k in here and v.shape == here[k].shape}
    model.load_state_dict(fitting, strict=False)
    return found


def _read(path: Path) -> dict[str, torch.Tensor]:
    if path.suffix == ".safetensors":
        try:
            from safetensors.torch import load_file  # noqa: PLC0415 -- only for such files
        except ImportError as error:
            raise ImportError('reading safetensors needs pip install "epochbus[torch]"') from error
        weights: dict[str, torch.Tensor] = load_file(path)
        return weights
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} holds more than tensors and plain values, and what it holds would run code"
        ) from error
    for key in WRAPPERS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
            break
    if not _is_weights(loaded):
        raise ValueError(f"{path} holds no weights: a mapping of names to tensors")
    return dict(loaded)


def _is_weights(loaded: Any) -> bool:
    return isinstance(loaded, Mapping) and all(
        isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in loaded.items()
    )
