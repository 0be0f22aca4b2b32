"""What may be wrong with a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = [
    "CheckpointError",
    "DamagedCheckpointError",
    "ForeignCheckpointError",
    "MismatchError",
    "NewerCheckpointError",
    "NoCheckpointError",
]


class CheckpointError(Exception):
    """A checkpoint cannot be used.

    Args:
        path: of the checkpoint.
        problem: what is wrong with it.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class NoCheckpointError(CheckpointError, FileNotFoundError):
    """There is none."""

    def __init__(self, path: Path, problem: str) -> None:
        CheckpointError.__init__(self, path, problem)

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class DamagedCheckpointError(CheckpointError):
    """It is truncated, incomplete or altered."""


class ForeignCheckpointError(CheckpointError):
    """It was not written by this library."""


class NewerCheckpointError(CheckpointError):
    """It was written by a newer version of this library, in a format not known here."""


class MismatchError(CheckpointError):
    """It does not fit the objects it should be loaded into.

    Args:
        path: of the checkpoint.
        missing: what is there now and the checkpoint lacks.
        unexpected: what only the checkpoint has.
        different: what differs in shape, type or kind, in words.
    """

    def __init__(
        self,
        path: Path,
        missing: Sequence[str],
        unexpected: Sequence[str],
        different: Sequence[str],
    ) -> None:
        parts = [
            f"{title}: {', '.join(each)}"
            for title, each in (
                ("missing from it", missing),
                ("not expected in it", unexpected),
                ("different", different),
            )
            if each
        ]
        super().__init__(path, "does not fit the loop's objects; " + "; ".join(parts))
        self.missing = tuple(missing)
        self.unexpected = tuple(unexpected)
        self.different = tuple(different)
