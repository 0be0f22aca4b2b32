"""LogLines: text for people, JSON for programs."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lifecycle import Loop
from lifecycle.subscribers import LogLines
from lifecycle.subscribers.log_lines import _memory

if TYPE_CHECKING:
    from pathlib import Path


def lines(path: Path, stage: str | None = None) -> list[dict[str, Any]]:
    """Read a file of JSON lines, of one stage."""
    read = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in read if stage in {None, line["stage"]}]


def test_a_line_per_interval_with_means_over_the_interval(tmp_path: Path) -> None:
    """Each line has the means since the line before it, also across an epoch's end."""
    path = tmp_path / "deep" / "log.jsonl"
    loop = Loop(lambda batch: {"loss": batch})
    loop.attach(LogLines(2, path=path, quiet=True))
    loop.fit([1.0, 3.0, 5.0, 7.0, 100.0], epochs=2)
    train = lines(path, "train")
    assert [line["loss"] for line in train] == pytest.approx([2.0, 6.0, 1.0, 4.0, 53.5])
    assert [line["step"] for line in train] == [1, 3, 5, 7, 9]
    assert [(line["epoch"], line["batch"]) for line in train][:3] == [(0, 1), (0, 3), (1, 0)]
    assert [line["loss"] for line in lines(path, "epoch")] == pytest.approx([23.2, 23.2])


def test_an_epoch_shorter_than_the_interval_has_its_line(tmp_path: Path) -> None:
    """With an interval longer than the run there is a line per epoch, with validation in it."""
    path = tmp_path / "log.jsonl"
    loop = Loop(lambda batch: {"loss": 1.0}, lambda batch: {"loss": 2.0})
    loop.attach(LogLines(1000, path=path, quiet=True))
    loop.fit([1, 2], epochs=2, validation_data=[1])
    assert [line["val_loss"] for line in lines(path)] == [2.0, 2.0]


def test_times_memory_what_is_left_and_the_learning_rate_are_told(tmp_path: Path) -> None:
    """The record has the learning rate of an optimizer among the objects, and the times."""
    path = tmp_path / "log.jsonl"
    optimizer = SimpleNamespace(param_groups=[{"lr": 0.5}])
    loop = Loop(lambda batch: {"loss": 1.0}, objects={"optimizer": optimizer})
    loop.attach(LogLines(1, path=path, quiet=True))
    loop.fit([1, 2], epochs=2)
    record = lines(path, "train")[0]
    assert record["lr"] == 0.5
    assert {"time", "data_time", "step_time", "eta"} <= set(record)
    assert record["eta"] > 0 == lines(path, "train")[-1]["eta"]
    if sys.platform != "win32":
        assert record["memory"] > 1


def test_the_text_line_reads_as_one_expects() -> None:
    """Epoch and batch count from one, of how many; the parts stand between bars."""
    stream = io.StringIO()
    loop = Loop(lambda batch: {"loss": 0.123456})
    loop.attach(LogLines(2, stream=stream))
    loop.fit([1, 2], epochs=2)
    first, *_ = stream.getvalue().splitlines()
    assert first.startswith("epoch 1/2 | batch 2/2 | loss 0.1235 | data ")
    assert "ms step " in first
    assert " | eta " in first


def test_lines_go_to_standard_error_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    """A test pass of its own has a line there too, named if its data is."""
    loop = Loop(test_step=lambda batch: {"loss": 1.0})
    loop.attach(LogLines())
    loop.evaluate([1, 2])
    captured = capsys.readouterr()
    assert captured.err.startswith("test | loss 1")
    assert captured.out == ""


def test_what_json_cannot_hold_is_null(tmp_path: Path) -> None:
    """Every line can be read by a strict JSON reader, a NaN loss included."""
    path = tmp_path / "log.jsonl"
    loop = Loop(lambda batch: {"loss": batch})
    loop.attach(LogLines(1, path=path, quiet=True))
    loop.fit([float("nan"), 1.0], epochs=1)
    assert "NaN" not in path.read_text()
    assert lines(path)[0]["loss"] is None


