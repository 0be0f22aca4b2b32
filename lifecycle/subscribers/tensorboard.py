"""Write metrics, texts and images for TensorBoard, without TensorFlow or torch."""

from __future__ import annotations

import os
import platform
import struct
import time
import weakref
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lifecycle.subscribers.checks import choice, whole
from lifecycle.subscribers.memory import OneLoop
from lifecycle.subscribers.text import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import BinaryIO

    from lifecycle.loop import Loop

__all__ = ["TensorBoard"]


class TensorBoard(OneLoop):
    """Write the run's metrics as TensorBoard event files; texts and images by hand.

    Keras: ``TensorBoard``. OpenMMLab: ``TensorboardLoggerHook``, ``TensorboardVisBackend``.

    Epoch metrics have the tags ``epoch/loss``, ``epoch/val_loss``, ...; batch metrics
    ``batch/loss``; a test pass of its own ``test/loss``. A run that goes on from a step
    tells TensorBoard to drop what was written from that step on. It drops by one count
    only, so with ``axis="epoch"`` all that is counted in steps goes to a sub-run ``steps``.

    Args:
        directory: Where the event files go; a run's name under TensorBoard's log folder.
        every: Also write the metrics of each n-th batch.
        axis: Put the epochs' metrics over ``step`` or over ``epoch``.

    Raises:
        ImportError: The package tensorboard is not installed.
    """

    priority: ClassVar[str] = "LOW"

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        every: int | None = None,
        axis: str = "step",
    ) -> None:
        self.directory = os.fspath(directory)
        if every is not None:
            whole(every, 1, "every is a number of steps")
        self.every = every
        self.axis = choice(axis, "axis", "step", "epoch")
        self._epochs = self._steps = _Events(self.directory)
        if axis == "epoch":
            self._steps = _Events(f"{self.directory}/steps")

    def __repr__(self) -> str:
        return f"<TensorBoard {self.directory!r}>"

    def on_train_begin(self, loop: Loop, initial_epoch: int) -> None:
        self.follow(loop)
        self._steps.begin_at(loop.state.steps_done)
        if self._epochs is not self._steps:
            self._epochs.begin_at(initial_epoch)

    def on_train_batch_end(self, step: int, logs: Mapping[str, Any], skipped: bool) -> None:
        if self.every is not None and (step + 1) % self.every == 0 and not skipped:
            _write(self._steps, "batch", logs, step)

    def on_epoch_end(self, loop: Loop, epoch: int, logs: Mapping[str, Any]) -> None:
        self.follow(loop)
        index = epoch if self.axis == "epoch" else max(loop.state.step, 0)
        _write(self._epochs, "epoch", logs, index)
        self._epochs.flush()
        self._steps.flush()

    def on_train_end(self) -> None:
        self.close()

    def on_test_end(
        self, loop: Loop, logs: Mapping[str, Any], epoch: int | None, name: str | None
    ) -> None:
        if epoch is None:  # inside a run, the epoch's metrics have these
            group = f"test/{name}" if name else "test"
            _write(self._steps, group, logs, loop.state.steps_done)
            self.close()  # a file left open would be nobody's

    def scalar(self, tag: str, value: float, step: int) -> None:
        """Write one number."""
        self._steps.add(step, tag=tag, simple_value=float(value))

    def text(self, tag: str, text: str, step: int) -> None:
        """Write a text; TensorBoard shows it as Markdown."""
        self._steps.add_text(step, tag, text)

    def image(self, tag: str, pixels: Any, step: int) -> None:
        """Write an image.

        Args:
            tag: Its name.
            pixels: An array of height x width, with or without 1, 3 or 4 channels last;
                whole numbers from 0 to 255, or floats from 0 to 1.
            step: The step it belongs to.

        Raises:
            ValueError: The array has another shape.
        """
        self._steps.add_image(step, tag, pixels)

    def close(self) -> None:
        """Write what is still held back and close the files; more writing opens others."""
        self._epochs.close()
        self._steps.close()


