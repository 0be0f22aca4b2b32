"""What is saved of a run, how it is written, and how it is found again."""

from __future__ import annotations

from lifecycle.checkpoint.adapters import register_adapter
from lifecycle.checkpoint.catalogue import Record, list_checkpoints, prune, verify
from lifecycle.checkpoint.errors import (
    CheckpointError,
    DamagedCheckpointError,
    ForeignCheckpointError,
    MismatchError,
    NewerCheckpointError,
    NoCheckpointError,
)
from lifecycle.checkpoint.subscriber import Checkpoint
from lifecycle.checkpoint.tree import UnsavableError

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "DamagedCheckpointError",
    "ForeignCheckpointError",
    "MismatchError",
    "NewerCheckpointError",
    "NoCheckpointError",
    "Record",
    "UnsavableError",
    "list_checkpoints",
    "prune",
    "register_adapter",
    "verify",
]
