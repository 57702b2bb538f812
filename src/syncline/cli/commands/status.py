"""`syncline status` and `syncline top`: how everything is, and what is happening now."""

import asyncio
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli.interrupts import Interrupts, stopped_within
from syncline.cli.options import AsJson
from syncline.cli.output import print_json
from syncline.cli.session import perform, session_of

if TYPE_CHECKING:
    from syncline.app import Engine
    from syncline.cli.views.screen import Snapshot
    from syncline.policy.freshness import Freshness
    from syncline.policy.stats import Providers, ProviderStats

commands = typer.Typer()
LINES = 8
WIDTH_OF_A_PIPE, HEIGHT_OF_A_PIPE = 160, 60


@commands.command(epilog="Example: syncline status")
def status(context: typer.Context, json: AsJson = False) -> None:
    """Show how everything is, on one screen."""
    from syncline.cli.views.screen import read_snapshot
    from syncline.cli.views.top import render_status

    async def show(engine: "Engine") -> None:
        snapshot = await read_snapshot(engine, limit=LINES)
        providers = await engine.stats.providers()
        freshness = await engine.stats.freshness()
        if json:
            print_json(as_json(snapshot, providers, freshness))
            return
        console = _console()
        size = {"width": console.width, "height": console.height}
        console.print(render_status(snapshot, providers, freshness, **size))

    session_of(context).call(show)


def as_json(snapshot: "Snapshot", providers: "Providers", freshness: "Freshness") -> dict[str, Any]:
    from syncline.policy.stats import flood_trouble

    seen, found = snapshot.overview, asdict(snapshot.activity)
    counts, pending = seen.counts, snapshot.activity.pending_jobs
    figures = {
        **{f"summary.connections.{name}": figure for name, figure in counts.by_status.items()},
        **{f"summary.pending_jobs.{name}": figure for name, figure in pending.items()},
        "summary.signals": counts.signals,
    }
    return {
        "now": seen.now,
        "summary": {
            "connections": {name: one.count for name, one in counts.by_status.items() if one.count},
            "pending_jobs": {name: one.count for name, one in pending.items()},
            "signals": counts.signals.count,
        },
        **{name: found[name] for name in ("recent", "next_runs", "signals")},
        "troubles": [asdict(one) for one in seen.troubles],
        "workers": [asdict(one) for one in seen.workers],
        "queue": {
            "depth_by_provider": {slug: one.due for slug, one in seen.queues.items() if one.due},
            "oldest_due_at": seen.queue.oldest_due_at,
        },
        "providers": [_provider(one) for one in providers.items],
        "floods": [{**asdict(one), "trouble": flood_trouble(one)} for one in providers.floods],
        "freshness": asdict(freshness),
        "inexact": {name: one.kind for name, one in figures.items() if one.kind != "exact"},
    }


def _provider(one: "ProviderStats") -> dict[str, Any]:
    from syncline.policy.stats import provider_trouble, troubled_since

    trouble = provider_trouble(one) if one.is_unwell else None
    return {**asdict(one), "troubled_since": troubled_since(one), "trouble": trouble}


@commands.command(epilog="Example: syncline top --every 2")
def top(
    context: typer.Context,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.2, help="Time between two updates.")
    ] = 1.0,
    count: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End after this many updates.")
    ] = None,
) -> None:
    """Show what is happening now, live: throughput, slots, slowest jobs, failing jobs.

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

    from syncline.cli.views.screen import read_snapshot
    from syncline.cli.views.top import Rates, render_top

    console, rates, stop = _console(), Rates(), asyncio.Event()
    interrupts.react = stop.set
    shown = 0
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while not stop.is_set():
            snapshot = await read_snapshot(engine, limit=console.height)
            rates.add(snapshot.activity)
            view = render_top(snapshot, rates, width=console.width, height=console.height)
            # In a thread: a terminal stopped with Ctrl-S must not stop the loop.
            await asyncio.to_thread(live.update, view, refresh=True)
            shown += 1
            if shown == count:
                return
            await stopped_within(stop, every)


def _console() -> "Console":
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=WIDTH_OF_A_PIPE, height=HEIGHT_OF_A_PIPE)


if TYPE_CHECKING:
    from rich.console import Console
