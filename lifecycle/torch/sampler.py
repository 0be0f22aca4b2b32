"""Samplers that shuffle by the epoch."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = ["SeedSampler"]

PARTS = ("sampler", "batch_sampler", "dataset")


class SeedSampler:
    """Tell the samplers of data loaders which epoch begins, in training and in validation.

    OpenMMLab: ``DistSamplerSeedHook``. ``fit`` and ``loop.batches`` tell the data that they
    are given, its ``sampler`` and its ``batch_sampler`` by themselves; this is for loaders that
    they do not see, and for samplers further inside.

    Args:
        loaders: data loaders, or anything with a ``set_epoch``.
    """

    priority: ClassVar[str] = "VERY_HIGH"

    def __init__(self, *loaders: Any) -> None:
        self.told = [part for loader in loaders for part in _parts(loader, set())]
        if not self.told:
            raise TypeError("none of these has a set_epoch, nor a sampler that has one")

    def on_epoch_begin(self, epoch: int) -> None:
        for part in self.told:
            part.set_epoch(epoch)

    def on_test_begin(self, epoch: int | None) -> None:
        if epoch is not None:
            self.on_epoch_begin(epoch)


def _parts(thing: Any, seen: set[int]) -> list[Any]:
    """Return what has a `set_epoch` in a loader, each once."""
    if thing is None or id(thing) in seen:
        return []
    seen.add(id(thing))
    found = [thing] if hasattr(thing, "set_epoch") else []
    return found + [each for name in PARTS for each in _parts(getattr(thing, name, None), seen)]
