"""`syncline status` and `syncline top`: how things stand, and what happens now."""

import asyncio
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.interrupts import Interrupts
from syncline.cli.options import AsJson
from syncline.cli.output import print_json
from syncline.cli.session import perform, session_of

if TYPE_CHECKING:
    from syncline.app import Engine

commands = typer.Typer()
LINES = 8
WIDTH_OF_A_PIPE, HEIGHT_OF_A_PIPE = 160, 60


@commands.command(epilog="Example: syncline status")
def status(context: typer.Context, json: AsJson = False) -> None:
    """Show how things stand, on one screen."""
    from syncline.cli.views.top import render_status

    async def look(engine: "Engine") -> None:
        now, found = await engine.status(limit=LINES), await engine.doctor.activity(limit=LINES)
        if json:
            more = asdict(found)
            print_json({**asdict(now), "workers": more["workers"], "queue": more["queue"]})
            return
        console = _console()
        console.print(render_status(now, found, width=console.width, height=console.height))

    session_of(context).call(look)


@commands.command(epilog="Example: syncline top --every 2")
def top(
    context: typer.Context,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.2, help="Time between two looks.")
    ] = 1.0,
    count: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Leave after so many looks.")
    ] = None,
) -> None:
    """Show what happens now, live: throughput, slots, the slowest, what fails.

    Ctrl-C leaves.
    """
    session = session_of(context)

    async def work(interrupts: Interrupts) -> None:
        async with session.engine() as engine:
            await _show_live(engine, interrupts, every, count)

    with session.logs():
        perform(work)


async def _show_live(
    engine: "Engine", interrupts: Interrupts, every: float, count: int | None
) -> None:
    from rich.live import Live

    from syncline.cli.views.top import Rates, render_top

    console, rates, stop = _console(), Rates(), asyncio.Event()
    interrupts.react = stop.set
    looks = 0
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while not stop.is_set():
            found = await engine.doctor.activity(limit=console.height)
            rates.note(found)
            view = render_top(found, rates, width=console.width, height=console.height)
            # In a thread: a terminal that is held with Ctrl-S must not hold the loop.
            await asyncio.to_thread(live.update, view, refresh=True)
            looks += 1
            if looks == count:
                return
            try:
                async with asyncio.timeout(every):
                    await stop.wait()
            except TimeoutError:
                continue


def _console() -> "Console":
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=WIDTH_OF_A_PIPE, height=HEIGHT_OF_A_PIPE)


if TYPE_CHECKING:
    from rich.console import Console
