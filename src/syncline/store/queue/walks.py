"""Reads of the queue that say whose jobs stand where; the claim needs none of them by itself."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from syncline.policy.lines import Line
from syncline.store.pool import Transaction


class Standing(NamedTuple):
    """A due job that nobody has claimed; they sort in the order of the claim within a priority."""

    due_at: float  # its `scheduled_at`
    id: UUID
    tenant_id: str
    provider_slug: str
    priority: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """The jobs of one tenant in a stretch of one line."""

    tenant_id: str
    count: int
    jobs: Sequence[Standing]  # none if they were not asked for
    end: Line  # begins with the last of them
    walked_at: datetime


FIND_LINES = """
    -- The highest priority with ready jobs in each gap between those that are known.
    SELECT gap.provider_slug, top.priority
      FROM unnest($1::text[], $2::int[], $3::int[])
           AS gap (provider_slug, below, above) CROSS JOIN LATERAL (
           SELECT j.priority FROM {schema}.sync_jobs j
            WHERE j.provider_slug = gap.provider_slug
              AND j.priority > gap.below AND j.priority < gap.above
              AND j.status = 'queued' AND j.retry_after IS NULL
            ORDER BY j.priority DESC, j.scheduled_at, j.id LIMIT 1) top
"""


async def find_lines(tx: Transaction, gaps: Sequence[Sequence[object]]) -> list[tuple[str, int]]:
    """Return providers and priorities of ready jobs within the gaps."""
    return [(row["provider_slug"], row["priority"]) for row in await tx.fetch(FIND_LINES, *gaps)]


WALK = """
    -- The next due jobs of each line ($1 to $4), $6 at most, by tenant. Of the tenants in $7 they
    -- are only counted. Poison jobs are found apart.
    SELECT line.provider_slug, line.priority, walked.*,
           coalesce($5::timestamptz, now()) AS walked_at
      FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::uuid[])
           AS line (provider_slug, priority, begins_at, begins_with) CROSS JOIN LATERAL (
           SELECT tenant_id, count(*) AS jobs,
                  CASE WHEN tenant_id <> ALL ($7::text[]) THEN array_agg(id) END AS ids,
                  CASE WHEN tenant_id <> ALL ($7::text[])
                       THEN array_agg(date_part('epoch', scheduled_at)) END AS times,
                  max(scheduled_at) AS last_at,
                  (array_agg(id ORDER BY scheduled_at DESC, id DESC))[1] AS last_id
             FROM (SELECT j.id, j.tenant_id, j.scheduled_at FROM {schema}.sync_jobs j
                    WHERE j.provider_slug = line.provider_slug AND j.priority = line.priority
                      AND j.status = 'queued' AND j.retry_after IS NULL AND j.lapses <= 1
                      AND (j.scheduled_at, j.id) > (line.begins_at, line.begins_with)
                      AND j.scheduled_at <= coalesce($5::timestamptz, now())
                    ORDER BY j.scheduled_at, j.id LIMIT $6) AS next
            GROUP BY tenant_id) walked
"""


async def walk(
    tx: Transaction,
    lines: Sequence[Line],
    *,
    now: datetime | None,
    limit: int,
    only_count: Collection[str] = (),
) -> list[Stretch]:
    """Return the due jobs that come after the beginning of each line, `limit` at most of each."""
    rows = await tx.fetch(
        WALK,
        [line.provider_slug for line in lines],
        [line.priority for line in lines],
        [line.begins_at for line in lines],
        [line.begins_with for line in lines],
        now,
        limit,
        list(only_count),
    )
    stretches = []
    for slug, priority, tenant_id, count, ids, times, last_at, last_id, walked_at in rows:
        jobs = [
            Standing(at, id_, tenant_id, slug, priority)
            for at, id_ in zip(times or (), ids or (), strict=True)
        ]
        end = Line(slug, priority, last_at, last_id)
        stretches.append(Stretch(tenant_id, count, jobs, end, walked_at))
    return stretches


SAMPLE = """
    -- How many jobs of each tenant are among the first and the last due ones of each line. What was
    -- claimed before its beginning would be walked over otherwise.
    SELECT tenant_id, count(*) AS jobs
      FROM unnest($1::text[], $2::smallint[], $5::timestamptz[], $6::uuid[])
           AS line (provider_slug, priority, begins_at, begins_with)
     CROSS JOIN LATERAL (
           (SELECT j.tenant_id, j.id FROM {schema}.sync_jobs j
             WHERE j.provider_slug = line.provider_slug AND j.priority = line.priority
               AND j.status = 'queued' AND j.retry_after IS NULL
               AND j.scheduled_at <= coalesce($3::timestamptz, now())
               AND (j.scheduled_at, j.id) >= (line.begins_at, line.begins_with)
             ORDER BY j.scheduled_at, j.id LIMIT $4)
           UNION
           (SELECT j.tenant_id, j.id FROM {schema}.sync_jobs j
             WHERE j.provider_slug = line.provider_slug AND j.priority = line.priority
               AND j.status = 'queued' AND j.retry_after IS NULL
               AND j.scheduled_at <= coalesce($3::timestamptz, now())
             ORDER BY j.scheduled_at DESC, j.id DESC LIMIT $4)) AS seen
     GROUP BY tenant_id
