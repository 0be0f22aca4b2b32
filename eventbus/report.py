"""The cost table: what each subscription took of the sender's time."""

from __future__ import annotations

from collections.abc import Iterable

from eventbus.subscription import Subscription
from eventbus.tables import table


def render(subscriptions: Iterable[Subscription]) -> str:
    """Draw calls, errors and seconds of the subscriptions that were profiled, dearest first."""
    profiled = [s for s in subscriptions if s.stats.profiled]
    if not profiled:
        return "nothing was profiled: send inside `with bus.profile():`"
    profiled.sort(key=lambda s: s.stats.total, reverse=True)
    whole = sum(s.stats.total for s in profiled) or 1.0
    rows = [
        (
            s.point,
            s.label(),
            str(s.stats.calls),
            str(s.stats.errors),
            f"{s.stats.total:.4f}",
            f"{s.stats.total / max(s.stats.calls, 1) * 1e6:.1f}",
            f"{s.stats.maximum * 1e6:.1f}",
            f"{s.stats.total / whole:.0%}",
        )
        for s in profiled
    ]
    columns = ("point", "receiver", "calls", "errors", "total s", "mean us", "max us", "share")
    return table(columns, rows)
