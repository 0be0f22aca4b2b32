"""Objects written for other frameworks: which they are, and what connects them to a loop.

They are known by their methods; no framework is imported for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from eventbus import SubscriptionGroup

__all__ = ["STAGES", "connector"]

Connector = Callable[[Any, Any, Mapping[str, Any]], "SubscriptionGroup"]
"""Takes the loop, the object and the options of ``attach``."""

STAGES: Final = (
    "before_run", "before_train", "before_train_epoch", "before_train_iter", "after_train_iter",
    "after_train_epoch", "before_val", "before_val_epoch", "before_val_iter", "after_val_iter",
    "after_val_epoch", "after_val", "after_train", "before_test", "before_test_epoch",
    "before_test_iter", "after_test_iter", "after_test_epoch", "after_test", "after_run",
    "before_epoch", "after_epoch", "before_iter", "after_iter", "before_save_checkpoint",
    "after_load_checkpoint",
)  # fmt: skip
"""The methods of OpenMMLab's hooks, mmengine's and mmcv's."""


class Kind(NamedTuple):
    """A kind of foreign objects."""

    matches: Callable[[type], bool]
    """Whether a class is of this kind."""

    connector: str
    """``module:function`` that connects its objects."""


def _is_keras_callback(kind: type) -> bool:
    return callable(getattr(kind, "set_model", None)) and hasattr(kind, "set_params")


def _is_hook(kind: type) -> bool:
    return any(callable(getattr(kind, stage, None)) for stage in STAGES)


KINDS: Final = (
    Kind(_is_keras_callback, "lifecycle.bridges.keras_callbacks:connect"),
    Kind(_is_hook, "lifecycle.bridges.openmmlab:connect"),
)


def connector(owner: object) -> Connector | None:
    """Return what connects an object that was written for another framework, else None."""
    for kind in KINDS:
        if kind.matches(type(owner)):
            module, _, function = kind.connector.partition(":")
            found: Connector = getattr(import_module(module), function)
            return found
    return None
