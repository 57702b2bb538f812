"""Pages of jobs: one statement for each index that can find them.

Few filters have an index, because every run would have to update it. A search by the others reads
a bounded number of jobs and returns how far it came.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from syncline.model import Job, JobFilter, JobStatus, QueueState
from syncline.store.pool import Transaction
from syncline.store.queue.triggers import read_job
from syncline.store.stats.activity import first_id_at

UNFINISHED = datetime(9999, 12, 1, tzinfo=UTC)  # sorts a pending job before all that finished
FIRST_ID, LAST_ID = UUID(int=0), UUID(int=2**128 - 1)
PENDING = (JobStatus.QUEUED, JobStatus.RUNNING)
UNSUCCESSFUL = (JobStatus.FAILED, JobStatus.CANCELLED)
JOBS_SEARCHED = 50_000  # by a page whose filter has no index
HOST_CLOCKS_APART = timedelta(days=1)  # how far from the database's time a host makes its ids


Place = tuple[datetime | None, UUID]
"""Where a page ended: when its last job finished (None unless of one connection), and its id."""

BY_ID = """
    -- Jobs of every tenant.
    SELECT j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type, j.status, j.priority,
           j.attempts, j.scheduled_at, j.retry_after, j.started_at, j.finished_at, j.cursor,
           j.error, j.slot_at, j.created_at, j.updated_at, j.brought
      FROM {schema}.sync_jobs j
     WHERE {is_wanted_job} AND j.id < $16 AND j.id >= $17
     ORDER BY j.id DESC LIMIT $18
"""

ENDED_OF_TENANT = """
    -- One tenant's jobs that have ended.
    SELECT j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type, j.status, j.priority,
           j.attempts, j.scheduled_at, j.retry_after, j.started_at, j.finished_at, j.cursor,
           j.error, j.slot_at, j.created_at, j.updated_at, j.brought
      FROM {schema}.sync_jobs j
     WHERE j.tenant_id = $1
       AND coalesce(j.status, '') IN ('succeeded', 'completed', 'failed', 'cancelled')
       AND {is_wanted_job} AND j.id < $16 AND j.id >= $17
     ORDER BY j.id DESC LIMIT $18
"""

PENDING_OF_TENANT = """
    -- One tenant's pending jobs, found through its connections.
    SELECT j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type, j.status, j.priority,
           j.attempts, j.scheduled_at, j.retry_after, j.started_at, j.finished_at, j.cursor,
           j.error, j.slot_at, j.created_at, j.updated_at, j.brought
      FROM {schema}.connections c
     CROSS JOIN LATERAL (SELECT * FROM {schema}.sync_jobs
                          WHERE connection_id = c.id AND status IN ('queued', 'running')
                         OFFSET 0) j
     WHERE c.tenant_id = $1 AND {is_wanted_job} AND j.id < $16 AND j.id >= $17
     ORDER BY j.id DESC LIMIT $18
"""

UNSUCCESSFUL_BY_ID = """
    -- Failed or cancelled jobs.
    SELECT j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type, j.status, j.priority,
           j.attempts, j.scheduled_at, j.retry_after, j.started_at, j.finished_at, j.cursor,
           j.error, j.slot_at, j.created_at, j.updated_at, j.brought
      FROM {schema}.sync_jobs j
     WHERE j.status = $4 AND coalesce(j.status, '') IN ('failed', 'cancelled')
       AND {is_wanted_job} AND j.id < $16 AND j.id >= $17
     ORDER BY j.id DESC LIMIT $18
"""

PENDING_BY_ID = """
    -- Pending jobs: there are few, or the newest jobs are among them.
    SELECT j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type, j.status, j.priority,
           j.attempts, j.scheduled_at, j.retry_after, j.started_at, j.finished_at, j.cursor,
           j.error, j.slot_at, j.created_at, j.updated_at, j.brought
      FROM {schema}.sync_jobs j
     WHERE j.status = $4 AND j.status IN ('queued', 'running')
       AND {is_wanted_job} AND j.id < $16 AND j.id >= $17
     ORDER BY j.id DESC LIMIT $18
"""

BY_CONNECTION = """
    -- One connection's jobs: pending ones, then the others by when they finished.
    SELECT j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type, j.status, j.priority,
           j.attempts, j.scheduled_at, j.retry_after, j.started_at, j.finished_at, j.cursor,
           j.error, j.slot_at, j.created_at, j.updated_at, j.brought
      FROM {schema}.sync_jobs j
     WHERE j.connection_id = $2 AND {is_wanted_job}
       AND (j.finished_at <= $17 OR j.finished_at IS NULL)
       AND (coalesce(j.finished_at, '9999-12-01 00:00:00+00'), j.id) < ($17, $16)
     ORDER BY j.finished_at DESC, j.id DESC LIMIT $18
