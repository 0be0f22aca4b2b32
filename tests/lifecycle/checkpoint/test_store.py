"""Checkpoints on the disk: listed, verified, pruned, found, refused."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lifecycle.checkpoint import (
    CheckpointError,
    DamagedCheckpointError,
    ForeignCheckpointError,
    NewerCheckpointError,
    NoCheckpointError,
    arrays,
    list_checkpoints,
    prune,
    resume,
    store,
    verify,
)


def put(directory: Path, epoch: int, *, best: bool = False, whole: bool = True) -> Path:
    leaves = {"model": {"w": arrays.leaf(np.full(5, epoch))}}
    document = {"w": {"$array": "model/w", "dtype": "int64", "shape": [5], "library": "numpy"}}
    content = store.Content(
        document, leaves, epoch, epoch * 10, whole, ("best",) * best, "loss", 1 / (epoch + 1)
    )
    return store.write(directory, store.next_sequence(directory), content)


def epochs(directory: Path) -> list[int]:
    return [record.epoch for record in list_checkpoints(directory)]


def test_a_checkpoint_is_written_and_read(tmp_path: Path) -> None:
    """What was written is read; latest and best name it; nothing else is left."""
    path = put(tmp_path / "a" / "run", 3, best=True)
    manifest, tree = store.read(path)
    assert (manifest.epoch, manifest.step, manifest.best) == (3, 30, ("best",))
    assert tree["w"].tolist() == [3] * 5
    assert store.names(path.parent) == [path.name, "best", "latest"]
    assert store.locate(path.parent / "latest") == store.locate(path.parent / "best") == path


def test_the_list(tmp_path: Path) -> None:
    """The list has epoch, step, metric, size, and which is the newest and the best."""
    for epoch in (1, 2, 3):
        put(tmp_path, epoch, best=epoch < 3)
    (tmp_path / "notes.txt").write_text("not a checkpoint")
    (tmp_path / "elsewhere").mkdir()
    records = list_checkpoints(tmp_path)
    assert [(r.epoch, r.step, r.best, r.latest) for r in records] == [
        (1, 10, False, False),
        (2, 20, True, False),
        (3, 30, False, True),
    ]
    assert records[0].metric == 0.5
    assert records[0].metric_name == "loss"
    assert records[0].size == sum(f.stat().st_size for f in records[0].path.iterdir())
    assert all(record.intact and record.whole and record.problem is None for record in records)


def test_order_is_that_of_the_numbers(tmp_path: Path) -> None:
    """A clock that was set back makes nothing newer or older."""
    paths = [put(tmp_path, epoch) for epoch in range(1, 13)]
    for age, path in enumerate(paths):
        os.utime(path, (1e9 - age * 1e6, 1e9 - age * 1e6))
    assert epochs(tmp_path) == list(range(1, 13))
    found = resume.find(tmp_path, "auto")
    assert found is not None
    assert found[0] == paths[-1]


@pytest.mark.parametrize("keep", [1, 2, 3, 9])
def test_pruning_keeps_the_newest_and_the_best(keep: int, tmp_path: Path) -> None:
    """All others go; the pointers still name what is there."""
    for epoch in range(1, 7):
        put(tmp_path, epoch, best=epoch <= 2)
    before = epochs(tmp_path)
    wanted = [e for e in before if e == 2 or e > 6 - keep]
    told = prune(tmp_path, keep=keep, dry_run=True)
    assert epochs(tmp_path) == before
    assert prune(tmp_path, keep=keep) == told
    assert epochs(tmp_path) == wanted
    assert store.locate(tmp_path / "best").name.startswith("000002")
    assert store.locate(tmp_path / "latest").name.startswith("000006")


def test_pruning_keeps_every_nth_epoch(tmp_path: Path) -> None:
    """Those of each n-th epoch's end stay; one from within an epoch does not count."""
    for epoch in range(1, 9):
        put(tmp_path, epoch, whole=epoch != 6)
    prune(tmp_path, keep=1, keep_every=2)
    assert epochs(tmp_path) == [2, 4, 8]


