"""Tables as text: drawn by rich where it is installed, plain columns otherwise."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> str:
    """Render rows under column headings as text of several lines."""
    if importlib.util.find_spec("rich") is None:
        return _plain(columns, rows, title)
    from rich.console import Console  # noqa: PLC0415 -- an extra
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    drawn = Table(*map(escape, columns), title=escape(title) or None)
    for row in rows:
        drawn.add_row(*map(escape, row))
    console = Console(width=160, color_system=None, force_terminal=False, no_color=True)
    with console.capture() as capture:
        console.print(drawn)
    return capture.get().rstrip("\n")


def _plain(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> str:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (columns, ["-" * width for width in widths], *rows)
    ]
    return "\n".join([title, *lines] if title else lines)
