"""The command line: run a script with subscribers, list points, subscribers and checkpoints."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich import filesize
from rich.console import Console
from rich.table import Table

from lifecycle.checkpoint import catalogue
from lifecycle.default import bus
from lifecycle.points import POINTS
from lifecycle.registry import Entry, OptionError, Request, UnknownSubscriberError, entries, parse
from lifecycle.script import Script, load_hooks, without_frames_before

__all__ = ["app"]

app = typer.Typer(
    name="lifecycle",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # errors in plain lines, which scripts can read
    pretty_exceptions_enable=False,
    help="Subscribe to the training runs of a script from outside, and look at what they left.",
)


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    context: typer.Context,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="The Python file to run.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS...", help="The script's own arguments.")
    ] = None,
    *,
    on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=ARG][,key=value...]",
            help="Attach this subscriber to every loop of the script; may be repeated.",
        ),
    ] = None,
    hooks: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.py", help="Connect the @on functions of this file; may be repeated."
        ),
    ] = None,
) -> None:
    """Run a script as Python would, with subscribers attached to every loop that it makes."""
    if not Path(script).exists():
        raise typer.BadParameter(f"there is no file {script}", param_hint="SCRIPT")
    prepared = Script(script, arguments or ())
    prepared.prepare()
    for path in hooks or ():
        _load(path)
    _attach([_parse(text) for text in on or ()])
    context.obj.append(prepared)


def _load(path: str) -> None:
    try:
        load_hooks(path)
    except FileNotFoundError as error:
        if without_frames_before(path, error.__traceback__) is None:
            raise typer.BadParameter(str(error), param_hint="--hooks") from None
        _fail_with(path, error)
    except Exception as error:  # noqa: BLE001 -- whatever the file raises is its own to explain
        _fail_with(path, error)


def _fail_with(path: str, error: Exception) -> None:
    """Show a hook file's own traceback, not the way to it, and end."""
    trace = without_frames_before(path, error.__traceback__)
    traceback.print_exception(type(error), error, trace)
    typer.echo(f"lifecycle run: the hook file {path} failed; the script was not started", err=True)
    raise typer.Exit(1)


def _parse(text: str) -> Request:
    try:
        return parse(text)
    except (UnknownSubscriberError, OptionError, ImportError) as error:
        raise typer.BadParameter(str(error), param_hint="--on") from None


def _attach(requests: list[Request]) -> None:
    """Attach to the default bus, so that every loop sending on it is heard.

    The names are the command line's, not the class's: a script may attach its own
    ``Checkpoint`` beside ``--on checkpoint=...``.
    """
    seen: Counter[str] = Counter()
    for request in requests:
        seen[request.name] += 1
        count = seen[request.name]
        name = request.name if count == 1 else f"{request.name}-{count}"
        try:
            bus.attach(request.make(), name=name)
        except (OptionError, ImportError, OSError, TypeError) as error:
            raise typer.BadParameter(str(error), param_hint="--on") from None


@app.command()
def points() -> None:
    """Show every point of a run: when it is sent and what it carries."""
    table = Table("point", "carries", "meaning", title="Points, in the order of a run")
    for point in POINTS:
        names = "\n".join((point.name, *(f"({alias})" for alias in point.aliases)))
        table.add_row(names, "\n".join(point.payload), point.meaning.replace("`", ""))
        table.add_section()
    _print(table)


@app.command()
def subscribers() -> None:
    """Show the subscribers that --on takes, with their options."""
    table = Table("name", "options", "what it does", "from", title="Subscribers")
    for entry in entries().values():
        table.add_row(entry.name, *_described(entry), entry.source)
        table.add_section()
    _print(table)


def _described(entry: Entry) -> tuple[str, str]:
    """Return a subscriber's options and the first sentence of its documentation."""
    try:
        factory = entry.load()
        parameters = inspect.signature(factory).parameters.values()
    except Exception as error:  # noqa: BLE001 -- one that is broken must not hide the others
        return "", f"cannot be loaded: {error}"
    options = [
        p.name if p.default is p.empty else f"{p.name}={p.default!r}"
        for p in parameters
        if p.kind is not p.VAR_KEYWORD
    ]
    return "\n".join(options), (inspect.getdoc(factory) or "").partition("\n")[0]


@app.command()
def checkpoints(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[verify|prune] DIR", help="What to do; by default a list."),
    ],
    *,
    keep: Annotated[
        int, typer.Option(min=1, help="prune: how many of the newest stay, beside the best.")
    ] = 3,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="prune: only say what would be removed.")
    ] = False,
) -> None:
    """List a folder's checkpoints, verify every byte of them, or prune the old ones."""
    action, directory = words if len(words) == 2 else ("list", words[0])  # noqa: PLR2004
    if len(words) > 2 or action not in {"list", "verify", "prune"}:  # noqa: PLR2004
        expected = "expected DIR, verify DIR or prune DIR"
        raise typer.BadParameter(f"{expected}, not {' '.join(words)!r}")
    try:
        if action == "prune":
            _prune(directory, keep=keep, dry_run=dry_run)
        else:
            _list(directory, every_byte=action == "verify")
    except OSError as error:
        typer.echo(f"lifecycle checkpoints: {error}", err=True)
        raise typer.Exit(2) from None


def _list(directory: str, *, every_byte: bool) -> None:
    """Print the table of checkpoints; verifying, end with 1 where one is damaged."""
    records = catalogue.verify(directory) if every_byte else catalogue.list_checkpoints(directory)
    if not records:
        typer.echo(f"there are no checkpoints in {directory}")
        return
    table = Table("name", "epoch", "step", "metric", "size", "intact", "", title=directory)
    for record in records:
        metric = "" if record.metric is None else f"{record.metric_name} {record.metric:.6g}"
        intact = "yes" if record.intact else f"no: {record.problem}"
        marks = [mark for mark in ("latest", "best") if getattr(record, mark)]
        place = (str(record.epoch), str(record.step), metric, filesize.decimal(record.size))
        table.add_row(record.name, *place, intact, " ".join(marks))
    _print(table)
    if every_byte and not all(record.intact for record in records):
        raise typer.Exit(1)


def _prune(directory: str, *, keep: int, dry_run: bool) -> None:
    removed = catalogue.prune(directory, keep=keep, dry_run=dry_run)
    for path in removed:
        typer.echo(f"{'would remove' if dry_run else 'removed'} {path}")
    if not removed:
        typer.echo("there is nothing to remove")


def _print(table: Table) -> None:
    # A file or a pipe has no width of its own; wide enough for every column to stay whole.
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
