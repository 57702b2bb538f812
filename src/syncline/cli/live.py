"""What `up` shows: a view that is drawn anew every second, or lines where there is no terminal."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from syncline.api.wording import ago, duration, error_text, one_line, reason_text, until
from syncline.cli.output import COLOURS, cell
from syncline.clock import pause
from syncline.engine.app import Engine
from syncline.store.status import Status, Whose

LINES = 30
REDRAW_SECONDS = 1.0
ANSWER_SECONDS = 3.0
QUIET = timedelta(minutes=1)  # lines where nothing has changed
FIXED_LINES = 13  # titles, heads and gaps: what the view needs besides its rows
STOPPING = "Stopping: running jobs get time to end; Ctrl-C again leaves at once."


async def show_live(engine: Engine, url: str) -> None:
    """Redraw the view until cancelled; a database that is away shows as such."""
    console = Console(highlight=False)
    status, problem = None, ""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            status, problem = await _look(engine, status)
            if status is not None:
                view = render(status, url, problem, height=console.height)
                # In a thread: a terminal that is held with Ctrl-S must not hold the engine.
                await asyncio.to_thread(live.update, view, refresh=True)
            await pause(REDRAW_SECONDS)


async def show_lines(engine: Engine, url: str) -> None:
    """Print a line whenever something has changed, until cancelled."""
    print(f"Syncline is running; see {url}", flush=True)
    told, told_at, known_troubles = "", None, set()
    status, problem = None, ""
    while True:
        status, problem = await _look(engine, status)
        if problem:
            print(problem, flush=True)
        elif status is not None:
            line = count_line(status)
            if line != told or told_at is None or status.now - told_at >= QUIET:
                print(f"{status.now:%H:%M:%S}  {line}{_next(status)}", flush=True)
                told, told_at = line, status.now
            for trouble in status.troubles:
                what = f"{_name(trouble)}: {trouble.status}: {reason_text(trouble.reason)}"
                if what not in known_troubles:
                    print(f"          {what}", flush=True)
                    known_troubles.add(what)
        await pause(REDRAW_SECONDS * 5)


async def _look(engine: Engine, last: Status | None) -> tuple[Status | None, str]:
    """Return how things stand, or the last that was known and why there is nothing newer."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await engine.status(limit=LINES), ""
    except Exception as error:
        return last, one_line(f"The database does not answer: {type(error).__name__}: {error}")
