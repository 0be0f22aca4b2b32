"""The states of the global random generators: taken and put back."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["capture", "restore"]


def capture() -> dict[str, Any]:
    """Return the states of `random`, and of NumPy and torch where they are loaded.

    They are made of plain values and of arrays of the library they belong to.
    """
    version, internal, gauss = random.getstate()
    states: dict[str, Any] = {"python": [version, list(internal), gauss]}
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        name, keys, position, has_gauss, cached = numpy.get_state()
        states["numpy"] = {
            "name": name,
            "keys": keys,
            "position": int(position),
            "has_gauss": int(has_gauss),
            "gauss": float(cached),
        }
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states["torch"]["cuda"] = torch.cuda.get_rng_state_all()
    return states


def restore(states: Mapping[str, Any]) -> None:
    """Put captured states back, of those libraries that are loaded here."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and "numpy" in states:
        saved = states["numpy"]
        numpy.set_state(
            (saved["name"], saved["keys"], saved["position"], saved["has_gauss"], saved["gauss"])
        )
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in states:
        torch.set_rng_state(torch.as_tensor(states["torch"]["cpu"]))
        if "cuda" in states["torch"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all([torch.as_tensor(s) for s in states["torch"]["cuda"]])