def test_metrics_are_read_once_per_line() -> None:
    """Over an interval a metric is turned into a number once, not once per batch."""

    class Scalar:
        """An array on a device, as far as the logs can tell."""

        reads = 0
        shape = ()
        ndim = 0
        dtype = np.dtype("float32")

        def __float__(self) -> float:
            Scalar.reads += 1
            return 1.0

        def __add__(self, other: object) -> Scalar:
            return self

        __radd__ = __iadd__ = __mul__ = __truediv__ = __add__

    loop = Loop(lambda batch: {"loss": Scalar()})
    loop.attach(LogLines(50, quiet=True))
    loop.fit(range(100), epochs=1)
    assert Scalar.reads <= 6


def test_a_resumed_run_drops_the_lines_it_writes_again(tmp_path: Path) -> None:
    """A new run starts a new file; append keeps it; lines past the resumed step are dropped."""
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 0}\n{"step": 1}\nnot json\n{"step": 2}\n{"step": 3}\n{"st')
    loop = Loop()
    loop.state.steps_before = 2
    LogLines(1, path=path, quiet=True).on_train_begin(loop, None, 0, None)
    assert path.read_text() == '{"step": 0}\n{"step": 1}\nnot json\n'
    loop.state.steps_before = 0
    LogLines(1, path=path, append=True).on_train_begin(loop, None, 0, None)
    assert len(path.read_text().splitlines()) == 3
    LogLines(1, path=path).on_train_begin(loop, None, 0, None)
    assert path.read_text() == ""


def test_the_line_of_an_epoch_that_was_cut_is_dropped_by_the_run_that_ends_it(
    tmp_path: Path,
) -> None:
    """It tells of a step before the one that the run goes on from, but of the same epoch."""
    path = tmp_path / "log.jsonl"
    kept = '{"stage": "epoch", "epoch": 0, "step": 1}\n{"stage": "train", "epoch": 1, "step": 2}\n'
    path.write_text(kept + '{"stage": "epoch", "epoch": 1, "step": 2}\n')
    loop = Loop()
    loop.state.steps_before = 3
    LogLines(1, path=path, quiet=True).on_train_begin(loop, None, 1, None)
    assert path.read_text() == kept


def test_the_interval_is_a_number_of_steps() -> None:
    """0 and fractions are refused."""
    with pytest.raises(ValueError, match="every is a number of steps"):
        LogLines(0)


def test_a_path_without_a_name_is_refused() -> None:
    """The empty string, as from an option that was left empty, names no file."""
    with pytest.raises(ValueError, match="path is the name of a file, not ''"):
        LogLines(path="")


def test_the_learning_rate_in_the_logs_comes_first() -> None:
    """What a schedule logged is told rather than what the optimizer has, and told once."""
    stream = io.StringIO()
    optimizer = SimpleNamespace(param_groups=[{"lr": 0.5}])
    loop = Loop(lambda batch: {"loss": 1.0, "lr": 0.25}, objects={"optimizer": optimizer})
    loop.attach(LogLines(1, stream=stream))
    loop.fit([1], epochs=1)
    assert stream.getvalue().splitlines()[0].count("lr 0.25") == 1
    assert "lr 0.5" not in stream.getvalue()


def test_several_test_sets_are_told_apart() -> None:
    """The name of the data is in the line of a pass of its own; without values it is short."""
    stream = io.StringIO()
    loop = Loop(test_step=lambda batch: {"loss": 1.0})
    loop.attach(LogLines(stream=stream))
    loop.evaluate({"clean": [1], "noisy": [2]})
    assert [line.split(" | ")[0] for line in stream.getvalue().splitlines()] == [
        "test clean",
        "test noisy",
    ]


def test_what_the_platform_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the resource module there is no memory; with CUDA there is the device's as well."""
    stream = io.StringIO()
    loop = Loop(test_step=lambda batch: None)
    loop.attach(LogLines(stream=stream))
    monkeypatch.setitem(sys.modules, "resource", None)
    cuda = SimpleNamespace(is_available=lambda: True, max_memory_allocated=lambda: 3 << 20)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    loop.evaluate([1])
    assert stream.getvalue() == "test\n"
    assert _memory() == {"cuda_memory": 3.0}
