"""Which checkpoint a run goes on from."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from lifecycle.checkpoint import catalogue, store
from lifecycle.checkpoint.errors import CheckpointError, DamagedCheckpointError, NoCheckpointError
from lifecycle.checkpoint.manifest import MANIFEST, Manifest

__all__ = ["find"]


def find(directory: Path, resume: object) -> tuple[Path, Manifest, Any] | None:
    """Return the checkpoint to resume from: its path, manifest and tree.

    Args:
        directory: where the checkpoints of the run are.
        resume: ``"auto"`` for the newest there is, or None where there is none; True for
            the newest, of which there must be one; or a path: of a checkpoint, of a file that
            names one, such as ``run/best``, or of a folder of checkpoints.

    Raises:
        CheckpointError: the one that is asked for, or all there are, cannot be used.
        TypeError: ``resume`` is none of these.
    """
    if resume == "auto":
        return _newest(directory) if directory.is_dir() else None
    if resume is True:
        path = directory
    elif isinstance(resume, str | os.PathLike):
        path = Path(resume)
    else:
        raise TypeError(f"resume is 'auto', True, False or a path, not {resume!r}")
    path = store.locate(path)
    if _is_checkpoint(path):
        return (path, *store.read(path))
    found = _newest(path)
    if found is None:
        raise NoCheckpointError(path, "there is no checkpoint in this folder")
    return found


def _is_checkpoint(path: Path) -> bool:
    """Whether a folder is to be read as a checkpoint, also as a damaged one."""
    return store.NAME.fullmatch(path.name) is not None or (path / MANIFEST).exists()


def _newest(directory: Path) -> tuple[Path, Manifest, Any] | None:
    """Return the newest checkpoint that is intact; warn of newer ones that are not."""
    skipped: list[CheckpointError] = []
    for record in reversed(catalogue.list_checkpoints(directory)):
        try:
            found = (record.path, *store.read(record.path))
        except CheckpointError as error:
            skipped.append(error)
            continue
        if skipped:
            listed = "; ".join(map(str, skipped))
            warnings.warn(
                f"resuming from {record.path}, not from newer checkpoints that cannot be used:"
                f" {listed}",
                RuntimeWarning,
                stacklevel=2,
            )
        return found
    if skipped:
        raise DamagedCheckpointError(
            directory,
            f"none of its {len(skipped)} checkpoints can be used: "
            + "; ".join(f"{error.path.name}: {error.problem}" for error in skipped)
            + ". Remove them to start anew",
        )
    return None