class _Events:
    """An event file, opened by the first thing that is written."""

    def __init__(self, directory: str) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2  # noqa: PLC0415
            from tensorboard.plugins.text import metadata  # noqa: PLC0415
            from tensorboard.summary.writer import record_writer  # noqa: PLC0415
        except ImportError as error:
            raise ImportError(
                'TensorBoard needs its package: pip install "epochbus[tensorboard]"'
            ) from error
        self.directory = directory
        self._event: Any = event_pb2
        self._summary: Any = summary_pb2
        self._tensor: Any = tensor_pb2
        self._text_metadata: Any = metadata
        self._records: Any = record_writer.RecordWriter
        self._file: Any = None
        self._close: Callable[[], object] = lambda: None

    def begin_at(self, step: int) -> None:
        """Say that a session starts here: a reader drops what earlier files have from `step` on."""
        session = self._event.SessionLog(status=self._event.SessionLog.START)
        self._put(self._event.Event(step=step, session_log=session))

    def add(self, step: int, **value: Any) -> None:
        """Write one value of a summary."""
        summary = self._summary.Summary(value=[self._summary.Summary.Value(**value)])
        self._put(self._event.Event(step=step, summary=summary))

    def add_text(self, step: int, tag: str, text: str) -> None:
        """Write a text."""
        about = self._text_metadata.create_summary_metadata(display_name=tag, description="")
        strings = self._tensor.TensorProto(dtype="DT_STRING", string_val=[text.encode()])
        self.add(step, tag=tag, metadata=about, tensor=strings)

    def add_image(self, step: int, tag: str, pixels: Any) -> None:
        """Write an image."""
        height, width, channels, raw = _bytes_of(pixels)
        image = self._summary.Summary.Image(
            height=height,
            width=width,
            colorspace=channels,
            encoded_image_string=_png(height, width, channels, raw),
        )
        self.add(step, tag=tag, image=image)

    def flush(self) -> None:
        """Hand what was written to the system."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._close()
        self._file = None

    def _put(self, event: Any) -> None:
        if self._file is None:
            self._file = self._records(_new_file(self.directory))
            # Detached in mid-run, it hears of no end; then the file is closed when this dies.
            self._close = weakref.finalize(self, self._file.close)
            self._put(self._event.Event(file_version="brain.Event:2"))
        event.wall_time = time.time()
        self._file.write(event.SerializeToString())


def _new_file(directory: str) -> BinaryIO:
    """Open an event file whose name sorts after those that were opened before it.

    The reader goes by the names' order, and TensorBoard's own names tell nothing below a second.
    """
    seconds, rest = divmod(time.time_ns(), 10**9)
    name = f"events.out.tfevents.{seconds:010d}.{rest:09d}.{platform.node()}.{os.getpid()}"
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / name).open("ab")


def _write(events: _Events, group: str, logs: Mapping[str, Any], step: int) -> None:
    """Write the numbers and the texts of some logs."""
    for name, value in numbers(logs).items():
        events.add(step, tag=f"{group}/{name}", simple_value=value)
    for name in logs:
        if isinstance(logs[name], str):
            events.add_text(step, f"{group}/{name}", logs[name])


def _bytes_of(pixels: Any) -> tuple[int, int, int, bytes]:
    """Return height, width, channels and the bytes of an image."""
    import numpy as np  # noqa: PLC0415 - comes with tensorboard

    array = np.asarray(pixels)
    if array.ndim == 2:  # noqa: PLR2004 - height and width
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in {1, 3, 4}:  # noqa: PLR2004
        raise ValueError(
            f"an image is height x width, or height x width x 1, 3 or 4; not {array.shape}"
        )
    if array.dtype.kind == "f":
        array = np.rint(np.clip(array, 0.0, 1.0) * 255)
    height, width, channels = array.shape
    return height, width, channels, array.astype(np.uint8).tobytes()


def _png(height: int, width: int, channels: int, raw: bytes) -> bytes:
    """Return an image's bytes as a PNG file."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        check = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", check)

    colour = {1: 0, 3: 2, 4: 6}[channels]
    stride = width * channels
    rows = (b"\0" + raw[start : start + stride] for start in range(0, height * stride, stride))
    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    body = (
        chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")
    )
    return b"\x89PNG\r\n\x1a\n" + body
