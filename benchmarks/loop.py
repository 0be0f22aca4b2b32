"""What the loop costs per batch, beside a bare ``for``; prints a table.

    python benchmarks/loop.py [batches]

Everything is measured in one process, in turns, with the garbage collector off; the best of
all turns counts.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
import time
from collections.abc import Callable
from typing import Any

from lifecycle import Loop

TURNS = 9


def nothing(batch: Any) -> None:
    """Be a step that does nothing."""


def one_float(batch: Any) -> dict[str, float]:
    """Be a step that returns one metric."""
    return {"loss": 0.5}


def make_receivers(count: int) -> list[Callable[[Any, Any], None]]:
    """Make different functions, as different subscribers are."""
    made: list[Callable[[Any, Any], None]] = []
    for _ in range(count):

        def receive(batch: Any, logs: Any) -> None:
            pass

        made.append(receive)
    return made


def bare(batches: list[int], pairs: int, step: Callable[[Any], Any] = nothing) -> float:
    """Time a ``for`` that calls the step and the receivers directly."""
    receivers = make_receivers(2 * pairs)
    begins, ends = receivers[:pairs], receivers[pairs:]
    start = time.perf_counter()
    if not pairs:
        for batch in batches:
            step(batch)
    elif pairs == 1:
        (begin,), (end,) = begins, ends
        for batch in batches:
            begin(batch, None)
            step(batch)
            end(batch, None)
    else:
        for batch in batches:
            for begin in begins:
                begin(batch, None)
            step(batch)
            for end in ends:
                end(batch, None)
    return time.perf_counter() - start


def connected(loop: Loop, pairs: int) -> Loop:
    """Connect receivers to the points of a batch."""
    receivers = make_receivers(2 * pairs)
    for begin, end in zip(receivers[:pairs], receivers[pairs:], strict=True):
        loop.connect("train_batch_begin", begin)
        loop.connect("train_batch_end", end)
    return loop


def fit(batches: list[int], pairs: int, step: Callable[[Any], Any] = nothing) -> float:
    """Time ``fit``."""
    loop = connected(Loop(step), pairs)
    loop.fit(batches[:20])  # so that generated code is there, as in any longer run
    start = time.perf_counter()
    loop.fit(batches)
    return time.perf_counter() - start


def by_hand(batches: list[int], pairs: int, step: Callable[[Any], Any] = nothing) -> float:
    """Time the hand-written form."""
    loop = connected(Loop(step), pairs)
    loop.fit(batches[:20])
    start = time.perf_counter()
    with loop:
        for _ in loop.epochs(1):
            for batch in loop.batches(batches):
                step(batch)
    return time.perf_counter() - start


def by_hand_log(batches: list[int]) -> float:
    """Time the hand-written form with a metric logged."""
    loop = Loop(one_float)
    loop.fit(batches[:20])
    start = time.perf_counter()
    with loop:
        for _ in loop.epochs(1):
            for _batch in loop.batches(batches):
                loop.log(loss=0.5)
    return time.perf_counter() - start


def torch_cases() -> dict[str, Callable[[list[int]], float]]:
    """Return the cases with a torch scalar, where torch is installed."""
    if importlib.util.find_spec("torch") is None:
        return {}
    import torch  # noqa: PLC0415 -- an extra

    value = torch.tensor(0.5)
    graph = torch.tensor(0.5, requires_grad=True) * 2

    def add(batches: list[int]) -> float:
        total = torch.tensor(0.0)
        start = time.perf_counter()
        for _ in batches:
            total += value
        return time.perf_counter() - start

    return {
        "torch: one in-place add": add,
        "fit returning a torch scalar": lambda b: fit(b, 0, lambda _: {"loss": value}),
        "fit returning one with a graph": lambda b: fit(b, 0, lambda _: {"loss": graph}),
    }


def main(count: int) -> None:
    """Measure and print."""
    batches = list(range(count))
    cases: dict[str, Callable[[list[int]], float]] = {
        "bare for": lambda b: bare(b, 0),
        "bare for, 1 pair": lambda b: bare(b, 1),
        "bare for, 10 pairs": lambda b: bare(b, 10),
        "fit": lambda b: fit(b, 0),
        "fit, 1 pair": lambda b: fit(b, 1),
        "fit, 10 pairs": lambda b: fit(b, 10),
        "fit returning one float": lambda b: fit(b, 0, one_float),
        "hand-written": lambda b: by_hand(b, 0),
        "hand-written, 10 pairs": lambda b: by_hand(b, 10),
        "hand-written, log of one float": by_hand_log,
        **torch_cases(),
    }
    best = dict.fromkeys(cases, float("inf"))
    gc.collect()
    gc.disable()
    for _ in range(TURNS):
        for name, case in cases.items():
            best[name] = min(best[name], case(batches) / count * 1e6)
    gc.enable()
    print("| case | µs per batch |\n|---|---|")
    for name, spent in best.items():
        print(f"| {name} | {spent:.3f} |")
    pair = (best["fit, 10 pairs"] - best["fit, 1 pair"]) / 9
    direct = (best["bare for, 10 pairs"] - best["bare for, 1 pair"]) / 9
    ratios = {
        "fit to a bare for": best["fit"] / best["bare for"],
        "one more pair to direct calls of it": pair / direct,
        "hand-written to fit": best["hand-written"] / best["fit"],
        "hand-written to fit, one float": best["hand-written, log of one float"]
        / best["fit returning one float"],
        "hand-written to fit, 10 pairs": best["hand-written, 10 pairs"] / best["fit, 10 pairs"],
    }
    if "torch: one in-place add" in best:
        ratios["a torch scalar to one in-place add"] = (
            best["fit returning a torch scalar"] / best["torch: one in-place add"]
        )
    print("\n| ratio | |\n|---|---|")
    for name, ratio in ratios.items():
        print(f"| {name} | {ratio:.2f} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
