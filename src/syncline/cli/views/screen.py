"""The live view: how things stand, fitted into a terminal."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from syncline.cli.output import COLOURS
from syncline.store.stats.status import Status, Whose
from syncline.text import ago, duration, error_text, one_line, reason_text, until

NAME_WIDTH = 32
MARGIN = 4  # what the terminal echoes for Ctrl-C must not break the last line
FIXED_LINES = 12  # titles, heads and gaps: what the view needs besides its rows
FEWEST_ROWS = 2

Row = tuple[Whose, str, str, str]


Sections = dict[str, tuple[tuple[str, str, str], list[Row]]]


def render(status: Status, url: str, problem: str, *, width: int, height: int) -> RenderableType:
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
    tables = tables_of(sections_of(status), width=width - MARGIN, rows=height - FIXED_LINES)
    return Group(header, counts(status), *note, *tables)


def sections_of(status: Status) -> Sections:
    """Return what there is to show, by title: the heads and the rows."""
    sections: Sections = {
        "Recent jobs": (("Status", "Started", "Took, or error"), _recent(status)),
        "Next runs": (("", "Due", ""), _next_runs(status)),
        "In trouble": (("Status", "Again", "Why"), _troubles(status)),
        "Latest signals": (("Kind", "Occurred", "Payload"), _signals(status)),
    }
    return {title: section for title, section in sections.items() if section[1]}


def tables_of(sections: Sections, *, width: int, rows: int) -> list[RenderableType]:
    """Return the sections as tables, a gap before each, with so many rows in all."""
    room = share_out([len(shown) for _, shown in sections.values()], max(rows, 0))
    parts: list[RenderableType] = []
    for (title, (heads, shown)), count in zip(sections.items(), room, strict=True):
        parts += [Text(), _table(title, heads, shown[:count], width=max(width, 40))]
    return parts


def counts(status: Status) -> Text:
    """Return a line with how many connections, jobs and signals there are."""
    summary = status.summary
    return Text.assemble(
        (f"{sum(summary.connections.values()):,}", "bold"),
        " connections: ",
        *_tally(summary.connections),
        "; jobs: ",
        *_tally(summary.pending_jobs),
        "; ",
        (f"{summary.signals:,}", "bold"),
        " signals",
        no_wrap=True,
        overflow="ellipsis",
    )


def share_out(wanted: Sequence[int], room: int) -> list[int]:
    """Return how many rows each section gets: all the same, and who wants less leaves the rest."""
    given = [0] * len(wanted)
    for _ in range(sum(wanted)):
        hungry = [i for i, want in enumerate(wanted) if given[i] < want]
        if sum(given) >= max(room, FEWEST_ROWS * len(wanted)) or not hungry:
            break
        given[min(hungry, key=lambda i: given[i])] += 1
    return given


def name_of(whose: Whose, width: int = NAME_WIDTH) -> str:
    """Return which connection it is; of a long name, the end tells more than the beginning."""
    tenant, name = one_line(whose.tenant_id), one_line(whose.external_id)
    text = f"{tenant} {name}"
    if len(text) <= width:
        return text
    return f"{tenant} …{name[-max(width - len(tenant) - 2, 8) :]}"


def _recent(status: Status) -> list[Row]:
    return [
        (
            job,
            job.status,
            ago(status.now, job.started_at),
            error_text(job.error)
            or (duration(job.finished_at - job.started_at) if job.finished_at else ""),
        )
        for job in status.recent
    ]


def _next_runs(status: Status) -> list[Row]:
    return [
        (run, "retry" if run.attempts else "", until(status.now, run.due_at), "")
        for run in status.next_runs
    ]


def _troubles(status: Status) -> list[Row]:
    return [
        (
            trouble,
            trouble.status,
            until(status.now, trouble.retry_after) if trouble.retry_after else "when resumed",
            reason_text(trouble.reason),
        )
        for trouble in status.troubles
    ]


def _signals(status: Status) -> list[Row]:
    return [
        (
            signal,
            one_line(signal.kind),
            ago(status.now, signal.occurred_at),
            one_line(signal.preview),
        )
        for signal in status.signals
    ]


def _table(title: str, heads: Iterable[str], rows: Iterable[Row], *, width: int) -> Table:
    table = Table(box=None, pad_edge=False, width=width, header_style="dim", padding=(0, 1))
    name_width = min(NAME_WIDTH, width // 3)
    table.add_column(Text(title, style="bold"), width=name_width, no_wrap=True)
    for head, column_width in zip(heads, (14, 13, None), strict=True):
        ratio = None if column_width else 1
        table.add_column(head, width=column_width, ratio=ratio, no_wrap=True, overflow="ellipsis")
    for whose, what, when, words in rows:
        table.add_row(
            Text(name_of(whose, name_width)),
            Text(what, style=COLOURS.get(what, "")),
            Text(when),
            Text(words),
        )
    return table


def _tally(counted: dict[str, int]) -> list[str | tuple[str, str]]:
    """Return how many there are of each status."""
    parts: list[str | tuple[str, str]] = []
    for status, count in sorted(counted.items()):
        parts += [", "] if parts else []
        parts.append((f"{count:,} {status}", COLOURS.get(status, "")))
    return parts or ["none"]
