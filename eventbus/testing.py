"""Record what a bus sends, to compare with plain lists."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from blinker import ANY

from eventbus.bus import Bus

Sent = tuple[str, dict[str, Any]]


class Recorder(list[Sent]):
    """What was sent, as (point, payload) pairs; mappings are copied as they were then."""

    @property
    def points(self) -> list[str]:
        """The names alone, in the order of sending."""
        return [point for point, _ in self]

    def values(self, key: str) -> list[Any]:
        """The values of one payload key, of the sends that carried it."""
        return [payload[key] for _, payload in self if key in payload]

    def receive(self, signal: str, **payload: object) -> None:
        """Note one send; this is the receiver that is connected."""
        kept = {k: copy.copy(v) if isinstance(v, dict) else v for k, v in payload.items()}
        self.append((signal, kept))


@contextmanager
def record(bus: Bus, *points: str, sender: object = ANY) -> Iterator[Recorder]:
    """Record the sends of some points, by default all, inside a ``with`` block.

    Args:
        bus: the bus to listen to.
        points: names or patterns.
        sender: only what this sender sends.

    """
    recorder = Recorder()
    handle = bus.connect(
        points or ("*",), recorder.receive, sender=sender, priority="LOWEST", again=True
    )
    try:
        yield recorder
    finally:
        handle.disconnect()
