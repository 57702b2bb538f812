"""What `up` shows: a view that is drawn anew every second, or lines where there is no terminal."""

import asyncio
from datetime import timedelta

from rich.console import Console
from rich.live import Live

from syncline.app import Engine
from syncline.cli.views.screen import counts, name_of, render
from syncline.clock import pause
from syncline.store.stats.status import Status
from syncline.text import one_line, reason_text, until

MOST_LINES = 40
REDRAW_SECONDS = 1.0
LOOK_SECONDS = 3.0  # between two lines
ANSWER_SECONDS = 3.0
LONGEST_SILENCE = timedelta(minutes=1)


async def show(engine: Engine, url: str, *, live: bool) -> None:
    """Show what happens until cancelled; then say that the end may take a while."""
    try:
        await (_show_live if live else _show_lines)(engine, url)
    finally:
        _say("Stopping: running jobs get time to end; Ctrl-C again leaves at once.")


async def _show_live(engine: Engine, url: str) -> None:
    """Redraw the view."""
    console = Console(highlight=False)
    status: Status | None = None
    with Live(console=console, auto_refresh=False) as live:
        while True:
            status, problem = await _look(engine, status)
            if status is not None:
                view = render(status, url, problem, width=console.width, height=console.height)
                # In a thread: a terminal that is held with Ctrl-S must not hold the engine.
                await asyncio.to_thread(live.update, view, refresh=True)
            await pause(REDRAW_SECONDS)


async def _show_lines(engine: Engine, url: str) -> None:
    """Print a line whenever something has changed."""
    _say(f"Syncline is running; see {url} (Ctrl-C stops it).")
    journal = Journal()
    status: Status | None = None
    while True:
        status, problem = await _look(engine, status)
        if status is not None:
            for line in journal.news(status, problem):
                _say(line)
        await pause(LOOK_SECONDS)


class Journal:
    """Remembers what has been told, and tells only what is new."""

    def __init__(self) -> None:
        self._told: Status | None = None
        self._troubles: set[str] = set()

    def news(self, status: Status, problem: str) -> list[str]:
        time = f"{status.now:%H:%M:%S}"
        if problem:
            return [f"{time}  {problem}"]
        lines = []
        if self._is_worth_a_line(status):
            self._told = status
            due = [until(status.now, run.due_at) for run in status.next_runs[:1]]
            lines.append(
                "; ".join([f"{time}  {counts(status).plain}", *(f"next {d}" for d in due)])
            )
        troubles = {
            f"{name_of(trouble)}: {trouble.status}, {reason_text(trouble.reason)}"
            for trouble in status.troubles
        }
        lines += [f"          {trouble}" for trouble in sorted(troubles - self._troubles)]
        self._troubles = troubles
        return lines

    def _is_worth_a_line(self, status: Status) -> bool:
        told = self._told
        return (
            told is None
            or told.summary != status.summary
            or status.now - told.now >= LONGEST_SILENCE
        )


async def _look(engine: Engine, last: Status | None) -> tuple[Status | None, str]:
    """Return how things stand, or the last that was known and why there is nothing newer."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await engine.status(limit=MOST_LINES), ""
    except Exception as error:
        return last, one_line(f"The database does not answer: {type(error).__name__}: {error}")


def _say(line: str) -> None:
    print(line, flush=True)
