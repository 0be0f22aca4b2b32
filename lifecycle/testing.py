"""Check what a loop has sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["assert_well_formed"]

OUTCOMES: Final = ("completed", "stopped", "interrupted", "failed", "left")

AROUND: Final = {
    "epoch": "train",
    "train_batch": "epoch",
    "test_batch": "test",
    "predict_batch": "predict",
}
"""What must be open, innermost, where something begins; a stage may begin anywhere."""

STAGES: Final = ("train", "test", "predict")

Event = str | tuple[str, Mapping[str, Any]]


def assert_well_formed(events: Iterable[Event]) -> None:
    """Check that begins and ends nest like brackets in a trace of one loop.

    After ``exception`` the stage it ends may leave inner scopes open, and so may the stages
    around it which the same error ends right after. Batches are counted without a gap.
    Points that are neither begin nor end may stand anywhere.

    Args:
        events: names of points in the order of sending, or pairs of name and payload, as
            `eventbus.testing.record` collects them.

    Raises:
        AssertionError: they do not; the message says where.
    """
    trace = _Trace()
    for number, event in enumerate(events):
        point, payload = (event, {}) if isinstance(event, str) else event
        trace.add(number, point, payload)
    if trace.open:
        raise AssertionError(f"{trace.open[-1][0]} was begun and never ended")


class _Trace:
    def __init__(self) -> None:
        self.open: list[tuple[str, dict[str, Any]]] = []
        """What is open, the innermost last, with the indices of its begin."""
        self.failing = False
        """Whether an exception is on its way out of the stages."""
        self.next: dict[int, int] = {}
        """The batch expected next, by how deep its pass is nested."""

    def add(self, number: int, point: str, payload: Mapping[str, Any]) -> None:
        name, _, which = point.rpartition("_")
        if name not in AROUND and name not in STAGES:
            if point == "exception":
                self.failing = True
            return
        if which == "begin":
            self._begin(number, name, payload)
        elif which == "end":
            self._end(number, name, payload)

    def _begin(self, number: int, name: str, payload: Mapping[str, Any]) -> None:
        self.failing = False
        innermost = self.open[-1][0] if self.open else None
        around = AROUND.get(name)
        if around is not None and innermost != around:
            _fail(number, f"{name}_begin is not directly inside of {around} but of {innermost}")
        if name == "train" and self.open:
            _fail(number, f"train_begin is inside of {innermost}")
        depth = len(self.open)
        if "batch" in payload:
            expected = self.next.get(depth, payload["batch"])
            if payload["batch"] != expected:
                _fail(number, f"{name}_begin is of batch {payload['batch']}, not of {expected}")
            self.next[depth] = expected + 1
        else:
            self.next.pop(depth + 1, None)
        self.open.append((name, _indices(payload)))

    def _end(self, number: int, name: str, payload: Mapping[str, Any]) -> None:
        unclosed = []
        while self.open and self.open[-1][0] != name:
            unclosed.append(self.open.pop()[0])
        if not self.open:
            _fail(number, f"{name}_end without a begin")
        if unclosed and not (name in STAGES and self.failing):
            _fail(number, f"{name}_end while {unclosed[0]} is open")
        if name not in STAGES:
            self.failing = False
        _, indices = self.open.pop()
        for key in indices.keys() & payload.keys():
            if indices[key] != payload[key]:
                _fail(number, f"{name}_end is of {key} {payload[key]}, its begin of {indices[key]}")
        if payload.get("outcome", OUTCOMES[0]) not in OUTCOMES:
            _fail(number, f"{name}_end has the outcome {payload['outcome']!r}")


def _indices(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {key: payload[key] for key in ("epoch", "batch", "step", "name") if key in payload}


def _fail(number: int, message: str) -> None:
    raise AssertionError(f"event {number}: {message}")