"""

SLOWEST = """
    -- The jobs of every tenant that took longest, among those made since the end of the search.
    SELECT j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type, j.status, j.priority,
           j.attempts, j.scheduled_at, j.retry_after, j.started_at, j.finished_at, j.cursor,
           j.error, j.slot_at, j.created_at, j.updated_at, j.brought
      FROM {schema}.sync_jobs j
     WHERE {is_wanted_job} AND j.finished_at >= j.started_at AND j.id < $16 AND j.id >= $17
     ORDER BY j.finished_at - j.started_at DESC, j.id LIMIT $18
"""

SLOWEST_OF_TENANT = """
    -- The same of one tenant.
    SELECT j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type, j.status, j.priority,
           j.attempts, j.scheduled_at, j.retry_after, j.started_at, j.finished_at, j.cursor,
           j.error, j.slot_at, j.created_at, j.updated_at, j.brought
      FROM {schema}.sync_jobs j
     WHERE j.tenant_id = $1
       AND coalesce(j.status, '') IN ('succeeded', 'completed', 'failed', 'cancelled')
       AND {is_wanted_job} AND j.finished_at >= j.started_at AND j.id < $16 AND j.id >= $17
     ORDER BY j.finished_at - j.started_at DESC, j.id LIMIT $18
"""

END_BY_ID = """
    -- The last job of so many.
    SELECT id, created_at FROM {schema}.sync_jobs WHERE id < $1 ORDER BY id DESC OFFSET $2 LIMIT 1
"""

END_OF_TENANT = """
    -- The last of so many jobs of one tenant that have ended.
    SELECT id, created_at FROM {schema}.sync_jobs
     WHERE tenant_id = $3 AND id < $1
       AND coalesce(status, '') IN ('succeeded', 'completed', 'failed', 'cancelled')
     ORDER BY id DESC OFFSET $2 LIMIT 1
"""

END_OF_UNSUCCESSFUL = """
    -- The last of so many failed or cancelled jobs.
    SELECT id, created_at FROM {schema}.sync_jobs
     WHERE status = $3 AND coalesce(status, '') IN ('failed', 'cancelled') AND id < $1
     ORDER BY id DESC OFFSET $2 LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class SearchEnd:
    """The last job that a search read, though more may match."""

    job_id: UUID
    created_at: datetime


@dataclass(frozen=True, slots=True)
class FoundJobs:
    jobs: list[Job]
    end: SearchEnd | None = None


async def read_pages(
    tx: Transaction,
    wanted: Sequence[JobFilter],
    *,
    now: datetime,
    before: Place | None,
    limit: int,
) -> FoundJobs:
    """Return the next jobs that any of the filters wants; they differ in the status alone.

    Each filter has its own statement, because one with all statuses would use no partial index.
    """
    pages = [await read_page(tx, one, now=now, before=before, limit=limit) for one in wanted]
    if len(pages) == 1:
        return pages[0]
    # Below the highest end of a search, another filter's jobs may be followed by unread ones.
    end = max((page.end for page in pages if page.end), key=lambda end: end.job_id, default=None)
    lowest = end.job_id if end is not None else FIRST_ID
    found = {job.id: job for page in pages for job in page.jobs if job.id >= lowest}
    places = {place_of(job, wanted[0]): job for job in found.values()}
    jobs = [places[place] for place in sorted(places, key=_sort_key, reverse=True)]
    return FoundJobs(jobs[:limit], end if len(jobs) < limit else None)


async def read_page(
    tx: Transaction, wanted: JobFilter, *, now: datetime, before: Place | None, limit: int
) -> FoundJobs:
    """Return the next jobs, newest first; of one connection, by when they finished."""
    if wanted.connection_id is not None:
        finished_at, id_ = before or (UNFINISHED, LAST_ID)
        return FoundJobs(await read_rows(tx, BY_CONNECTION, wanted, now, id_, finished_at, limit))
    found: list[Job] = []
    for top, lowest in _spans(before[1] if before else LAST_ID, wanted, now):
        end = await _find_end(tx, wanted, top)
        bottom = max(lowest, end.job_id) if end else lowest
        for statement in _statements(wanted):
            found += await read_rows(tx, statement, wanted, now, top, bottom, limit)
        if len(found) >= limit:
            break
        if end is not None and end.job_id > lowest:
            return FoundJobs(_newest_first(found), end)
    return FoundJobs(_newest_first(found)[:limit])


