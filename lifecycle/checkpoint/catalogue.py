"""The checkpoints of a folder: listed, verified, pruned."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lifecycle.checkpoint import store
from lifecycle.checkpoint.errors import CheckpointError
from lifecycle.checkpoint.manifest import Manifest

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

__all__ = ["Record", "list_checkpoints", "prune", "verify"]


class Record(NamedTuple):
    """A checkpoint as it is listed."""

    path: Path
    name: str
    sequence: int
    epoch: int
    """Finished epochs."""

    step: int
    """Finished steps."""

    whole: bool
    """Whether it was saved between two epochs."""

    metric: float | None
    metric_name: str | None
    names: tuple[str, ...]
    """What it is called as the best one of the folder: ``best``, or so for each metric."""

    latest: bool
    """Whether it is the newest one that is intact."""

    size: int
    """Bytes of all its files."""

    intact: bool
    problem: str | None
    """Why it is not intact."""

    @property
    def best(self) -> bool:
        """Whether it is the best one of the folder, by one metric at least."""
        return bool(self.names)


def list_checkpoints(directory: str | os.PathLike[str]) -> list[Record]:
    """Return the checkpoints in a folder, the oldest first.

    ``intact`` says here that the manifest and all files are there at their full size.

    Raises:
        FileNotFoundError: there is no such folder.
        NotADirectoryError: it is a file.
    """
    return _records(Path(directory), thorough=False)


def verify(directory: str | os.PathLike[str], names: Iterable[str] = ()) -> list[Record]:
    """Return the checkpoints in a folder; ``intact`` says that every byte is as it was written.

    Args:
        directory: the folder.
        names: of the checkpoints to look at; all by default.

    Raises:
        FileNotFoundError: there is no such folder, or no checkpoint of that name.
        NotADirectoryError: it is a file.
    """
    wanted = set(names)
    found = _records(Path(directory), thorough=True, names=wanted)
    absent = wanted - {record.name for record in found}
    if absent:
        raise FileNotFoundError(f"{directory} has no checkpoint {', '.join(sorted(absent))}")
    return found


def _records(directory: Path, *, thorough: bool, names: set[str] | None = None) -> list[Record]:
    found: list[Record] = []
    for name in os.listdir(directory):  # noqa: PTH208 -- raises for what is no folder
        match = store.NAME.fullmatch(name)
        if match is not None and (not names or name in names):
            manifest, problem = _inspect(directory / name, thorough=thorough)
            found.append(_record(directory / name, match, manifest, problem))
    found.sort(key=lambda record: record.sequence)
    intact = [record for record in found if record.intact]
    bests = {name: record for record in intact for name in record.names}
    return [
        record._replace(
            latest=record in intact[-1:],
            names=tuple(name for name, best in bests.items() if best is record),
        )
        for record in found
    ]


def _inspect(path: Path, *, thorough: bool) -> tuple[Manifest | None, str | None]:
    manifest = None
    try:
        manifest = Manifest.read(path)
        manifest.check_sizes(path)
        if thorough:
            store.read(path)
    except CheckpointError as error:
        return manifest, error.problem
    except (OSError, ImportError) as error:
        return manifest, str(error)
    return manifest, None


def _record(
    path: Path, match: re.Match[str], manifest: Manifest | None, problem: str | None
) -> Record:
    size = 0
    with contextlib.suppress(OSError):
        size = sum(each.stat().st_size for each in path.iterdir())
    sequence, epoch, step = map(int, match.groups())
    return Record(
        path,
        path.name,
        sequence,
        epoch,
        step,
        whole=manifest is not None and manifest.whole,
        metric=manifest.value if manifest is not None else None,
        metric_name=manifest.metric if manifest is not None else None,
        names=manifest.best if manifest is not None else (),
        latest=False,
        size=size,
        intact=problem is None,
        problem=problem,
    )


def prune(
    directory: str | os.PathLike[str],
    *,
    keep: int = 3,
    keep_every: int | None = None,
    since: int = 0,
    dry_run: bool = False,
) -> list[Path]:
    """Remove old checkpoints: all but the newest ones that are intact, and the best.

    A damaged one goes with those of its age. What killed processes left goes too.

    Args:
        directory: the folder.
        keep: how many of the newest stay.
        keep_every: those saved at the end of each n-th epoch stay as well.
        since: those with a lower number, which another run has written, stay too.
        dry_run: only say what would be removed.

    Returns:
        What was removed.

    Raises:
        ValueError: ``keep`` is less than 1.
        FileNotFoundError: there is no such folder.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, not {keep}")
    root = Path(directory)
    records = [record for record in list_checkpoints(root) if record.sequence >= since]
    intact = [record for record in records if record.intact]
    first = intact[-keep:][0].sequence if intact else 0
    goes = [
        record.path
        for record in records
        if record.sequence < first
        and not record.best
        and not (keep_every and record.whole and record.epoch % keep_every == 0)
    ]
    leftovers = [root / name for name in store.names(root) if store.abandoned(name)]
    if not dry_run:
        _repoint(root, intact)
        for path in goes:
            _remove(path)
        store.remove_leftovers(root)
    return goes + leftovers


def _repoint(directory: Path, intact: list[Record]) -> None:
    """Have ``latest`` and ``best`` name what they should, as after a kill they may not."""
    for record in intact:
        for name in (*record.names, *[store.LATEST] * record.latest):
            if _pointed(directory / name) != record.name:
                store.point(directory, name, record.name)


def _pointed(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return None


def _remove(path: Path) -> None:
    """Remove a checkpoint, so that it never stands there in part under its name."""
    with store.temporary(path.parent, "removed", path.name) as gone:
        path.rename(gone)