"""


async def sample(
    tx: Transaction, lines: Sequence[Line], *, now: datetime | None, limit: int
) -> dict[str, int]:
    """Return how many of the first and last due jobs each tenant has, `limit` at most of each."""
    rows = await tx.fetch(
        SAMPLE,
        [line.provider_slug for line in lines],
        [line.priority for line in lines],
        now,
        limit,
        [line.begins_at for line in lines],
        [line.begins_with for line in lines],
    )
    return {row["tenant_id"]: row["jobs"] for row in rows}


ENDED = """
    -- The first jobs, in order, whose backoff has ended.
    SELECT date_part('epoch', job.scheduled_at) AS due_at, job.id, job.tenant_id,
           job.provider_slug, job.priority
      FROM unnest($1::text[]) AS provider (slug) CROSS JOIN LATERAL (
           SELECT id, tenant_id, provider_slug, priority, scheduled_at FROM {schema}.sync_jobs
            WHERE provider_slug = provider.slug AND status = 'queued'
              AND retry_after <= coalesce($2::timestamptz, now())
              AND scheduled_at <= coalesce($2::timestamptz, now()) AND lapses <= 1
            ORDER BY retry_after LIMIT $4) job
     ORDER BY job.priority DESC, job.scheduled_at, job.id LIMIT $3
"""

SUSPECTS = """
    -- The first poison jobs, whose lease lapsed twice or more in a row, unless their tenant is
    -- paused.
    SELECT date_part('epoch', scheduled_at) AS due_at, id, tenant_id, provider_slug, priority
      FROM {schema}.sync_jobs
     WHERE provider_slug = ANY ($1::text[]) AND status = 'queued' AND lapses > 1
       AND greatest(scheduled_at, retry_after) <= coalesce($2::timestamptz, now())
       AND tenant_id NOT IN (SELECT tenant_id FROM {schema}.tenant_pauses)
     ORDER BY priority DESC, sync_jobs.scheduled_at, id LIMIT $3
"""


async def ended(
    tx: Transaction, providers: Sequence[str], *, now: datetime | None, limit: int, read: int
) -> list[Standing]:
    """Return the first jobs whose backoff has ended, of `read` at most that each provider has."""
    return [Standing(*row) for row in await tx.fetch(ENDED, providers, now, limit, read)]


async def suspects(
    tx: Transaction, providers: Sequence[str], *, now: datetime | None, limit: int
) -> list[Standing]:
    """Return the first poison jobs."""
    return [Standing(*row) for row in await tx.fetch(SUSPECTS, providers, now, limit)]


STILL_QUEUED = """
    -- Which of these jobs are still queued.
    SELECT job.id FROM unnest($1::uuid[]) AS given (id) CROSS JOIN LATERAL (
           SELECT id FROM {schema}.sync_jobs
            WHERE id = ANY (ARRAY[given.id])
              AND CASE WHEN status = 'queued' THEN true ELSE false END) job
"""


async def still_queued(tx: Transaction, ids: Sequence[UUID]) -> set[UUID]:
    return {row["id"] for row in await tx.fetch(STILL_QUEUED, ids)}