async def read_slowest(
    tx: Transaction, wanted: Sequence[JobFilter], *, now: datetime, limit: int
) -> FoundJobs:
    """Return the jobs that took longest among the newest."""
    searched = wanted[0] if len(wanted) == 1 else replace(wanted[0], status=None)
    end = await _find_end(tx, searched, LAST_ID, is_search=True)
    statement = SLOWEST if searched.tenant_id is None else SLOWEST_OF_TENANT
    span = (LAST_ID, end.job_id if end else FIRST_ID)
    found: list[Job] = []
    for one in wanted:
        found += await read_rows(tx, statement, one, now, *span, limit)
    found.sort(key=lambda job: (_duration_of(job), -job.id.int), reverse=True)
    return FoundJobs(found[:limit], end)


def place_of(job: Job, wanted: JobFilter) -> Place:
    """Return the place of a page that ends with this job."""
    if wanted.connection_id is None:
        return None, job.id
    return job.finished_at or UNFINISHED, job.id


def _sort_key(place: Place) -> tuple[datetime, UUID]:
    return place[0] or UNFINISHED, place[1]


def _duration_of(job: Job) -> timedelta:
    if job.started_at is None or job.finished_at is None:
        return timedelta()
    return job.finished_at - job.started_at


def values_of(wanted: JobFilter) -> tuple[Any, ...]:
    """Return the first parameters of every listing of jobs."""
    return tuple(getattr(wanted, field.name) for field in fields(wanted))


async def read_rows(
    tx: Transaction, statement: str, wanted: JobFilter, now: datetime, *place: Any
) -> list[Job]:
    rows = await tx.fetch(statement, *values_of(wanted), now, *place)
    return [read_job(row) for row in rows]


async def _find_end(
    tx: Transaction, wanted: JobFilter, top: UUID, *, is_search: bool = False
) -> SearchEnd | None:
    """Return the job at which a search stops; None if it reads all that is left."""
    if not is_search and not _is_search(wanted):
        return None
    if wanted.tenant_id is not None:
        row = await tx.fetchrow(END_OF_TENANT, top, JOBS_SEARCHED, wanted.tenant_id)
    elif wanted.status in UNSUCCESSFUL:
        row = await tx.fetchrow(END_OF_UNSUCCESSFUL, top, JOBS_SEARCHED, wanted.status)
    else:
        row = await tx.fetchrow(END_BY_ID, top, JOBS_SEARCHED)
    return SearchEnd(row["id"], row["created_at"]) if row is not None else None


def _spans(top: UUID, wanted: JobFilter, now: datetime) -> list[tuple[UUID, UUID]]:
    """Return the ranges of ids to search, upper end first.

    A job is made before it starts and ends, so ids made later are passed over. Random ids, which
    plain SQL makes, lie above all of them.
    """
    before = [at for at in (wanted.started_before, wanted.finished_before) if at is not None]
    if not before:
        return [(top, FIRST_ID)]
    passed, random = (first_id_at(at + HOST_CLOCKS_APART) for at in (min(before), now))
    if passed >= random or top <= passed:
        return [(top, FIRST_ID)]
    return [(top, random), (passed, FIRST_ID)] if top > random else [(passed, FIRST_ID)]


def _newest_first(found: list[Job]) -> list[Job]:
    return sorted(found, key=lambda job: job.id, reverse=True)


def _is_search(wanted: JobFilter) -> bool:
    """Return whether a filter has no index of its own, so that few jobs read may match."""
    has_index = {None, *PENDING, *UNSUCCESSFUL}
    plain = JobFilter(wanted.tenant_id, wanted.connection_id, status=wanted.status)
    return wanted.status not in PENDING and (wanted != plain or wanted.status not in has_index)


def _statements(wanted: JobFilter) -> tuple[str, ...]:
    """Return the statements that together find the wanted jobs."""
    is_pending = wanted.status in (*PENDING, *QueueState)
    if wanted.tenant_id is not None and wanted.status is None:
        return (PENDING_OF_TENANT, ENDED_OF_TENANT)
    if wanted.tenant_id is not None:
        return (PENDING_OF_TENANT,) if is_pending else (ENDED_OF_TENANT,)
    if wanted.status in UNSUCCESSFUL:
        return (UNSUCCESSFUL_BY_ID,)
    return (PENDING_BY_ID,) if is_pending else (BY_ID,)
