"""CSVLogger: a file that agrees with the run, also after a crash and a resume."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import pytest

from lifecycle import Loop
from lifecycle.subscribers import CSVLogger

if TYPE_CHECKING:
    from pathlib import Path


def run(logger: CSVLogger, losses: list[float], **options: Any) -> Loop:
    """Run one epoch per loss, each of one batch with that loss."""
    loop = Loop(lambda batch: {"loss": batch})
    loop.attach(logger)
    loop.fit(lambda epoch: [losses[epoch]], epochs=len(losses), **options)
    return loop


def rows(path: Path) -> list[dict[str, str]]:
    """Read a file as csv does."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_one_row_per_epoch(tmp_path: Path) -> None:
    """The header has the epoch and the metrics; numbers read back as they were."""
    path = tmp_path / "deep" / "log.csv"
    run(CSVLogger(path), [0.1, 1 / 3])
    assert path.read_text() == f"epoch,loss\n0,0.1\n1,{1 / 3!r}\n"


def test_a_metric_that_comes_later_gets_its_column(tmp_path: Path) -> None:
    """Validation every second epoch, and keys of later epochs, are kept (Keras lost them)."""
    path = tmp_path / "log.csv"
    loop = Loop(lambda batch: {"loss": 1.0}, lambda batch: {"loss": 2.0})
    loop.on("epoch_end", at=[2])(lambda logs: logs.update(extra=5))
    loop.attach(CSVLogger(path))
    loop.fit([1], epochs=4, validation_data=[1], validation_freq=2)
    assert [row["val_loss"] for row in rows(path)] == ["", "2.0", "", "2.0"]
    assert [row["extra"] for row in rows(path)] == ["", "", "5", ""]
    assert [row["epoch"] for row in rows(path)] == ["0", "1", "2", "3"]


def test_no_column_is_made_up(tmp_path: Path) -> None:
    """Without validation there is no val_ column."""
    run(CSVLogger(tmp_path / "log.csv"), [1.0])
    assert list(rows(tmp_path / "log.csv")[0]) == ["epoch", "loss"]


def test_what_others_add_to_the_logs_is_in_the_row(tmp_path: Path) -> None:
    """A subscriber connected later, of normal priority, is seen by the logger."""
    path = tmp_path / "log.csv"
    loop = Loop(lambda batch: {"loss": 1.0})
    loop.attach(CSVLogger(path))
    loop.on("epoch_end")(lambda logs: logs.update(lr=0.5))
    loop.fit([1], epochs=1)
    assert rows(path)[0]["lr"] == "0.5"


def test_a_run_that_goes_on_writes_what_a_whole_one_would(tmp_path: Path) -> None:
    """Rows at or past the resumed epoch are dropped, and no second header is written."""
    whole, parts = tmp_path / "whole.csv", tmp_path / "parts.csv"
    losses = [5.0, 4.0, 3.0, 2.0]
    run(CSVLogger(whole), losses)
    run(CSVLogger(parts), losses[:3])
    run(CSVLogger(parts), losses, initial_epoch=2)
    assert parts.read_bytes() == whole.read_bytes()


def test_a_column_goes_with_the_rows_that_it_came_with(tmp_path: Path) -> None:
    """The row of an epoch that was cut does not leave its columns before those of the whole one."""
    path = tmp_path / "log.csv"
    path.write_text("epoch,loss,extra,val_loss\n0,5.0,,\n1,4.0,7,\n2,3.0,,6\n")
    run(CSVLogger(path), [5.0, 4.0], initial_epoch=1)
    assert path.read_text() == "epoch,loss\n0,5.0\n1,4.0\n"


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    """Wherever the file was cut off, the resumed run's file is the whole run's."""
    path = tmp_path / "log.csv"
    losses = [5.25, 4.125, 3.5, 2.0]
    run(CSVLogger(path), losses)
    whole = path.read_bytes()
    second_row = len(b"epoch,loss\n0,5.25\n1,4.125\n")
    for size in range(second_row, len(whole)):
        path.write_bytes(whole[:size])
        run(CSVLogger(path), losses, initial_epoch=2)
        assert path.read_bytes() == whole


def test_a_file_torn_inside_a_character_is_read(tmp_path: Path) -> None:
    """Half of a multi-byte character at the end is dropped with its line."""
    path = tmp_path / "log.csv"
    path.write_bytes("epoch,größe\n0,1\n1,é".encode()[:-1])
    run(CSVLogger(path), [1.0, 2.0], initial_epoch=1)
    assert rows(path)[0]["größe"] == "1"
    assert rows(path)[1]["loss"] == "2.0"


