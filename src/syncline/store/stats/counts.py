"""What an overview shows, at a cost that does not grow with what exists.

Each count ends at a bound, follows an index to what is pending, new or wrong, or rests on a sample;
a figure that is no exact count says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.model import ConnectionStatus
from syncline.sdk.json_text import read_json
from syncline.store.pool import Transaction

COUNTED_EXACTLY = 20_000
SAMPLED = 2_000
ALL_SAMPLED = 6_000  # up to here every connection is looked at
RUNS_LOOKED_BACK = 20


@dataclass(frozen=True, slots=True)
class Figure:
    """A count; `kind` tells whether it is `exact`, an `estimate`, or what it is `at_least`."""

    count: int
    kind: str = "exact"


COUNT_UP_TO = """
    -- How many connections there are, counted no further than a bound.
    SELECT count(*) FROM (SELECT FROM {schema}.connections LIMIT $1) AS bounded
"""

COUNT_STATUS = """
    -- Connections in each status that is not the usual one, counted no further than a bound.
    SELECT status.name, (SELECT count(*) FROM (
               SELECT FROM {schema}.connections c
                WHERE c.status = status.name AND c.status <> 'active'
                ORDER BY c.id LIMIT $2) AS bounded) AS count
      FROM unnest($1::text[]) AS status (name)
"""

ESTIMATE_ROWS = """
    -- The planner's idea of how many rows a table has.
    SELECT reltuples::bigint FROM pg_catalog.pg_class WHERE oid = $1::text::regclass
"""


async def count_connections(tx: Transaction) -> tuple[Figure, dict[str, Figure]]:
    """Return how many connections there are, and how many in each status."""
    bound = COUNTED_EXACTLY
    total = await _count(tx, "connections", await tx.fetchval(COUNT_UP_TO, bound + 1))
    names = [status.value for status in ConnectionStatus if status != ConnectionStatus.ACTIVE]
    rows = await tx.fetch(COUNT_STATUS, names, bound + 1)
    found = {row["name"]: _bounded(row["count"]) for row in rows}
    active = max(total.count - sum(figure.count for figure in found.values()), 0)
    return total, {ConnectionStatus.ACTIVE.value: Figure(active, total.kind), **found}


COUNT_SIGNALS_UP_TO = """
    -- How many signals there are, counted no further than a bound.
    SELECT count(*) FROM (SELECT FROM {schema}.signals LIMIT $1) AS bounded
"""


async def count_signals(tx: Transaction) -> Figure:
    """Return how many signals there are."""
    counted = await tx.fetchval(COUNT_SIGNALS_UP_TO, COUNTED_EXACTLY + 1)
    return await _count(tx, "signals", counted)


async def _count(tx: Transaction, table: str, counted: int) -> Figure:
    if counted <= COUNTED_EXACTLY:
        return Figure(counted)
    estimate: int = await tx.fetchval(ESTIMATE_ROWS, tx.qualified(table))
    return Figure(estimate, "estimate") if estimate >= counted else Figure(counted - 1, "at_least")


def _bounded(counted: int) -> Figure:
    if counted <= COUNTED_EXACTLY:
        return Figure(counted)
    return Figure(COUNTED_EXACTLY, "at_least")


SAMPLE = """
    -- Active connections of some blocks of the table, and when each last ended a run well.
    SELECT c.provider_slug, good.finished_at
      FROM {schema}.connections AS c TABLESAMPLE SYSTEM ($1)
      LEFT JOIN LATERAL (
           SELECT late.finished_at FROM (
               SELECT j.finished_at, j.status FROM {schema}.sync_jobs j
                WHERE j.connection_id = c.id AND j.finished_at IS NOT NULL
                ORDER BY j.finished_at DESC LIMIT $2) late
            WHERE late.status IN ('succeeded', 'completed')
            ORDER BY late.finished_at DESC LIMIT 1) good ON true
     WHERE c.status = 'active'
     LIMIT $3
