"""What `status` and `top` show, fitted into a terminal."""

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from syncline.cli.output import COLOURS
from syncline.cli.views.screen import counts, name_of, sections_of, share_out, tables_of
from syncline.model import Worker
from syncline.store.stats.activity import Activity
from syncline.store.stats.status import Status
from syncline.text import duration, error_text, one_line, until

WINDOW = timedelta(seconds=30)
BAR = 20
FIXED_LINES = 14


class Rates:
    """How fast jobs are made and signals stored, over the last half minute of looks."""

    def __init__(self) -> None:
        self._looks: deque[tuple[datetime, int, int]] = deque()

    def note(self, found: Activity) -> None:
        self._looks.append((found.now, found.jobs_made, found.signals_stored))
        while len(self._looks) > 2 and found.now - self._looks[0][0] > WINDOW:
            self._looks.popleft()

    def per_second(self) -> tuple[float, float] | None:
        """Return jobs and signals a second; None after a single look."""
        (then, jobs, signals), (now, jobs_now, signals_now) = self._looks[0], self._looks[-1]
        seconds = (now - then).total_seconds()
        if seconds <= 0:
            return None
        # The server may have lost its statistics meanwhile.
        return max(jobs_now - jobs, 0) / seconds, max(signals_now - signals, 0) / seconds


def render_status(status: Status, found: Activity, *, width: int, height: int) -> RenderableType:
    """Return one screen: counts, who works, what waits, what happened, what comes, what is ill."""
    sections = sections_of(status)
    return Group(
        counts(status),
        _queue(found),
        Text(),
        _workers(found.workers, found.now),
        *tables_of(sections, width=width, rows=height - FIXED_LINES - len(found.workers)),
    )


def render_top(found: Activity, rates: Rates, *, width: int, height: int) -> RenderableType:
    """Return the live view."""
    room = share_out(
        [len(found.slowest), len(found.failing)], height - FIXED_LINES - len(found.workers)
    )
    slowest = [
        (name_of(job), job.job_type, duration(found.now - job.started_at), "")
        for job in found.slowest[: room[0]]
    ]
    failing = [
        (
            name_of(job),
            f"{job.attempts} x",
            until(found.now, job.retry_after),
            error_text(job.error),
        )
        for job in found.failing[: room[1]]
    ]
    return Group(
        Text.assemble(("Syncline", "bold"), f"  {found.now:%H:%M:%S}Z  ", ("Ctrl-C leaves", "dim")),
        _throughput(found, rates),
        _queue(found),
        Text(),
        _workers(found.workers, found.now),
        Text(),
        _table(("Slowest", "Type", "For", ""), slowest, width),
        Text(),
        _table(("Failing", "Failures", "Again", "Error"), failing, width),
    )


def _throughput(found: Activity, rates: Rates) -> Text:
    per_second = rates.per_second()
    told = (
        "measuring …"
        if per_second is None
        else "{:,.1f} jobs/s, {:,.1f} signals/s".format(*per_second)
    )
    running = found.summary.pending_jobs.get("running", 0)
    return Text.assemble("Throughput: ", (told, "bold"), f"; {running:,} running")


def _queue(found: Activity) -> Text:
    queue = found.queue
    if not queue.depth_by_provider:
        return Text("Due and waiting: none")
    waiting = sorted(queue.depth_by_provider.items(), key=lambda entry: -entry[1])
    shown = ", ".join(f"{one_line(slug)} {depth:,}" for slug, depth in waiting[:6])
    oldest = (
        f", the oldest for {duration(found.now - queue.oldest_due_at)}"
        if queue.oldest_due_at
        else ""
    )
    total = sum(queue.depth_by_provider.values())
    return Text(f"Due and waiting: {total:,}{oldest} ({shown})", no_wrap=True, overflow="ellipsis")


def _workers(workers: Sequence[Worker], now: datetime) -> RenderableType:
    if not workers:
        return Text("No worker is registered: nothing runs until one is started.", style="bold red")
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1))
    for head in (Text("Workers", style="bold"), "Status", "Roles", "Slots", "", "Heard of"):
        table.add_column(head, no_wrap=True)
    for worker in workers:
        table.add_row(
            Text(f"{one_line(worker.host)}:{worker.pid}"),
            Text(worker.status, style=COLOURS.get(worker.status, "")),
            Text(" ".join(worker.roles)),
            Text(_bar(worker), style="cyan"),
            Text(f"{worker.busy}/{worker.slots}"),
            Text(f"{duration(now - worker.beat_at)} ago"),
        )
    return table


def _bar(worker: Worker) -> str:
    full = round(BAR * min(worker.busy / worker.slots, 1)) if worker.slots else 0
    return "█" * full + "·" * (BAR - full) if worker.slots else ""


def _table(
    heads: Sequence[str], rows: Iterable[tuple[str, str, str, str]], width: int
) -> RenderableType:
    table = Table(box=None, pad_edge=False, width=width, header_style="dim", padding=(0, 1))
    for number, head in enumerate(heads):
        last = number == len(heads) - 1
        style = "bold" if number == 0 else ""
        table.add_column(
            Text(head, style=style), no_wrap=True, overflow="ellipsis", ratio=1 if last else None
        )
    for row in rows:
        table.add_row(*(Text(part) for part in row))
    return table