def test_a_damaged_one_does_not_count_for_keeping(tmp_path: Path) -> None:
    """The newest intact one is never removed, however many damaged ones are newer."""
    paths = [put(tmp_path, epoch) for epoch in (1, 2, 3)]
    for path in paths[1:]:
        (path / "state.json").unlink()
    prune(tmp_path, keep=1)
    assert epochs(tmp_path) == [1, 2, 3]
    put(tmp_path, 4)
    prune(tmp_path, keep=1)
    assert epochs(tmp_path) == [4]


def test_pruning_mends_the_pointers(tmp_path: Path) -> None:
    """Where a kill came before latest was written, it is before anything is removed."""
    put(tmp_path, 1, best=True)
    put(tmp_path, 2)
    (tmp_path / "latest").unlink()
    (tmp_path / "best").write_text("000009-epoch-9-step-9\n")
    prune(tmp_path, keep=1)
    assert store.locate(tmp_path / "latest").name == "000002-epoch-2-step-20"
    assert store.locate(tmp_path / "best").name == "000001-epoch-1-step-10"


def test_keep_is_at_least_one(tmp_path: Path) -> None:
    """Pruning never removes all."""
    with pytest.raises(ValueError, match="keep must be at least 1, not 0"):
        prune(tmp_path, keep=0)


def test_leftovers_of_dead_processes_are_removed(tmp_path: Path) -> None:
    """Those of processes that live stay; one's own number does not protect an old one."""
    put(tmp_path, 1)
    parent = os.getppid()
    gone = [f".partial-000002-epoch-2-step-20-{2**22 + 1}", f".removed-x-{os.getpid()}"]
    stays = [f".partial-000003-epoch-3-step-30-{parent}", f".partial-latest-{parent}"]
    for name in gone + stays[:1]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_bytes(b"x")
    (tmp_path / stays[1]).write_text("x")
    assert sorted(path.name for path in store.remove_leftovers(tmp_path)) == sorted(gone)
    assert set(stays) < set(store.names(tmp_path))
    assert store.next_sequence(tmp_path) == 4


def test_no_folder_at_all(tmp_path: Path) -> None:
    """A folder that is not there, or is a file, is an error of the system's own kind."""
    (tmp_path / "file").touch()
    for function in (list_checkpoints, verify, prune):
        with pytest.raises(FileNotFoundError):
            function(tmp_path / "absent")
        with pytest.raises(NotADirectoryError):
            function(tmp_path / "file")


# -- what is refused


def _rewrite(path: Path, **changes: Any) -> None:
    """Change a manifest and make its checksum right again."""
    content = json.loads((path / "manifest.json").read_text())
    del content["checksum"]
    content |= changes
    checksum = zlib.crc32(json.dumps(content, sort_keys=True).encode())
    (path / "manifest.json").write_text(json.dumps({**content, "checksum": checksum}))


def remove(path: Path, *names: str) -> None:
    for name in names:
        (path / name).unlink()


Damage = Callable[[Path], Any]

