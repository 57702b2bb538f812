"""Figures by what happened: reports of processes, and the minutes, hours and days made of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.policy.figures import Figures, Histogram, Span, Tally
from syncline.sdk.json_text import read_json, write_value
from syncline.store.pool import Transaction

REPORT = """
    -- Write what a process has seen. A repetition after a lost answer adds nothing.
    INSERT INTO {schema}.figure_reports
           (id, minute, provider_slug, outcomes, signals, durations, delays, backlog)
    SELECT $1, $2, seen.provider_slug, seen.outcomes, seen.signals, seen.durations, seen.delays,
           seen.backlog
      FROM unnest($3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::bigint[])
           AS seen (provider_slug, outcomes, signals, durations, delays, backlog)
        ON CONFLICT (id, provider_slug) DO NOTHING
"""


async def report(
    tx: Transaction, id_: UUID, minute: datetime, tallies: Mapping[str, Tally]
) -> None:
    await tx.execute(REPORT, id_, minute, list(tallies), *_columns(tallies.values()))


TAKE_REPORTS = """
    -- Take the reports of minutes that are over. Whoever deletes a report adds it up.
    DELETE FROM {schema}.figure_reports WHERE minute < $1
 RETURNING minute AS starts_at, provider_slug, outcomes, signals, durations, delays, backlog
"""

LOCK = """
    -- The figures that reports are added to.
    SELECT f.starts_at, f.provider_slug, f.outcomes, f.signals, f.durations, f.delays, f.backlog
      FROM {schema}.figures f
     WHERE f.span = $1 AND f.starts_at = ANY ($2::timestamptz[])
       AND f.provider_slug = ANY ($3::text[])
     ORDER BY f.starts_at, f.provider_slug
       FOR UPDATE
"""

SAVE = """
    -- Save figures, over those that were locked.
    INSERT INTO {schema}.figures
           (span, starts_at, provider_slug, outcomes, signals, durations, delays, backlog)
    SELECT $1, sum.starts_at, sum.provider_slug, sum.outcomes, sum.signals, sum.durations,
           sum.delays, sum.backlog
      FROM unnest($2::timestamptz[], $3::text[], $4::text[], $5::bigint[], $6::text[],
                  $7::text[], $8::bigint[])
           AS sum (starts_at, provider_slug, outcomes, signals, durations, delays, backlog)
        ON CONFLICT (span, starts_at, provider_slug) DO UPDATE
       SET outcomes = excluded.outcomes, signals = excluded.signals,
           durations = excluded.durations, delays = excluded.delays,
           backlog = excluded.backlog
"""


async def take_reports(tx: Transaction, *, before: datetime) -> list[Figures]:
    """Remove the reports of the minutes before, and return them."""
    return [_figures(row) for row in await tx.fetch(TAKE_REPORTS, before)]


async def lock(tx: Transaction, span: Span, added: Iterable[tuple[datetime, str]]) -> list[Figures]:
    """Return the figures of these times and providers, locked."""
    keys = list(added)
    times, slugs = {at for at, _ in keys}, {slug for _, slug in keys}
    return [_figures(row) for row in await tx.fetch(LOCK, span, list(times), list(slugs))]


async def save(tx: Transaction, span: Span, sums: Mapping[tuple[datetime, str], Tally]) -> None:
    times, slugs = [at for at, _ in sums], [slug for _, slug in sums]
    await tx.execute(SAVE, span, times, slugs, *_columns(sums.values()))


READ = """
    -- The figures since a time, of all providers or of one.
    SELECT starts_at, provider_slug, outcomes, signals, durations, delays, backlog
      FROM {schema}.figures
     WHERE span = $1 AND starts_at >= $2 AND ($3::text IS NULL OR provider_slug = $3)
"""

READ_REPORTS = """
    -- What has not been added to the figures yet.
    SELECT minute AS starts_at, provider_slug, outcomes, signals, durations, delays, backlog
      FROM {schema}.figure_reports
     WHERE minute >= $1 AND ($2::text IS NULL OR provider_slug = $2)
"""


async def read(
    tx: Transaction, span: Span, *, since: datetime, provider_slug: str | None = None
) -> list[Figures]:
    """Return the figures since a time, also those that are only reported yet."""
    rows: Sequence[Any] = await tx.fetch(READ, span, since, provider_slug)
    reported: Sequence[Any] = await tx.fetch(READ_REPORTS, since, provider_slug)
    return [_figures(row) for row in (*rows, *reported)]


PRUNE = """
    -- Remove figures that are no longer kept.
    DELETE FROM {schema}.figures WHERE span = $1 AND starts_at < $2
"""


async def prune(tx: Transaction, span: Span, *, before: datetime) -> int:
    return await tx.execute(PRUNE, span, before)


def _columns(tallies: Iterable[Tally]) -> tuple[list[Any], ...]:
    every = list(tallies)
    return (
        [write_value(dict(one.outcomes)) for one in every],
        [one.signals for one in every],
        [_array(one.durations) for one in every],
        [_array(one.delays) for one in every],
        [one.backlog for one in every],
    )


def _array(histogram: Histogram) -> str:
    """Return a histogram as Postgres writes an array, which is half as long as an array is."""
    return f"{{{','.join(map(str, histogram.to_list()))}}}"


def _histogram(array: str) -> Histogram:
    numbers = array.strip("{}")
    return Histogram.from_list([int(number) for number in numbers.split(",")] if numbers else [])


def _figures(row: Any) -> Figures:
    tally = Tally(
        Counter(read_json(row["outcomes"])),
        row["signals"],
        _histogram(row["durations"]),
        _histogram(row["delays"]),
        row["backlog"],
    )
    return Figures(row["starts_at"], row["provider_slug"], tally)
