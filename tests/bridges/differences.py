"""Where a sender differs from our own loop, and why; the table in docs/bridges.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from subscribers import SCENARIOS, Trace

SENDERS = (
    "by hand",
    "Keras on JAX",
    "Keras on torch",
    "Keras on TensorFlow",
    "mmengine by epochs",
    "mmengine by steps",
)

Run = dict[str, Any]
"""What one scenario with one sender has come to."""


class Difference(NamedTuple):
    """A known difference, and how to leave it out of a comparison."""

    senders: str
    """How the names of the senders begin that have it."""

    scenarios: tuple[str, ...]
    reason: str

    leave_out: Callable[[Run], None]
    """Takes out of a run what differs, from the sender's and from our own loop's alike."""


def _without(points: tuple[str, ...], *keys: str) -> Callable[[Run], None]:
    def leave_out(run: Run) -> None:
        for point, payload in run["trace"]:
            if point in points:
                for key in keys:
                    payload.pop(key, None)

    return leave_out


BATCHES = tuple(f"{kind}_batch_{which}" for kind in ("train", "test") for which in ("begin", "end"))


def _validation_of_broken_epoch(run: Run) -> None:
    trace: Trace = run["trace"]
    last = max((i for i, (p, _) in enumerate(trace) if p == "epoch_end"), default=0)
    first = max((i for i, (p, _) in enumerate(trace) if p == "epoch_begin"), default=0)
    run["trace"] = [
        each
        for place, each in enumerate(trace)
        if not (first < place < last and each[0].startswith("test_"))
    ]
    for point, payload in run["trace"][-2:]:
        if point in ("epoch_end", "train_end"):
            for key in ("val_loss", "gap"):
                payload["logs"].pop(key, None)
    for shown in ("Keras's names", "CSVLogger", "History"):
        run["shown"].pop(shown, None)


def _batch_after_stop(run: Run) -> None:
    trace: Trace = run["trace"]
    first = max(i for i, (p, _) in enumerate(trace) if p == "epoch_begin")
    run["trace"] = trace[: first + 1] + [
        each for each in trace[first + 1 :] if not each[0].startswith("train_batch_")
    ]
    for _, payload in run["trace"][first:]:
        payload.get("logs", {}).pop("loss", None)
    run["weight"] = None
    for shown in ("every second step", "running means", "EMA"):
        run["shown"].pop(shown, None)


DIFFERENCES = (
    Difference(
        "by hand",
        SCENARIOS,
        "`steps_per_epoch` is None until the first `loop.batches(data)`: the loop does not know"
        " the data earlier.",
        _without(("train_begin", "epoch_begin"), "steps_per_epoch"),
    ),
    Difference(
        "by hand",
        SCENARIOS,
        "`outputs` is None: the step is in the body of your `for`, which returns nothing.",
        _without(("train_batch_end", "test_batch_end"), "outputs"),
    ),
    Difference(
        "Keras",
        SCENARIOS,
        "`data` is None: Keras shows its callbacks no batch.",
        _without(BATCHES, "data"),
    ),
    Difference(
        "Keras",
        ("stop in a batch", "stop at an epoch's begin"),
        "Keras validates also the epoch that a stop has broken (`partial` is true all the same);"
        " its other callbacks may count on the `val_` keys.",
        _validation_of_broken_epoch,
    ),
    Difference(
        "Keras",
        ("stop at an epoch's begin",),
        "One batch still runs: Keras looks at its flag only after a batch.",
        _batch_after_stop,
    ),
    Difference(
        "mmengine",
        SCENARIOS,
        "The logs of a validation batch are empty: a `val_step` returns predictions, which are in"
        " `outputs`, and mmengine's evaluator computes metrics at the end.",
        _without(("test_batch_begin", "test_batch_end"), "logs"),
    ),
)


HEADINGS = ("by hand", "Keras (JAX, torch, TensorFlow)", "mmengine (epochs)", "mmengine (steps)")


def table(found: dict[str, dict[str, list[int]]]) -> str:
    """Render which differences each sender has in each scenario; backends of Keras agree.

    Args:
        found: by sender and scenario, the places of the differences in `DIFFERENCES`.
    """
    lines = ["| | " + " | ".join(HEADINGS) + " |", "|---" * (len(HEADINGS) + 1) + "|"]
    starts = ("by hand", "Keras", "mmengine by epochs", "mmengine by steps")
    for scenario in SCENARIOS:
        cells = []
        for start in starts:
            several = {_cell(c[scenario]) for s, c in found.items() if s.startswith(start)}
            cells.append(" or ".join(sorted(several)))
        lines.append(f"| {scenario} | " + " | ".join(cells) + " |")
    notes = [f"{number}. {each.reason}" for number, each in enumerate(DIFFERENCES, 1)]
    return "\n".join([*lines, "", *notes]) + "\n"


def _cell(places: list[int]) -> str:
    if not places:
        return "equal"
    return "equal but for " + ", ".join(str(place + 1) for place in places)
