"""mmengine's own hooks do on our loop what they do in mmengine's Runner, in the same process."""

from __future__ import annotations

import pytest
from process import close, needs, run

needs("torch", "mmengine")

HOOKS = ("none", "ema", "early", "cache", "buffers", "profiler")
"""Beside the default hooks of a Runner, which are in every run."""

ASPECTS = ("trace", "weights", "final", "files", "info", "scalars", "timed", "lines")


@pytest.mark.parametrize("aspect", ASPECTS)
@pytest.mark.parametrize("hooks", HOOKS)
def test_hooks_do_what_they_do_in_mmengine(hooks: str, aspect: str) -> None:
    """Stages with counters, weights, files, message hub and log lines are the Runner's."""
    theirs, ours = run("hooks_of_mmengine.py")[hooks]
    assert theirs[aspect] or aspect == "lines"
    assert close(ours[aspect], theirs[aspect])


def test_the_hooks_had_an_effect() -> None:
    """EMA swaps weights for validation, early stopping stops, checkpoints are kept and pruned."""
    runs = {name: pair[0] for name, pair in run("hooks_of_mmengine.py").items()}
    assert runs["ema"]["weights"] != runs["none"]["weights"]
    assert len(runs["early"]["trace"]) < len(runs["none"]["trace"])
    assert sorted(runs["none"]["files"]) == ["best_loss_epoch_3.pth", "epoch_2.pth", "epoch_3.pth"]
