"""Checkpoints on the disk: written so that each is there whole or not at all, and found again.

A checkpoint is a folder of files under a manifest. It is made under another name, brought
to the disk, and renamed; it is removed by being renamed first. So what has a checkpoint's
name is whole, whenever the process was killed. The order of checkpoints is that of the
numbers in their names; no clock decides anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lifecycle.checkpoint import tensorfile
from lifecycle.checkpoint.errors import DamagedCheckpointError, NoCheckpointError
from lifecycle.checkpoint.manifest import MANIFEST, Manifest
from lifecycle.checkpoint.sums import SummedFile, checked, sync_folder
from lifecycle.checkpoint.tree import decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lifecycle.checkpoint.arrays import Leaf
    from lifecycle.checkpoint.sums import Sum

__all__ = [
    "BEST",
    "LATEST",
    "NAME",
    "Content",
    "abandoned",
    "locate",
    "names",
    "next_sequence",
    "point",
    "read",
    "remove_leftovers",
    "temporary",
    "write",
]

STATE: Final = "state.json"
LATEST: Final = "latest"
"""The file that names the newest checkpoint."""

BEST: Final = "best"
"""The file that names the best one; of further metrics, it begins the name."""

NAME: Final = re.compile(r"(\d{6,})-epoch-(\d+)-step-(\d+)")
LEFTOVER: Final = re.compile(r"\.(?:partial|removed)-.*-(\d+)")

_active: set[str] = set()
"""The temporary names that this process is using."""


class Content(NamedTuple):
    """What a checkpoint is made of."""

    document: Any
    """The tree as JSON holds it."""

    arrays: Mapping[str, Mapping[str, Leaf]]
    """For each file of arrays, its name without suffix, the arrays in it."""

    epoch: int
    step: int
    whole: bool
    best: tuple[str, ...] = ()
    metric: str | None = None
    value: float | None = None


def write(directory: Path, sequence: int, content: Content) -> Path:
    """Write a checkpoint and have ``latest``, and the names for the best that it gets, name it.

    Args:
        directory: which holds the checkpoints; made if it is not there.
        sequence: its number, higher than those of all that there are.
        content: what to write.

    Returns:
        The checkpoint's folder.

    Raises:
        OSError: it cannot be written. Nothing of it is left then, and what was there before
            is as it was.
    """
    directory.mkdir(parents=True, exist_ok=True)
    name = f"{sequence:06d}-epoch-{content.epoch}-step-{content.step}"
    with temporary(directory, "partial", name) as partial:
        partial.mkdir()
        _fill(partial, sequence, content)
        sync_folder(partial)
        made = partial.rename(directory / name)
    sync_folder(directory)
    point(directory, LATEST, name)
    for best in content.best:
        point(directory, best, name)
    return made


def _fill(folder: Path, sequence: int, content: Content) -> None:
    files: dict[str, Sum] = {}
    for stem, leaves in content.arrays.items():
        name = f"{stem}.safetensors"
        files[name] = tensorfile.write(folder / name, leaves)
    files[STATE] = _write_text(folder / STATE, json.dumps(content.document))
    manifest = Manifest(
        sequence,
        content.epoch,
        content.step,
        content.whole,
        content.best,
        content.metric,
        content.value,
        files,
    )
    _write_text(folder / MANIFEST, manifest.text())


def _write_text(path: Path, text: str) -> Sum:
    with SummedFile(path) as file:
        file.write(text.encode())
        return file.finish()


def point(directory: Path, name: str, target: str) -> None:
    """Replace a file that names a checkpoint, at once.

    Raises:
        OSError: it cannot be written.
    """
    with temporary(directory, "partial", name) as beside:
        _write_text(beside, f"{target}\n")
        beside.replace(directory / name)
    sync_folder(directory)


@contextlib.contextmanager
def temporary(directory: Path, kind: str, name: str) -> Iterator[Path]:
    """Yield a path for what does not stand under its name; nothing is left there after it.

    The number of the process is in it, so that others know whether they may remove it. A
    restarted container has the same numbers again: what is really under way is in `_active`.
    """
    path = directory / f".{kind}-{name}-{os.getpid()}"
    _delete(path)
    _active.add(path.name)
    try:
        yield path
    finally:
        _delete(path)
        _active.discard(path.name)


def next_sequence(directory: Path) -> int:
    """Return the number of the next checkpoint in a folder, which none has or had lately."""
    found = [int(match[1]) for match in map(_numbered, names(directory)) if match]
    return max(found, default=0) + 1


def _numbered(name: str) -> re.Match[str] | None:
    return re.match(r"(?:\.(?:partial|removed)-)?(\d{6,})-epoch-", name)


def remove_leftovers(directory: Path) -> list[Path]:
    """Remove what killed processes have left half written or half removed.

    Returns:
        What was removed.
    """
    found = [directory / name for name in names(directory) if abandoned(name)]
    for path in found:
        _delete(path)
    return found


def abandoned(name: str) -> bool:
    """Say whether this is the temporary name of a process that is no more."""
    match = LEFTOVER.fullmatch(name)
    if match is None or name in _active:
        return False
    if int(match[1]) == os.getpid():
        return True
    with contextlib.suppress(PermissionError):  # it lives, and is another user's
        try:
            os.kill(int(match[1]), 0)
        except (ProcessLookupError, OverflowError):
            return True
    return False


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def names(directory: Path) -> list[str]:
    """Return the names of what is in a folder; none if it is not there."""
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 -- names, not paths
    except FileNotFoundError:
        return []


def read(path: Path) -> tuple[Manifest, Any]:
    """Read a checkpoint, every byte of it checked.

    Returns:
        Its manifest and its tree.

    Raises:
        CheckpointError: it is damaged, not one of ours, or of a newer version.
        OSError: it cannot be read.
    """
    manifest = Manifest.read(path)
    try:
        stored: dict[str, tensorfile.Stored] = {}
        for name, each in manifest.files.items():
            if name.endswith(".safetensors"):
                stem = name.removesuffix(".safetensors")
                for key, array in tensorfile.read(path / name, each).items():
                    stored[f"{stem}/{key}"] = array
        document = json.loads(bytes(checked(path / STATE, manifest.files[STATE])))
        return manifest, decode(document, stored)
    except FileNotFoundError as error:
        raise DamagedCheckpointError(path, f"{Path(error.filename).name} is not there") from error
    except (ValueError, KeyError) as error:
        raise DamagedCheckpointError(path, str(error)) from error


def locate(path: Path) -> Path:
    """Return the checkpoint that a path means, or the folder of checkpoints that it is.

    A file such as ``latest`` stands for the checkpoint that it names.

    Raises:
        NoCheckpointError: there is nothing, or the file names nothing that is there.
    """
    if not path.exists():
        raise NoCheckpointError(path, "there is no such checkpoint")
    if path.is_dir():
        return path
    name = path.read_text(encoding="utf-8", errors="replace").strip()
    if not NAME.fullmatch(name) or not (path.parent / name).is_dir():
        raise NoCheckpointError(path, "this file names no checkpoint that is there")
    return path.parent / name
