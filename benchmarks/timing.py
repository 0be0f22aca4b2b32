"""Measure several ways of doing one thing, interleaved in one process, as ratios to a floor."""

from __future__ import annotations

import gc
import importlib.metadata
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence

Case = Callable[[int], None]
"""Does its work as often as it is told."""


def measure(cases: Mapping[str, Case], number: int, rounds: int = 15) -> dict[str, float]:
    """Return the seconds per repetition of each case, the best of interleaved rounds.

    The garbage collector is off meanwhile; the cost of an empty loop is taken off.
    """
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    best = dict.fromkeys(cases, float("inf"))
    empty = float("inf")
    try:
        for case in cases.values():
            case(max(number // 10, 20))  # warm up: plans are generated, code is specialised
        for _ in range(rounds):
            empty = min(empty, _seconds(_empty, number))
            for name, case in cases.items():
                best[name] = min(best[name], _seconds(case, number))
    finally:
        if enabled:
            gc.enable()
    return {name: max(seconds - empty, 0.0) / number for name, seconds in best.items()}


def _empty(number: int) -> None:
    for _ in range(number):
        pass


def _seconds(case: Case, number: int) -> float:
    start = time.perf_counter()
    case(number)
    return time.perf_counter() - start


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Render rows as a Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def versions(*distributions: str) -> str:
    """Name Python's and some distributions' versions, as far as they are installed."""
    found = [f"CPython {platform.python_version()} on {sys.platform}"]
    for name in distributions:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
