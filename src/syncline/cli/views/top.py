"""What `status` and `top` show, fitted into a terminal."""

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from syncline.cli.output import COLOURS
from syncline.cli.views.screen import (
    Snapshot,
    counts,
    figure,
    name_of,
    sections_of,
    share_out,
    tables_of,
)
from syncline.model import Worker
from syncline.policy.freshness import Freshness
from syncline.policy.stats import (
    FLOODS_SHOWN,
    Activity,
    Figure,
    Overview,
    Providers,
    flood_trouble,
    provider_trouble,
)
from syncline.text import duration, error_text, one_line, until

WINDOW = timedelta(seconds=30)
BAR = 20
FIXED_LINES = 16


class Rates:
    """How fast jobs are made and signals stored, over the readings of the last half minute."""

    def __init__(self) -> None:
        self._readings: deque[tuple[datetime, int, int]] = deque()

    def add(self, found: Activity) -> None:
        self._readings.append((found.now, found.jobs_made, found.signals_stored))
        while len(self._readings) > 2 and found.now - self._readings[0][0] > WINDOW:
            self._readings.popleft()

    def per_second(self) -> tuple[float, float] | None:
        """Return jobs and signals per second; None after a single reading."""
        (then, jobs, signals), (now, jobs_now, signals_now) = self._readings[0], self._readings[-1]
        seconds = (now - then).total_seconds()
        if seconds <= 0:
            return None
        # The server may have reset its statistics in between.
        return max(jobs_now - jobs, 0) / seconds, max(signals_now - signals, 0) / seconds


def render_status(
    snapshot: Snapshot, providers: Providers, freshness: Freshness, *, width: int, height: int
) -> RenderableType:
    """Return one screen: counts, queue, providers, freshness, workers, and the latest of each."""
    workers, troubles = snapshot.overview.workers, _troubles(providers)
    rows = height - FIXED_LINES - len(workers) - len(troubles)
    return Group(
        counts(snapshot),
        _queue(snapshot.overview),
        _providers(providers),
        *troubles,
        _freshness(freshness),
        Text(),
        _workers(workers, snapshot.now),
        *tables_of(sections_of(snapshot), width=width, rows=rows),
    )


def render_top(snapshot: Snapshot, rates: Rates, *, width: int, height: int) -> RenderableType:
    """Return the live view."""
    now, workers = snapshot.now, snapshot.overview.workers
    failing = [one for one in snapshot.overview.troubles if not one.waits_for_person]
    slowest = snapshot.activity.slowest
    room = share_out([len(slowest), len(failing)], height - FIXED_LINES - len(workers))
    slow_rows = [
        (name_of(job), job.job_type, duration(now - job.started_at), "")
        for job in slowest[: room[0]]
    ]
    failing_rows = [
        (
            name_of(one),
            f"{one.attempts} x",
            until(now, one.retry_after) if one.retry_after else "",
            error_text(one.reason),
        )
        for one in failing[: room[1]]
    ]
    return Group(
        Text.assemble(("Syncline", "bold"), f"  {now:%H:%M:%S}Z  ", ("Ctrl-C leaves", "dim")),
        _throughput(snapshot, rates),
        _queue(snapshot.overview),
        Text(),
        _workers(workers, now),
        Text(),
        _table(("Slowest", "Type", "For", ""), slow_rows, width),
        Text(),
        _table(("Failing", "Failures", "Again", "Error"), failing_rows, width),
    )


def _throughput(snapshot: Snapshot, rates: Rates) -> Text:
    per_second = rates.per_second()
    shown = (
        "measuring …"
        if per_second is None
        else "{:,.1f} jobs/s, {:,.1f} signals/s".format(*per_second)
    )
    running = snapshot.overview.queue.running
    return Text.assemble("Throughput: ", (shown, "bold"), f"; {running:,} running")


def _queue(seen: Overview) -> Text:
    total = seen.queue
    rest = f"; scheduled for later: {total.later:,}; in backoff: {total.backoff:,}"
    if not total.due or total.oldest_due_at is None:
        return Text(f"Due and waiting: none{rest}")
    waiting = sorted(seen.queues.values(), key=lambda queue: -queue.due)
    shown = ", ".join(
        f"{one_line(queue.provider_slug)} {queue.due:,}" for queue in waiting[:6] if queue.due
    )
    due = figure(Figure(total.due, "at_least" if total.is_bounded else "exact"))
    oldest = duration(seen.now - total.oldest_due_at)
    return Text(
        f"Due and waiting: {due}, the oldest for {oldest} ({shown}){rest}",
        no_wrap=True,
        overflow="ellipsis",
    )


def _providers(found: Providers) -> Text:
    line = Text("Providers: ", no_wrap=True, overflow="ellipsis")
    for number, one in enumerate(found.items):
        line.append(f"{', ' if number else ''}{one_line(one.provider_slug)} ")
        line.append(one.health, style=COLOURS.get(one.health, ""))
    return line if found.items else line.append("none")


def _troubles(found: Providers) -> list[Text]:
    """Return a sentence about each provider that is not well, and each tenant that floods."""
    unwell = [one for one in found.items if one.is_unwell]
    more = len(found.floods) - FLOODS_SHOWN
    return [
        *(Text(f"  {one_line(one.provider_slug)}: {provider_trouble(one)}") for one in unwell),
        *(
            Text(f"  Tenant {one_line(one.tenant_id)}: {flood_trouble(one)}")
            for one in found.floods[:FLOODS_SHOWN]
        ),
        *([Text(f"  {more:,} more: syncline tenants list")] if more > 0 else []),
    ]


def _freshness(found: Freshness) -> Text:
    bands = [f"{band.label}: {band.count:,}" for band in found.bands if band.count]
    source = f" (of {found.sampled:,} sampled)" if found.is_sample else ""
    return Text(
        f"Last good sync{source}: {', '.join(bands) or 'no active connections'}",
        no_wrap=True,
        overflow="ellipsis",
    )


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
