"""The manifest of a checkpoint: what it is, which files it has, and their checksums."""

from __future__ import annotations

import json
import math
import platform
import sys
import zlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, NamedTuple

from lifecycle.checkpoint.errors import (
    DamagedCheckpointError,
    ForeignCheckpointError,
    NewerCheckpointError,
)
from lifecycle.checkpoint.sums import Sum

__all__ = ["MANIFEST", "Manifest"]

MANIFEST: Final = "manifest.json"

FORMAT: Final = "epochbus-checkpoint"

VERSION: Final = 1
"""Of the format. One that only adds to it keeps the number."""


class Manifest(NamedTuple):
    """What stands in a checkpoint's manifest."""

    sequence: int
    """Checkpoints of one folder are numbered; which is newer is told by this alone."""

    epoch: int
    """Finished epochs."""

    step: int
    """Finished steps."""

    whole: bool
    """Whether it was saved between two epochs."""

    best: tuple[str, ...]
    """The names that it got as the best until then: ``best``, or one for each metric."""

    metric: str | None
    """The name of the metric that decides what is best, the first of them."""

    value: float | None
    """What it was; None where it was not there, and for NaN."""

    files: dict[str, Sum]

    def text(self) -> str:
        """Return the manifest as JSON."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            **self._asdict(),
            "files": {name: each._asdict() for name, each in self.files.items()},
            "written_by": _versions(),
        }
        if self.value is not None and not math.isfinite(self.value):
            content["value"] = None
        # Nothing after the last brace, so that a cut anywhere shows.
        return json.dumps({**content, "checksum": _checksum(content)}, indent=1)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of the checkpoint in a folder.

        Raises:
            ForeignCheckpointError: it is not one of ours.
            NewerCheckpointError: it is of a later version of the format.
            DamagedCheckpointError: it is not what was written.
            OSError: it cannot be read.
        """
        try:
            content = json.loads((folder / MANIFEST).read_bytes())
        except FileNotFoundError:
            if not folder.exists():
                raise
            raise _incomplete(folder) from None
        except ValueError as error:
            raise DamagedCheckpointError(folder, f"{MANIFEST} is damaged: {error}") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ForeignCheckpointError(
                folder, f"{MANIFEST} is another program's, not that of a {FORMAT}"
            )
        found = content.get("version")
        if isinstance(found, int) and found > VERSION:
            raise NewerCheckpointError(
                folder,
                f"written by {content.get('written_by')} in version {found} of the format; this"
                f" release reads up to version {VERSION}: upgrade epochbus",
            )
        return cls._checked(folder, content)

    @classmethod
    def _checked(cls, folder: Path, content: dict[str, Any]) -> Manifest:
        checksum = content.pop("checksum", None)
        if checksum != _checksum(content):
            raise DamagedCheckpointError(folder, f"{MANIFEST} is altered: its checksum is wrong")
        files = {
            str(name): Sum(each["size"], tuple(each["crc32"]))
            for name, each in content["files"].items()
        }
        if any(Path(name).name != name for name in files):
            raise ForeignCheckpointError(folder, f"{MANIFEST} names files elsewhere")
        plain = {key: content[key] for key in cls._fields if key not in {"best", "files"}}
        best = tuple(map(str, content["best"]))
        if any(Path(name).name != name or not name.startswith("best") for name in best):
            raise ForeignCheckpointError(folder, f"{MANIFEST} names files elsewhere")
        return cls(**plain, best=best, files=files)

    def check_sizes(self, folder: Path) -> None:
        """Check that all files are there at their full size.

        Raises:
            DamagedCheckpointError: one is not.
        """
        for name, each in self.files.items():
            try:
                size = (folder / name).stat().st_size
            except OSError as error:
                raise DamagedCheckpointError(folder, f"{name} is not there") from error
            if size != each.size:
                raise DamagedCheckpointError(
                    folder, f"{name} has {size} bytes instead of {each.size}"
                )


def _incomplete(folder: Path) -> DamagedCheckpointError | ForeignCheckpointError:
    if (folder / "state.json").exists():
        return DamagedCheckpointError(folder, f"it has no {MANIFEST}")
    return ForeignCheckpointError(folder, f"no checkpoint of a run: it has no {MANIFEST}")


def _checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _versions() -> dict[str, str]:
    """Return the versions of what has taken part."""
    found = {"python": platform.python_version()}
    for name in ("epochbus", "numpy", "torch", "jax"):
        if name == "epochbus" or name in sys.modules:
            try:
                found[name] = version(name)
            except PackageNotFoundError:  # run from its sources
                found[name] = "unknown"
    return found
