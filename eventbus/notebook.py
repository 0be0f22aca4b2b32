"""In an interactive session, a cell that is run again replaces what it connected before."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable

from eventbus.binding import Receiver
from eventbus.patterns import Pattern
from eventbus.subscription import Subscription


def interactive() -> bool:
    """Say whether a person is typing: at Python's prompt, in IPython or a notebook."""
    return hasattr(sys, "ps1") or hasattr(builtins, "__IPYTHON__")


def replace_rerun(
    subscriptions: Iterable[Subscription], patterns: Iterable[Pattern], receiver: Receiver
) -> None:
    """Disconnect the former selves of a top-level function that was defined again."""
    name = _top_level_name(receiver)
    if name is None or not interactive():
        return
    for pattern in patterns:
        if pattern.receiver is not receiver and _top_level_name(pattern.receiver) == name:
            pattern.group.disconnect()
    for subscription in subscriptions:
        old = subscription.receiver
        if old is not receiver and _top_level_name(old) == name:
            subscription.disconnect()


def _top_level_name(receiver: object) -> str | None:
    name = getattr(receiver, "__qualname__", None)
    if getattr(receiver, "__module__", None) != "__main__" or not isinstance(name, str):
        return None
    return None if "<" in name else name
