"""The exceptions that eventbus raises for a wrong call."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UnknownPointError(LookupError):
    """A name was used that no point of the bus has."""


class BindingError(TypeError):
    """A receiver asks for something that its point does not carry."""


class DuplicateError(ValueError):
    """The same receiver is connected to the same point and sender already."""


class OrderError(ValueError):
    """``after`` and ``before`` close a cycle."""


class ReentrancyError(RecursionError):
    """A signal was sent from inside its own receivers, deeper than is allowed."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known name closest to ``name``, or ``""``."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
