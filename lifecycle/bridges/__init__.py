"""Other frameworks as senders of our points, and their callbacks and hooks on our loop.

One short file per framework; nothing is imported before it is asked for:

* `lifecycle.bridges.keras`: ``KerasBridge`` goes into ``fit(callbacks=[...])``; ``use`` runs
  Keras callbacks on a loop.
* `lifecycle.bridges.mmengine`: ``MMEngineBridge`` is a hook for mmengine's ``Runner``.
* `lifecycle.bridges.openmmlab`: ``use`` runs mmcv's and mmengine's hooks on a loop.

``loop.attach`` knows callbacks and hooks by their methods (see `lifecycle.foreign`).
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["keras", "mmengine", "openmmlab"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
