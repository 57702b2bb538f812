"""What dashboard pages show besides their rows: names, signals by job, leases, tenants."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from syncline.policy.stats import SignalsOfJobs
from syncline.store.pool import Transaction

SIGNALS_READ = 20_000
RUNNING_READ = 20_000

NAMES = """
    -- The external ids of connections.
    SELECT id, external_id FROM {schema}.connections WHERE id = ANY ($1)
"""


async def read_names(tx: Transaction, ids: Iterable[UUID]) -> dict[UUID, str]:
    rows = await tx.fetch(NAMES, list(set(ids)))
    return {row["id"]: row["external_id"] for row in rows}


COUNT_SIGNALS_OF_JOBS = """
    -- Signals by job, among the latest of one connection.
    SELECT job_id, count(*) AS count, min(received_at) AS first_at,
           sum(count(*)) OVER ()::bigint AS read
      FROM (SELECT job_id, received_at FROM {schema}.signals
             WHERE connection_id = $1 AND received_at >= $2
             ORDER BY received_at DESC, id DESC LIMIT $3) AS latest
     GROUP BY job_id
"""


async def count_signals_of_jobs(
    tx: Transaction, connection_id: UUID, *, since: datetime
) -> SignalsOfJobs:
    """Return how many signals each job of a connection stored from `since` on."""
    rows = await tx.fetch(COUNT_SIGNALS_OF_JOBS, connection_id, since, SIGNALS_READ)
    by_job = {row["job_id"]: row["count"] for row in rows if row["job_id"] is not None}
    is_bounded = bool(rows) and rows[0]["read"] >= SIGNALS_READ
    first_at = min(row["first_at"] for row in rows) if is_bounded else None
    return SignalsOfJobs(by_job, first_at)


LEASES = """
    -- Running jobs, the first lease to expire first.
    SELECT j.id, j.tenant_id, j.provider_slug, j.connection_id, j.job_type, j.started_at,
           j.lease_expires_at, j.attempts, c.external_id
      FROM (SELECT * FROM {schema}.sync_jobs WHERE status = 'running'
             ORDER BY connection_id, flight LIMIT $2) j
      JOIN {schema}.connections c ON c.id = j.connection_id
     ORDER BY j.lease_expires_at, j.id LIMIT $1
"""


@dataclass(frozen=True, slots=True)
class Lease:
    id: UUID
    tenant_id: str
    provider_slug: str
    connection_id: UUID
    job_type: str
    started_at: datetime | None
    lease_expires_at: datetime | None
    attempts: int
    external_id: str


async def list_leases(tx: Transaction, *, limit: int) -> list[Lease]:
    rows = await tx.fetch(LEASES, limit, RUNNING_READ)
    return [Lease(**row) for row in rows]


TENANTS = """
    -- Tenants by name, up to a bound. The recursion hops along the index.
    WITH RECURSIVE hops AS (
        (SELECT tenant_id, 1 AS place FROM {schema}.connections ORDER BY tenant_id LIMIT 1)
        UNION ALL
        SELECT (SELECT c.tenant_id FROM {schema}.connections c
                 WHERE c.tenant_id > hops.tenant_id ORDER BY c.tenant_id LIMIT 1), hops.place + 1
          FROM hops WHERE hops.tenant_id IS NOT NULL AND hops.place < $1
    )
    SELECT tenant_id FROM hops WHERE tenant_id IS NOT NULL
"""


async def list_tenants(tx: Transaction, *, limit: int) -> list[str]:
    """Return the first tenants by name."""
    return [row["tenant_id"] for row in await tx.fetch(TENANTS, limit)]