def test_a_new_run_starts_a_new_file_unless_told_to_append(tmp_path: Path) -> None:
    """Append keeps the rows of earlier runs below one header."""
    path = tmp_path / "log.csv"
    run(CSVLogger(path), [1.0, 2.0])
    run(CSVLogger(path), [3.0])
    assert path.read_text() == "epoch,loss\n0,3.0\n"
    run(CSVLogger(path, append=True), [4.0])
    assert path.read_text() == "epoch,loss\n0,3.0\n0,4.0\n"


def test_resuming_a_second_run_leaves_the_first_alone(tmp_path: Path) -> None:
    """Only the last run's rows are compared with the resumed epoch."""
    path = tmp_path / "log.csv"
    run(CSVLogger(path), [1.0, 2.0, 3.0])
    run(CSVLogger(path, append=True), [4.0, 5.0])
    run(CSVLogger(path, append=True), [4.0, 6.0], initial_epoch=1)
    assert [row["loss"] for row in rows(path)] == ["1.0", "2.0", "3.0", "4.0", "6.0"]


def test_rows_can_be_written_by_step(tmp_path: Path) -> None:
    """By step each n-th batch's own values are written, and a resume goes by the step."""
    path = tmp_path / "log.csv"
    loop = Loop(lambda batch: {"loss": batch})
    loop.attach(CSVLogger(path, by="step", every=2))
    loop.fit([1.0, 2.0, 3.0], epochs=2)
    assert path.read_text() == "step,epoch,loss\n1,0,2.0\n3,1,1.0\n5,1,3.0\n"


def test_a_run_stopped_in_its_first_epoch_is_no_trouble(tmp_path: Path) -> None:
    """Stopped before the first batch there is an empty file; the partial epoch has a row."""
    path = tmp_path / "log.csv"
    loop = Loop(lambda batch: {"loss": batch})
    loop.attach(CSVLogger(path))
    with loop.connected("train_begin", lambda loop: loop.stop("no")):
        loop.fit([1.0], epochs=1)
    assert path.read_text() == ""
    with loop.connected("train_batch_end", lambda loop: loop.stop("enough")):
        loop.fit([1.0, 2.0], epochs=2)
    assert path.read_text() == "epoch,loss\n0,1.0\n"


def test_texts_with_separators_and_other_values_are_kept(tmp_path: Path) -> None:
    """What csv must quote is quoted; None is an empty cell; another separator may be chosen."""
    path = tmp_path / "log.csv"
    loop = Loop(lambda batch: {"loss": 1.0})
    loop.on("epoch_end")(lambda logs: logs.update(note='a;"b"', none=None, several=[1, 2]))
    loop.attach(CSVLogger(path, separator=";"))
    loop.fit([1], epochs=2)
    with path.open(newline="") as file:
        read = list(csv.DictReader(file, delimiter=";"))
    assert read[1] == {
        "epoch": "1", "loss": "1.0", "note": 'a;"b"', "none": "", "several": "[1, 2]",
    }  # fmt: skip


def test_a_path_that_cannot_be_written_fails_before_the_first_batch(tmp_path: Path) -> None:
    """A directory in the file's place is an error at train_begin."""
    loop = Loop(lambda batch: pytest.fail("no batch should run"))
    loop.attach(CSVLogger(tmp_path))
    with pytest.raises(OSError, match="director"):
        loop.fit([1], epochs=1)
    assert [path.name for path in tmp_path.parent.glob("*.tmp")] == []


def test_bad_options_are_refused_at_once() -> None:
    """Path, separator, by and every are checked at construction."""
    for path in ("", "."):
        with pytest.raises(ValueError, match="path is the name of a file, not '"):
            CSVLogger(path)
    for separator in ("", "::", None):
        with pytest.raises(ValueError, match="separator is a single character, not "):
            CSVLogger("x.csv", separator=separator)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='by must be "epoch" or "step"'):
        CSVLogger("x.csv", by="batch")
    with pytest.raises(ValueError, match="every is a number of epochs"):
        CSVLogger("x.csv", every=0)
    assert repr(CSVLogger("x.csv")) == "<CSVLogger 'x.csv'>"


def test_a_file_that_is_not_ours_is_kept_as_it_is(tmp_path: Path) -> None:
    """Rows whose epoch cannot be read are not judged, and a missing file is an empty one."""
    path = tmp_path / "log.csv"
    path.write_text("epoch,note\nmean,x\n")
    run(CSVLogger(path), [1.0, 2.0], initial_epoch=1)
    assert [row["epoch"] for row in rows(path)] == ["mean", "1"]
    run(CSVLogger(tmp_path / "new.csv", append=True), [1.0])
    assert len(rows(tmp_path / "new.csv")) == 1
