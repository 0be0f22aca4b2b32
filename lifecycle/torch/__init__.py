"""PyTorch: a step for plain modules, schedules, and subscribers that know tensors.

Each part is imported when it is first asked for; torch itself is too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lifecycle.torch.ema import EMA
    from lifecycle.torch.freeze import FreezeUntil
    from lifecycle.torch.grads import GradStats
    from lifecycle.torch.memory import EmptyCache, MemoryStats
    from lifecycle.torch.metrics import Collected
    from lifecycle.torch.policies import (
        Chain,
        Cosine,
        CosineRestart,
        Cyclic,
        Exp,
        Fixed,
        FlatCosine,
        Inv,
        Linear,
        OneCycle,
        Poly,
        Step,
        WarmUp,
    )
    from lifecycle.torch.profiler import TorchProfiler
    from lifecycle.torch.rates import LRMonitor
    from lifecycle.torch.sampler import SeedSampler
    from lifecycle.torch.schedulers import TorchScheduler
    from lifecycle.torch.schedules import LRSchedule, MomentumSchedule
    from lifecycle.torch.step import TorchStep
    from lifecycle.torch.summary import ModelSummary
    from lifecycle.torch.weights import Differences, load_weights

__all__ = [
    "EMA",
    "Chain",
    "Collected",
    "Cosine",
    "CosineRestart",
    "Cyclic",
    "Differences",
    "EmptyCache",
    "Exp",
    "Fixed",
    "FlatCosine",
    "FreezeUntil",
    "GradStats",
    "Inv",
    "LRMonitor",
    "LRSchedule",
    "Linear",
    "MemoryStats",
    "ModelSummary",
    "MomentumSchedule",
    "OneCycle",
    "Poly",
    "SeedSampler",
    "Step",
    "TorchProfiler",
    "TorchScheduler",
    "TorchStep",
    "WarmUp",
    "load_weights",
]

_MODULES = {
    "EMA": "ema",
    "FreezeUntil": "freeze",
    "GradStats": "grads",
    "EmptyCache": "memory",
    "MemoryStats": "memory",
    "Collected": "metrics",
    "TorchProfiler": "profiler",
    "LRMonitor": "rates",
    "SeedSampler": "sampler",
    "TorchScheduler": "schedulers",
    "LRSchedule": "schedules",
    "MomentumSchedule": "schedules",
    "TorchStep": "step",
    "ModelSummary": "summary",
    "Differences": "weights",
    "load_weights": "weights",
}
"""Where each name lives; the others are policies."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'policies')}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f'{name} needs torch: pip install "epochbus[torch]"') from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
