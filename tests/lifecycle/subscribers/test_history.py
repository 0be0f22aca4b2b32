"""History as a table, a picture and a state."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from lifecycle import Loop
from lifecycle.subscribers import History

if TYPE_CHECKING:
    from pathlib import Path


def run(epochs: int = 3) -> History:
    """Return the history of a run with validation every second epoch."""
    loop = Loop(lambda batch: {"loss": 1.0 / batch}, lambda batch: {"loss": 2.0})
    loop.on("epoch_end")(lambda logs: logs.update(note="x"))
    return loop.fit([1, 2], epochs=epochs, validation_data=[1], validation_freq=2)


def test_it_reads_like_kerass() -> None:
    """A metric's values by epoch, None where an epoch lacks it; the names; a dict of all."""
    history = run()
    assert history["loss"] == [0.75, 0.75, 0.75]
    assert history["val_loss"] == [None, 2.0, None]
    assert list(history) == ["loss", "note", "val_loss"]
    assert "val_loss" in history
    assert len(history) == 3
    assert history.history == history.to_dict() == {name: history[name] for name in history}
    assert history.rows[0] == {"loss": 0.75, "note": "x"}
    assert repr(history) == "<History of 3 epochs: loss, note, val_loss>"


def test_a_metric_that_is_not_there_is_answered_with_those_that_are() -> None:
    """The error lists the metrics."""
    with pytest.raises(KeyError, match="no 'acc'; it has 'loss', 'note', 'val_loss'"):
        run()["acc"]
    with pytest.raises(KeyError, match="no metrics yet"):
        History()["loss"]


def test_it_becomes_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """to_pandas has a row for each epoch; without pandas it says what to install."""
    history = run()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        history.to_pandas()
    monkeypatch.undo()
    pytest.importorskip("pandas", reason="pandas is not installed")
    table = history.to_pandas()
    assert list(table.columns) == ["loss", "note", "val_loss"]
    assert list(table.index) == [0, 1, 2]


def test_it_becomes_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plot draws what is a number into an image; without matplotlib it says what to install."""
    history = run()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "epochbus\[plot\]"'):
        history.plot(tmp_path / "curves.png")
    monkeypatch.undo()
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    history.plot(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    history.plot(tmp_path / "one.svg", "loss", "val_loss")
    assert "<svg" in (tmp_path / "one.svg").read_text()
    with pytest.raises(KeyError, match="no 'acc'"):
        history.plot(tmp_path / "none.png", "acc")
    History().plot(tmp_path / "empty.png")


def test_a_run_that_goes_on_keeps_the_epochs_before_it() -> None:
    """A loaded history is gone on with, and an epoch that is gone through again is replaced."""
    whole, first = run(4), run(3)
    state = first.state_dict()
    later = History()
    later.load_state_dict(state)
    loop = Loop(lambda batch: {"loss": 1.0 / batch}, lambda batch: {"loss": 2.0})
    loop.on("epoch_end")(lambda logs: logs.update(note="x"))
    loop.attach(later)
    loop.fit([1, 2], epochs=4, initial_epoch=2, validation_data=[1], validation_freq=2)
    assert later.to_dict() == whole.to_dict()
    assert later.outcome == "completed"


def test_the_row_of_an_epoch_is_live_until_all_have_had_their_turn() -> None:
    """A user's subscriber sees this epoch in the history, and what later ones add is in it."""
    seen = []
    loop = Loop(lambda batch: {"loss": 1.0})
    loop.on("epoch_end")(lambda loop: seen.append(len(loop.history)))
    loop.on("epoch_end", priority="LOWEST")(lambda logs: logs.update(late=1))
    history = loop.fit([1], epochs=2)
    assert seen == [1, 2]
    assert history["late"] == [1, 1]
