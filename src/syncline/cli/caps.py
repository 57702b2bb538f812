"""The options that set how many jobs run at once."""

from typing import Annotated

import typer

MaxRunning = Annotated[
    int | None,
    typer.Option(min=0, max=1_000_000, metavar="N", help="Most jobs that run at once."),
]
Uncapped = Annotated[bool, typer.Option("--uncapped", help="Remove the cap.")]


def chosen_cap(max_running: int | None, uncapped: bool) -> tuple[bool, int | None]:
    """Return whether the cap changes, and what it becomes; None removes it."""
    if max_running is not None and uncapped:
        raise typer.BadParameter("--max-running and --uncapped exclude each other")
    return max_running is not None or uncapped, max_running
