"""The view that `up` draws, and the parts that `status` and `top` share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from syncline.cli.output import COLOURS
from syncline.policy.stats import Activity, ConnectionRef, Figure, Overview
from syncline.text import ago, duration, error_text, one_line, reason_text, until

NAME_WIDTH = 32
MARGIN = 4  # what the terminal echoes for Ctrl-C must not break the last line
FIXED_LINES = 12  # titles, heads and gaps: what the view needs besides its rows
FEWEST_ROWS = 2
SIGNS = {"exact": "", "estimate": "≈ ", "at_least": "≥ "}

if TYPE_CHECKING:
    from syncline.app import Engine

Row = tuple[ConnectionRef, str, str, str]
Sections = dict[str, tuple[tuple[str, str, str], list[Row]]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a screen shows: both parts are read one after the other."""

    overview: Overview
    activity: Activity

    @property
    def now(self) -> datetime:
        return self.overview.now


async def read_snapshot(engine: "Engine", *, limit: int) -> Snapshot:
    """Return a snapshot with up to `limit` lines of each list."""
    overview = await engine.stats.overview(limit=limit)
    return Snapshot(overview, await engine.stats.activity(limit=limit))


def render(
    snapshot: Snapshot, url: str, problem: str, *, width: int, height: int
) -> RenderableType:
    """Return the view with as many rows as the height allows."""
    header = Text.assemble(
        ("Syncline", "bold"),
        "  ",
        (url, "cyan underline"),
        ("  Ctrl-C stops it, the data stays", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )
    note = [Text(problem, style="bold red", no_wrap=True, overflow="ellipsis")] if problem else []
    tables = tables_of(sections_of(snapshot), width=width - MARGIN, rows=height - FIXED_LINES)
    return Group(header, counts(snapshot), *note, *tables)


def sections_of(snapshot: Snapshot) -> Sections:
    """Return the sections that have rows, by title: heads and rows."""
    sections: Sections = {
        "Recent jobs": (("Status", "Started", "Took, or error"), _recent(snapshot)),
        "Next runs": (("", "Due", ""), _next_runs(snapshot)),
        "In trouble": (("Status", "Again", "Why"), _troubles(snapshot)),
        "Latest signals": (("Kind", "Occurred", "Payload"), _signals(snapshot)),
    }
    return {title: section for title, section in sections.items() if section[1]}


def tables_of(sections: Sections, *, width: int, rows: int) -> list[RenderableType]:
    """Return the sections as tables with a gap before each, `rows` rows in all."""
    room = share_out([len(shown) for _, shown in sections.values()], max(rows, 0))
    parts: list[RenderableType] = []
    for (title, (heads, shown)), count in zip(sections.items(), room, strict=True):
        parts += [Text(), _table(title, heads, shown[:count], width=max(width, 40))]
    return parts


def counts(snapshot: Snapshot) -> Text:
    """Return a line with how many connections, jobs and signals there are."""
    found = snapshot.overview.counts
    return Text.assemble(
        (figure(found.connections), "bold"),
        " connections: ",
        *_tally(found.by_status),
        "; jobs: ",
        *_tally(snapshot.activity.pending_jobs),
        "; ",
        (figure(found.signals), "bold"),
        " signals",
        no_wrap=True,
        overflow="ellipsis",
    )


def figure(found: Figure) -> str:
    """Return a count, with a sign if it is not exact."""
    return f"{SIGNS[found.kind]}{found.count:,}"


def share_out(wanted: Sequence[int], room: int) -> list[int]:
    """Return how many rows each section gets: equal shares; unused ones go to others."""
    given = [0] * len(wanted)
    for _ in range(sum(wanted)):
        hungry = [i for i, want in enumerate(wanted) if given[i] < want]
        if sum(given) >= max(room, FEWEST_ROWS * len(wanted)) or not hungry:
            break
        given[min(hungry, key=lambda i: given[i])] += 1
    return given


def name_of(connection: ConnectionRef, width: int = NAME_WIDTH) -> str:
    """Return the connection's name; a long one keeps its end, which tells more."""
    tenant, name = one_line(connection.tenant_id), one_line(connection.external_id)
    text = f"{tenant} {name}"
    if len(text) <= width:
        return text
    return f"{tenant} …{name[-max(width - len(tenant) - 2, 8) :]}"


def _recent(snapshot: Snapshot) -> list[Row]:
    return [
        (
            job,
            job.status,
            ago(snapshot.now, job.started_at),
            error_text(job.error)
            or (duration(job.finished_at - job.started_at) if job.finished_at else ""),
        )
        for job in snapshot.activity.recent
    ]


def _next_runs(snapshot: Snapshot) -> list[Row]:
    return [
        (run, "retry" if run.attempts else "", until(snapshot.now, run.due_at), "")
        for run in snapshot.activity.next_runs
    ]


def _troubles(snapshot: Snapshot) -> list[Row]:
    return [
        (
            trouble,
            trouble.status,
            until(snapshot.now, trouble.retry_after) if trouble.retry_after else "when resumed",
            reason_text(trouble.reason),
        )
        for trouble in snapshot.overview.troubles
    ]


def _signals(snapshot: Snapshot) -> list[Row]:
    return [
        (
            signal,
            one_line(signal.kind),
            ago(snapshot.now, signal.occurred_at),
            one_line(signal.preview),
        )
        for signal in snapshot.activity.signals
    ]


def _table(title: str, heads: Iterable[str], rows: Iterable[Row], *, width: int) -> Table:
    table = Table(box=None, pad_edge=False, width=width, header_style="dim", padding=(0, 1))
    name_width = min(NAME_WIDTH, width // 3)
    table.add_column(Text(title, style="bold"), width=name_width, no_wrap=True)
    for head, column_width in zip(heads, (14, 13, None), strict=True):
        ratio = None if column_width else 1
        table.add_column(head, width=column_width, ratio=ratio, no_wrap=True, overflow="ellipsis")
    for connection, what, when, words in rows:
        table.add_row(
            Text(name_of(connection, name_width)),
            Text(what, style=COLOURS.get(what, "")),
            Text(when),
            Text(words),
        )
    return table


def _tally(counted: Mapping[str, Figure]) -> list[str | tuple[str, str]]:
    """Return how many there are in each status that occurs."""
    parts: list[str | tuple[str, str]] = []
    for status, found in sorted(counted.items()):
        if found.count:
            parts += [", "] if parts else []
            parts.append((f"{figure(found)} {status}", COLOURS.get(status, "")))
    return parts or ["none"]