"""


@dataclass(frozen=True, slots=True)
class Sighting:
    """An active connection of the sample; None where no good sync is among its last runs."""

    provider_slug: str
    last_good_at: datetime | None


async def sample_freshness(tx: Transaction, total: int) -> list[Sighting]:
    """Return the active connections, or about two thousand of them where there are many."""
    percent = 100.0 * SAMPLED / total if total > ALL_SAMPLED else 100.0
    rows = await tx.fetch(SAMPLE, percent, RUNS_LOOKED_BACK, 2 * ALL_SAMPLED)
    return [Sighting(row["provider_slug"], row["finished_at"]) for row in rows]


COUNT_JOBS_MADE = """
    -- Jobs by the minute in which they were made, which their ids tell, and by what became of them.
    SELECT span.place, made.outcome, count(*) AS count
      FROM unnest($1::uuid[], $2::uuid[]) WITH ORDINALITY AS span (first_id, last_id, place)
     CROSS JOIN LATERAL (
           SELECT CASE WHEN j.status IN ('succeeded', 'completed') THEN 'good'
                       WHEN j.status = 'failed' OR j.error IS NOT NULL THEN 'bad'
                       ELSE 'open' END AS outcome
             FROM {schema}.sync_jobs j
            WHERE j.id >= span.first_id AND j.id < span.last_id
            ORDER BY j.id LIMIT $3) made
     GROUP BY span.place, made.outcome
"""

COUNT_SIGNALS_STORED = """
    -- Signals by the minute in which they were stored.
    SELECT span.place, (SELECT count(*) FROM (
               SELECT FROM {schema}.signals s
                WHERE s.received_at >= span.since AND s.received_at < span.until
                ORDER BY s.received_at LIMIT $3) AS bounded) AS count
      FROM unnest($1::timestamptz[], $2::timestamptz[]) WITH ORDINALITY
           AS span (since, until, place)
"""

Span = tuple[datetime, datetime]


async def count_jobs_made(
    tx: Transaction, spans: Sequence[Span], *, limit: int
) -> list[dict[str, int]]:
    """Return the jobs made in each span of time, by outcome: `good`, `bad` or `open`."""
    ids = [(first_id_at(since), first_id_at(until)) for since, until in spans]
    found: list[dict[str, int]] = [{} for _ in spans]
    arguments = ([first for first, _ in ids], [last for _, last in ids], limit)
    for row in await tx.fetch(COUNT_JOBS_MADE, *arguments):
        found[row["place"] - 1][row["outcome"]] = row["count"]
    return found


async def count_signals_stored(tx: Transaction, spans: Sequence[Span], *, limit: int) -> list[int]:
    """Return the signals stored in each span of time, counted no further than the limit."""
    since, until = [span[0] for span in spans], [span[1] for span in spans]
    rows = await tx.fetch(COUNT_SIGNALS_STORED, since, until, limit)
    by_place = {row["place"]: row["count"] for row in rows}
    return [by_place[place + 1] for place in range(len(spans))]


def first_id_at(instant: datetime) -> UUID:
    """Return the lowest of the time-ordered ids that are made from an instant on."""
    return UUID(int=max(int(instant.timestamp() * 1000), 0) << 80)


TROUBLES = """
    -- Connections that wait for a person: of those found first in each status, the latest.
    SELECT c.id, c.tenant_id, c.provider_slug, c.external_id, c.status, c.status_reason,
           c.updated_at
      FROM unnest(ARRAY['error', 'needs_reauth']) AS trouble (status)
     CROSS JOIN LATERAL (SELECT * FROM {schema}.connections
                          WHERE status = trouble.status AND status <> 'active'
                          ORDER BY id LIMIT $2) c
     ORDER BY c.updated_at DESC, c.id LIMIT $1
"""


@dataclass(frozen=True, slots=True)
class Trouble:
    id: UUID
    tenant_id: str
    provider_slug: str
    external_id: str
    status: str
    status_reason: Any
    updated_at: datetime


async def list_troubles(tx: Transaction, *, limit: int) -> list[Trouble]:
    """Return connections in `error` or `needs_reauth`, those first that came there last."""
    rows = await tx.fetch(TROUBLES, limit, SAMPLED)
    return [Trouble(**{**row, "status_reason": read_json(row["status_reason"])}) for row in rows]
