"""TensorBoard: what is written is read back with its own reader."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lifecycle import Loop

if TYPE_CHECKING:
    from pathlib import Path

accumulators = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
)

from lifecycle.subscribers import TensorBoard  # noqa: E402 - skipped above without its package


def read(directory: Path) -> Any:
    """Read a run as TensorBoard does."""
    accumulator = accumulators.EventAccumulator(str(directory), size_guidance={"scalars": 0})
    accumulator.Reload()
    return accumulator


def series(accumulator: Any, tag: str) -> list[tuple[int, float]]:
    """Return a tag's steps and values."""
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


def make(logger: TensorBoard) -> Loop:
    """Return a loop that writes to TensorBoard."""
    loop = Loop(lambda batch: {"loss": float(batch)}, lambda batch: {"loss": 2.0})
    loop.attach(logger)
    return loop


def test_epoch_metrics_are_over_steps(tmp_path: Path) -> None:
    """Each epoch's metrics, validation included, stand at the epoch's last step."""
    make(TensorBoard(tmp_path)).fit([1, 3], epochs=2, validation_data=[1])
    run = read(tmp_path)
    assert series(run, "epoch/loss") == [(1, 2.0), (3, 2.0)]
    assert series(run, "epoch/val_loss") == [(1, 2.0), (3, 2.0)]
    assert "batch/loss" not in run.Tags()["scalars"]


def test_batch_metrics_are_written_every_nth_step(tmp_path: Path) -> None:
    """Every adds the batches' own values."""
    make(TensorBoard(tmp_path, every=2)).fit([1, 3, 5], epochs=2)
    assert series(read(tmp_path), "batch/loss") == [(1, 3.0), (3, 1.0), (5, 5.0)]


def test_epochs_may_be_the_axis(tmp_path: Path) -> None:
    """With axis epoch the steps' metrics have a sub-run of their own."""
    make(TensorBoard(tmp_path, every=1, axis="epoch")).fit([1, 3], epochs=2)
    assert series(read(tmp_path), "epoch/loss") == [(0, 2.0), (1, 2.0)]
    assert len(series(read(tmp_path / "steps"), "batch/loss")) == 4


@pytest.mark.parametrize("axis", ["epoch", "step"])
def test_a_resumed_run_replaces_what_it_writes_again(tmp_path: Path, axis: str) -> None:
    """The reader drops what was written at or past the point where the run goes on."""
    make(TensorBoard(tmp_path, axis=axis)).fit([1], epochs=3)
    loop = make(TensorBoard(tmp_path, axis=axis))
    loop.on("train_begin", priority="HIGHEST")(lambda: setattr(loop.state, "steps_before", 2))
    loop.fit([5], epochs=4, initial_epoch=2)
    values = [value for _, value in series(read(tmp_path), "epoch/loss")]
    assert values == [1.0, 1.0, 5.0, 5.0]


def test_a_pass_of_its_own_is_written(tmp_path: Path) -> None:
    """Evaluate alone writes its metrics at the step that training has reached."""
    loop = make(TensorBoard(tmp_path))
    loop.fit([1, 3], epochs=1)
    loop.evaluate([1])
    assert series(read(tmp_path), "test/loss") == [(2, 2.0)]


def test_texts_and_images_are_read_back(tmp_path: Path) -> None:
    """A text by hand or in the logs, grey and colour images of whole numbers and of floats."""
    logger = TensorBoard(tmp_path)
    loop = make(logger)
    colour = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)

    @loop.on("epoch_end")
    def give(logs: Any, epoch: int) -> None:
        logs["note"] = "all *well*"
        logger.text("sample", "a text", epoch)
        logger.image("colour", colour, epoch)
        logger.image("grey", np.array([[0.0, 0.5, 2.0]]), epoch)
        logger.scalar("own", 3, epoch)

    loop.fit([1], epochs=1)
    run = read(tmp_path)
    assert run.Tensors("sample")[0].tensor_proto.string_val == [b"a text"]
    assert run.Tensors("epoch/note")[0].tensor_proto.string_val == [b"all *well*"]
    assert series(run, "own") == [(0, 3.0)]
    image = run.Images("colour")[0]
    assert (image.width, image.height) == (4, 2)
    pillow = pytest.importorskip("PIL.Image")
    np.testing.assert_array_equal(
        np.asarray(pillow.open(io.BytesIO(image.encoded_image_string))), colour
    )
    grey = pillow.open(io.BytesIO(run.Images("grey")[0].encoded_image_string))
    assert np.asarray(grey).tolist() == [[0, 128, 255]]


def test_an_array_that_is_no_image_is_refused(tmp_path: Path) -> None:
    """The message has the shape that came."""
    with pytest.raises(ValueError, match=r"not \(2, 2, 5\)"):
        TensorBoard(tmp_path).image("x", np.zeros((2, 2, 5)), 0)


def test_nothing_is_written_before_a_run(tmp_path: Path) -> None:
    """Making the subscriber makes no file, and closing an unopened one is nothing."""
    TensorBoard(tmp_path / "run").close()
    assert not (tmp_path / "run").exists()


def test_bad_options_are_refused_at_once(tmp_path: Path) -> None:
    """Every and axis are checked at construction."""
    with pytest.raises(ValueError, match="every is a number of steps"):
        TensorBoard(tmp_path, every=0)
    with pytest.raises(ValueError, match='axis must be "step" or "epoch"'):
        TensorBoard(tmp_path, axis="batch")
    assert repr(TensorBoard("runs")) == "<TensorBoard 'runs'>"


def test_without_the_package_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The missing extra is named at construction."""
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer", None)
    with pytest.raises(ImportError, match=r'pip install "epochbus\[tensorboard\]"'):
        TensorBoard(tmp_path)
