"""The command ``lifecycle``, also ``python -m lifecycle``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line, then the script that it prepared, if it did."""
    try:
        from lifecycle.cli import app  # noqa: PLC0415 -- typer and rich may be missing
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in {"typer", "rich"}:
            raise
        sys.exit(f'the command line needs {missing}: pip install "epochbus[cli]"')
    from lifecycle.script import Script  # noqa: PLC0415

    prepared: list[Script] = []
    try:
        app(obj=prepared)
    except SystemExit:
        if not prepared:
            raise
    # Out here the script's exit status, its traceback and Ctrl-C are Python's own affair.
    prepared[0].run()


if __name__ == "__main__":
    main()
