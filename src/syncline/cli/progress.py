"""How far a long command has come, and whether it may begin."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from syncline.cli.errors import Failure

Advance = Callable[[float], None]


@contextmanager
def progress(what: str, total: float | None) -> Iterator[Advance]:
    """Show a bar on stderr meanwhile, where that is a terminal; lend what moves it on."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(file=sys.stderr)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps: bar.advance(task, steps)


def confirm(question: str, *, yes: bool) -> None:
    """Ask unless told not to; where nobody can be asked, refuse as wrong use."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is nobody to ask: add --yes")
    if not typer.confirm(question):
        raise Failure("nothing was changed")
