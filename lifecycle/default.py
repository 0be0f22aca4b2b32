"""The default bus: what ``@on`` connects to, and every loop sends on unless told otherwise."""

from __future__ import annotations

from eventbus import Bus
from lifecycle.names import On
from lifecycle.points import declare

__all__ = ["bus", "on"]

bus = declare(Bus(sender="loop"))
on: On = bus.on
