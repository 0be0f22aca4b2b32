"""Disks that fail: torn writes, no space, no right to write, clocks that go backwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lifecycle import Checkpoint, Loop
from lifecycle.checkpoint import (
    CheckpointError,
    list_checkpoints,
    resume,
    store,
    verify,
)

AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def run(
    folder: Path, *, epochs: int, size: int = 40, resume: object = False, **options: object
) -> Loop:
    """Train a few epochs with checkpoints."""
    weights = np.zeros(size)

    def step(batch: int) -> dict[str, float]:
        weights[:] += batch * np.random.rand()  # noqa: NPY002 -- its state is saved
        return {"loss": float(weights[0])}

    loop = Loop(step, objects={"weights": weights})
    loop.attach(Checkpoint(folder, **options))  # type: ignore[arg-type]
    loop.fit(range(3), epochs=epochs, resume=resume)
    return loop


def boundaries(size: int) -> list[int]:
    """Return where a write may have stopped: at bytes near the ends, at sectors and pages."""
    places = {0, 1, 7, 8, 9, size // 2, size - 1}
    for unit in (512, 4096):
        places |= {place + by for place in range(0, size, unit) for by in (-1, 0, 1)}
    return sorted(place for place in places if 0 <= place < size)


def test_a_torn_write_at_every_boundary_of_every_file(tmp_path: Path) -> None:
    """Cut off, or filled with zeros from there, it is noticed, and the one before is used."""
    run(tmp_path, epochs=2)
    older, newer = (record.path for record in list_checkpoints(tmp_path))
    tried = 0
    for path in sorted(newer.iterdir()):
        whole = path.read_bytes()
        for place in boundaries(len(whole)):
            for torn in (whole[:place], whole[:place] + bytes(len(whole) - place)):
                if torn == whole:  # the rest was zeros anyway
                    continue
                tried += 1
                path.write_bytes(torn)
                with pytest.raises(CheckpointError):
                    store.read(newer)
                with pytest.warns(RuntimeWarning, match=newer.name):
                    found = resume.find(tmp_path, "auto")
                assert found is not None
                assert found[0] == older
        path.write_bytes(whole)
        assert all(record.intact for record in verify(tmp_path))
    assert tried > 100


@pytest.mark.parametrize("files", range(5))
def test_a_kill_after_any_file_leaves_nothing_under_a_checkpoints_name(
    files: int, tmp_path: Path
) -> None:
    """However far the writing came, what stands under the names are whole checkpoints."""
    run(tmp_path, epochs=2)
    newest = list_checkpoints(tmp_path)[-1].path
    partial = tmp_path / f".partial-000003-epoch-3-step-9-{2**22 + 1}"
    partial.mkdir()
    for path in sorted(newest.iterdir())[:files]:
        shutil.copy(path, partial)
    assert [record.sequence for record in verify(tmp_path)] == [1, 2]
    run(tmp_path, epochs=3, resume="auto")
    assert [record.epoch for record in verify(tmp_path)] == [1, 2, 3]
    assert not partial.exists()


def test_a_kill_between_a_checkpoint_and_its_pointer(tmp_path: Path) -> None:
    """The newest is used though latest does not name it yet, and latest is mended."""
    run(tmp_path, epochs=2)
    first, second = list_checkpoints(tmp_path)
    (tmp_path / "latest").write_text(f"{first.name}\n")
    assert run(tmp_path, epochs=3, resume="auto").state.epochs_done == 3
    assert store.locate(tmp_path / "latest").name == list_checkpoints(tmp_path)[-1].name
    assert second.path.exists()


def test_a_torn_pointer_does_not_matter(tmp_path: Path) -> None:
    """A run resumes whatever stands in latest."""
    run(tmp_path, epochs=2)
    for text in ("", "0000", "\0" * 24, "../../etc/passwd\n"):
        (tmp_path / "latest").write_text(text)
        found = resume.find(tmp_path, "auto")
        assert found is not None
        assert found[1].epoch == 2


def test_a_clock_that_was_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints that seem older than those before are newer all the same."""
    run(tmp_path, epochs=2)
    for record in list_checkpoints(tmp_path):
        for path in (record.path, *record.path.iterdir()):
            os.utime(path, (4e9, 4e9))  # in 2096
    monkeypatch.setattr(time, "time", lambda: 0.0)
    loop = run(tmp_path, epochs=5, keep=2, resume="auto")
    assert loop.state.epochs_done == 5
    assert [record.epoch for record in list_checkpoints(tmp_path)] == [4, 5]
    assert store.locate(tmp_path / "latest").name == "000005-epoch-5-step-15"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 1 MiB in memory."""
    if not AS_ROOT or shutil.which("mount") is None:
        pytest.skip("mounting a small disk takes root")
    folder = tmp_path / "disk"
    folder.mkdir()
    command: list[str | Path] = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("background", [False, True])
def test_a_full_disk(small_disk: Path, background: bool) -> None:
    """The run fails with the system's error; earlier checkpoints stay, no half file does."""
    size = 30_000  # a few checkpoints of 240 kB fit
    with pytest.raises(OSError, match="No space left") as caught:
        run(small_disk, epochs=9, size=size, keep=None, background=background)
    assert any("no checkpoint could be written" in note for note in caught.value.__notes__)
    records = verify(small_disk)
    assert len(records) >= 2
    assert [record.epoch for record in records] == list(range(1, len(records) + 1))
    assert all(record.intact for record in records)
    left = [name for name in store.names(small_disk) if name.startswith(".")]
    assert left == []


def test_a_full_disk_with_a_warning(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With errors="warn" training goes on, and saves again once there is space."""
    filler = small_disk / "filler"
    filler.write_bytes(bytes(700_000))
    weights = np.zeros(30_000)
    loop = Loop(lambda _: None, objects={"weights": weights})
    loop.attach(Checkpoint(small_disk, errors="warn", keep=1))
    loop.on("epoch_begin", at=(3,))(filler.unlink)
    loop.fit(range(3), epochs=5)
    assert "no checkpoint could be written" in caplog.text
    assert [record.epoch for record in verify(small_disk)] == [5]


READ_ONLY = """
import os, sys
import numpy
from lifecycle import Checkpoint, History, Loop
loop = Loop(lambda batch: None)
loop.fit(range(1))  # so that all is imported
if os.geteuid() == 0:  # who may write anywhere
    os.setuid(65534)
try:
    loop.attach(Checkpoint(sys.argv[1]))
    loop.fit(range(3))
    print("trained")
except PermissionError as error:
    print("refused", error)
"""


def test_a_read_only_directory() -> None:
    """It is refused before a batch is trained."""
    with tempfile.TemporaryDirectory() as made:  # not tmp_path, where others may not look
        Path(made).chmod(0o755)
        folder = Path(made, "run")
        folder.mkdir()
        folder.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, folder],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[2],
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused checkpoints cannot be written to"), done.stdout
    assert "trained" not in done.stdout