DAMAGES: list[tuple[Damage, type[CheckpointError], str]] = [
    (lambda p: remove(p, "manifest.json"), DamagedCheckpointError, "it has no manifest.json"),
    (
        lambda p: (p / "manifest.json").write_text("{"),
        DamagedCheckpointError,
        "manifest.json is damaged",
    ),
    (
        lambda p: (p / "manifest.json").write_bytes(
            (p / "manifest.json").read_bytes().replace(b'"epoch": 2', b'"epoch": 3')
        ),
        DamagedCheckpointError,
        "manifest.json is altered: its checksum is wrong",
    ),
    (
        lambda p: (p / "manifest.json").write_text('{"format": "other"}'),
        ForeignCheckpointError,
        "manifest.json is another program's",
    ),
    (
        lambda p: remove(p, *store.names(p)),
        ForeignCheckpointError,
        "no checkpoint of a run",
    ),
    (
        lambda p: _rewrite(p, version=2, written_by={"epochbus": "9.9"}),
        NewerCheckpointError,
        "{'epochbus': '9.9'} in version 2 of the format; this release reads up to version 1",
    ),
    (
        lambda p: _rewrite(p, files={"../x": {"size": 1, "crc32": [1]}}),
        ForeignCheckpointError,
        "names files elsewhere",
    ),
    (lambda p: remove(p, "state.json"), DamagedCheckpointError, "state.json is not there"),
    (
        lambda p: remove(p, "model.safetensors"),
        DamagedCheckpointError,
        "model.safetensors is not there",
    ),
    (
        lambda p: os.truncate(p / "model.safetensors", 20),
        DamagedCheckpointError,
        "model.safetensors has 20 bytes instead of",
    ),
    (
        lambda p: (p / "model.safetensors").write_bytes(
            bytes((p / "model.safetensors").stat().st_size)
        ),
        DamagedCheckpointError,
        "model.safetensors is altered",
    ),
]


@pytest.mark.parametrize(("damage", "kind", "message"), DAMAGES)
def test_what_is_wrong_is_named_and_refused(
    damage: Damage, kind: type[CheckpointError], message: str, tmp_path: Path
) -> None:
    """Asked for by its path it is refused; auto goes back to the one before, with a warning."""
    good, bad = put(tmp_path, 1), put(tmp_path, 2)
    damage(bad)
    with pytest.raises(kind) as caught:
        resume.find(tmp_path, bad)
    assert message in str(caught.value)
    assert str(bad) in str(caught.value)
    with pytest.warns(RuntimeWarning, match=f"resuming from {good}") as warned:
        found = resume.find(tmp_path, "auto")
    assert found is not None
    assert found[0] == good
    assert str(bad) in str(warned[0].message)
    assert [record.intact for record in verify(tmp_path)] == [True, False]
    assert verify(tmp_path, [good.name])[0].intact


def test_nothing_intact_is_no_fresh_start(tmp_path: Path) -> None:
    """Where all are damaged auto raises, rather than begin anew beside them."""
    os.truncate(put(tmp_path, 1) / "state.json", 3)
    with pytest.raises(DamagedCheckpointError, match="none of its 1 checkpoints can be used"):
        resume.find(tmp_path, "auto")


def test_where_to_resume_from(tmp_path: Path) -> None:
    """Auto, True, a checkpoint, a pointer and a folder all find it."""
    assert resume.find(tmp_path / "run", "auto") is None
    first, second = put(tmp_path / "run", 1, best=True), put(tmp_path / "run", 2)
    run = tmp_path / "run"
    for where, path in (
        ("auto", second),
        (True, second),
        (run, second),
        (str(first), first),
        (run / "best", first),
        (run / "latest", second),
    ):
        found = resume.find(run, where)
        assert found is not None
        assert found[0] == path


@pytest.mark.parametrize("where", [True, "run", "run/best", "run/latest"])
def test_nothing_to_resume_from(
    where: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked for by name must be there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "latest").write_text("000001-epoch-1-step-10\n")
    with pytest.raises(NoCheckpointError, match="run"):
        resume.find(Path("run"), where)
    with pytest.raises(FileNotFoundError):
        resume.find(Path("run"), where)


def test_resume_is_one_of_a_few_things(tmp_path: Path) -> None:
    """Anything else is a TypeError that lists them."""
    with pytest.raises(TypeError, match="resume is 'auto', True, False or a path, not 3"):
        resume.find(tmp_path, 3)


def test_verify_of_an_unknown_name(tmp_path: Path) -> None:
    """A name that is not there is an error, not an empty answer."""
    put(tmp_path, 1)
    with pytest.raises(FileNotFoundError, match="has no checkpoint 000007"):
        verify(tmp_path, ["000007-epoch-1-step-1"])
