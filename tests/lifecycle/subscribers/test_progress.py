"""Progress: bars where someone looks, lines elsewhere, and cheap in both."""

from __future__ import annotations

import io
import sys
import threading
from time import perf_counter
from typing import Any

import pytest

from lifecycle import Loop
from lifecycle.subscribers import Progress
from lifecycle.subscribers import progress as progress_module


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def make(stream: io.StringIO, **options: Any) -> Loop:
    """Return a loop with progress on a stream."""
    loop = Loop(
        lambda batch: {"loss": 0.5}, lambda batch: {"loss": 0.25}, predict_step=lambda batch: batch
    )
    loop.attach(Progress(stream=stream, **options))
    return loop


def test_elsewhere_than_on_a_terminal_there_is_a_line_per_epoch() -> None:
    """In a log file each epoch has one line with its metrics and its time, and no bars."""
    stream = io.StringIO()
    make(stream).fit([1, 2], epochs=2, validation_data=[1])
    lines = stream.getvalue().splitlines()
    assert [line.rpartition(" - ")[0] for line in lines] == [
        "epoch 1/2: loss 0.5 - val_loss 0.25",
        "epoch 2/2: loss 0.5 - val_loss 0.25",
    ]
    assert "\r" not in stream.getvalue()


def test_a_long_epoch_tells_now_and_then_where_it_is() -> None:
    """Within an epoch a line comes at each interval."""
    stream = io.StringIO()
    make(stream, interval=0.0).fit([1, 2], epochs=1)
    assert stream.getvalue().splitlines()[:2] == [
        "epoch 1/1: batch 1 - loss 0.5",
        "epoch 1/1: batch 2 - loss 0.5",
    ]


def test_on_a_terminal_there_are_bars() -> None:
    """Epochs, batches and validation have bars with metrics; each epoch leaves a line."""
    stream = Terminal()
    make(stream, interval=0.0).fit([1, 2, 3], epochs=2, validation_data=[1])
    shown = stream.getvalue()
    assert "epochs: 100%" in shown
    assert "epoch 2/2: 100%" in shown
    assert "3/3" in shown
    assert "validation: 100%" in shown
    assert "loss 0.5" in shown
    assert "epoch 1/2: loss 0.5 - val_loss 0.25" in shown


def test_data_of_unknown_length_has_a_counting_bar() -> None:
    """Without a length the bar counts up and ends at the number of batches there were."""
    stream = Terminal()
    make(stream).fit(lambda epoch: iter([1, 2, 3]), epochs=1)
    assert "epoch 1/1: 3batch" in stream.getvalue()


def test_evaluate_and_predict_alone_are_shown() -> None:
    """A pass of its own has a bar or a line, and the screen is left clean after it."""
    stream, terminal = io.StringIO(), Terminal()
    for out in (stream, terminal):
        loop = make(out)
        loop.evaluate([1, 2])
        loop.predict([1, 2])
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("test: loss 0.25 - 0")
    assert lines[1].startswith("predict: 0")
    assert "test: 100%" in terminal.getvalue()
    assert "predict: 100%" in terminal.getvalue()


def test_the_end_that_is_no_completion_is_told() -> None:
    """A stop's reason and a failure are written, and the bars are closed."""
    stream = io.StringIO()
    loop = make(stream)
    with loop.connected("train_batch_end", lambda loop: loop.stop("enough")):
        loop.fit([1, 2], epochs=3)
    assert "stopped: " in stream.getvalue()
    assert "enough" in stream.getvalue()
    terminal = Terminal()
    failing = Loop(lambda batch: 1 / 0)
    failing.attach(Progress(stream=terminal))
    with pytest.raises(ZeroDivisionError):
        failing.fit([1], epochs=1)
    assert "failed" in terminal.getvalue()


def test_one_progress_may_follow_two_loops_at_once() -> None:
    """Two loops in two threads on one subscriber each have their lines."""
    stream = io.StringIO()
    progress = Progress(stream=stream)
    loops = [Loop(lambda batch: {"loss": 0.5}) for _ in range(2)]
    for loop in loops:
        loop.attach(progress)
    threads = [
        threading.Thread(target=loop.fit, args=([1, 2],), kwargs={"epochs": 3}) for loop in loops
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stream.getvalue().splitlines()) == 6


def test_it_may_be_attached_to_a_run_under_way() -> None:
    """Attached at a batch, it shows from there on without knowing the total."""
    for stream in (io.StringIO(), Terminal()):
        loop = Loop(lambda batch: {"loss": 0.5})
        progress = Progress(stream=stream, interval=0.0)
        loop.on("train_batch_end", at=[1])(lambda loop, progress=progress: loop.attach(progress))
        loop.fit([1, 2, 3], epochs=2)
        assert "batches" in stream.getvalue()
        assert "epoch 2" in stream.getvalue()


def test_metrics_are_read_at_most_once_per_interval() -> None:
    """A value on a device is not read for batches that are not shown."""
    reads = 0

    class Logs(dict[str, Any]):
        def __iter__(self) -> Any:
            nonlocal reads
            reads += 1
            return super().__iter__()

    loop = Loop(lambda batch: None)
    progress = Progress(stream=Terminal())
    progress.on_train_begin(loop, 1, 0)
    progress.on_epoch_begin(loop, 0, 1000)
    began = perf_counter()
    for batch in range(1000):
        progress.on_train_batch_end(loop, batch, Logs(loss=1.0))
    assert reads <= 2 + (perf_counter() - began) / progress.interval
    progress.on_train_end(loop, "completed", ())


def test_no_watching_thread_is_started() -> None:
    """The bars are brought up to date by the loop alone."""
    before = threading.active_count()
    make(Terminal()).fit([1], epochs=1)
    assert threading.active_count() == before


def test_bars_without_tqdm_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The missing extra is named when bars are asked for; lines need nothing."""
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match=r'pip install "epochbus\[cli\]"'):
        Progress(style="bars")
    assert repr(Progress(style="lines")) == "<Progress lines>"


def test_a_terminal_without_tqdm_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has asked for bars, so what is missing for them is no reason to fail."""
    monkeypatch.setattr(progress_module, "find_spec", lambda _: None)
    stream = Terminal()
    make(stream).fit([1, 2], epochs=1)
    assert stream.getvalue().startswith("epoch 1/1: loss 0.5 - ")


def test_a_bar_is_drawn_once_an_update() -> None:
    """What has changed is written once, not twice."""
    stream = Terminal()
    make(stream, interval=0).fit([1, 2, 3], epochs=1)
    assert [stream.getvalue().count(f"| {done}/3 [") for done in (1, 2)] == [1, 1]


def test_an_unknown_style_is_refused() -> None:
    """Style is auto, bars or lines."""
    with pytest.raises(ValueError, match='style must be "auto", "bars" or "lines"'):
        Progress(style="fancy")


def test_a_notebook_has_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where IPython runs as a notebook's kernel someone looks, though there is no terminal."""

    class ZMQInteractiveShell:
        pass

    class IPython:
        get_ipython = staticmethod(ZMQInteractiveShell)

    monkeypatch.setitem(sys.modules, "IPython", IPython)
    assert Progress(stream=io.StringIO()).style == "bars"
