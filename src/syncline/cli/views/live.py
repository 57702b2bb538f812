"""What `up` shows: a view redrawn every second, or lines if there is no terminal."""

import asyncio
from datetime import timedelta

from rich.console import Console
from rich.live import Live

from syncline.app import Engine
from syncline.cli.views.screen import Snapshot, counts, name_of, read_snapshot, render
from syncline.clock import pause
from syncline.text import one_line, reason_text, until

MOST_LINES = 40
REDRAW_SECONDS = 1.0
LINE_SECONDS = 3.0  # between two lines
ANSWER_SECONDS = 3.0
LONGEST_SILENCE = timedelta(minutes=1)


async def show(engine: Engine, url: str, *, live: bool) -> None:
    """Show what is happening until cancelled; then say that stopping may take a while."""
    try:
        await (_show_live if live else _show_lines)(engine, url)
    finally:
        _say("Stopping: running jobs get time to end; Ctrl-C again leaves at once.")


async def _show_live(engine: Engine, url: str) -> None:
    """Redraw the view."""
    console = Console(highlight=False)
    snapshot: Snapshot | None = None
    with Live(console=console, auto_refresh=False) as live:
        while True:
            snapshot, problem = await _read(engine, snapshot)
            if snapshot is not None:
                view = render(snapshot, url, problem, width=console.width, height=console.height)
                # In a thread: a terminal stopped with Ctrl-S must not stop the engine.
                await asyncio.to_thread(live.update, view, refresh=True)
            await pause(REDRAW_SECONDS)


async def _show_lines(engine: Engine, url: str) -> None:
    """Print a line whenever something has changed."""
    _say(f"Syncline is running; see {url} (Ctrl-C stops it).")
    journal = Journal()
    snapshot: Snapshot | None = None
    while True:
        snapshot, problem = await _read(engine, snapshot)
        if snapshot is not None:
            for line in journal.news(snapshot, problem):
                _say(line)
        await pause(LINE_SECONDS)


class Journal:
    """Remembers what was printed, and returns only what is new."""

    def __init__(self) -> None:
        self._printed: Snapshot | None = None
        self._troubles: set[str] = set()

    def news(self, snapshot: Snapshot, problem: str) -> list[str]:
        time = f"{snapshot.now:%H:%M:%S}"
        if problem:
            return [f"{time}  {problem}"]
        lines = []
        if self._is_worth_a_line(snapshot):
            self._printed = snapshot
            due = [until(snapshot.now, run.due_at) for run in snapshot.activity.next_runs[:1]]
            lines.append(
                "; ".join([f"{time}  {counts(snapshot).plain}", *(f"next {d}" for d in due)])
            )
        troubles = {
            f"{name_of(trouble)}: {trouble.status}, {reason_text(trouble.reason)}"
            for trouble in snapshot.overview.troubles
        }
        lines += [f"          {trouble}" for trouble in sorted(troubles - self._troubles)]
        self._troubles = troubles
        return lines

    def _is_worth_a_line(self, snapshot: Snapshot) -> bool:
        printed = self._printed
        return (
            printed is None
            or counts(printed) != counts(snapshot)
            or snapshot.now - printed.now >= LONGEST_SILENCE
        )


async def _read(engine: Engine, last: Snapshot | None) -> tuple[Snapshot | None, str]:
    """Return a new snapshot; or the last one, and why there is no newer."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await read_snapshot(engine, limit=MOST_LINES), ""
    except Exception as error:
        return last, one_line(f"The database does not answer: {type(error).__name__}: {error}")


def _say(line: str) -> None:
    print(line, flush=True)
