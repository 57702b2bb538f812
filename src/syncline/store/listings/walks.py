"""The ids of everything that a listing's filter matches, a batch at a time.

The filters are those of the listings; the order is that of ids, which no change of a row moves.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from syncline.model import ConnectionFilter, ConnectionStatus, JobFilter
from syncline.store.listings.jobs import UNSUCCESSFUL, values_of
from syncline.store.pool import Transaction

FIRST_ID, LAST_ID = UUID(int=0), UUID(int=2**128 - 1)

CONNECTIONS = """
    -- The next connections of every tenant.
    SELECT c.id FROM {schema}.connections c
     WHERE {is_wanted_connection} AND c.id > $5 AND ($6::timestamptz IS NULL OR c.created_at <= $6)
     ORDER BY c.id LIMIT $7
"""

CONNECTIONS_BY_STATUS = """
    -- The next connections that are not active.
    SELECT c.id FROM {schema}.connections c
     WHERE c.status = $3 AND c.status <> 'active' AND {is_wanted_connection} AND c.id > $5
       AND ($6::timestamptz IS NULL OR c.created_at <= $6)
     ORDER BY c.id LIMIT $7
"""

CONNECTIONS_OF_TENANT = """
    -- The next connections of one tenant.
    SELECT c.id FROM {schema}.connections c
     WHERE c.tenant_id = $1 AND {is_wanted_connection} AND c.id > $5
       AND ($6::timestamptz IS NULL OR c.created_at <= $6)
     ORDER BY c.id LIMIT $7
"""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The next part of a walk: after which id, of connections made by when, and how many."""

    after: UUID | None
    made_by: datetime | None
    limit: int


async def next_connections(
    tx: Transaction, wanted: ConnectionFilter, stretch: Stretch
) -> list[UUID]:
    """Return the next ids, in their order."""
    filters = (wanted.tenant_id, wanted.provider_slug, wanted.status, wanted.external_id_prefix)
    statement = CONNECTIONS
    if wanted.tenant_id is not None:
        statement = CONNECTIONS_OF_TENANT
    elif wanted.status not in (None, ConnectionStatus.ACTIVE):
        statement = CONNECTIONS_BY_STATUS
    place = (stretch.after or FIRST_ID, stretch.made_by, stretch.limit)
    rows = await tx.fetch(statement, *filters, *place)
    return [row["id"] for row in rows]


PENDING_JOBS = """
    -- The next pending jobs, the newest first.
    SELECT j.id FROM {schema}.sync_jobs j
     WHERE j.status IN ('queued', 'running') AND {is_wanted_job} AND j.id < $16
     ORDER BY j.id DESC LIMIT $17
"""

PENDING_JOBS_OF_TENANT = """
    -- The next pending jobs of one tenant, found through its connections.
    SELECT j.id
      FROM {schema}.connections c
     CROSS JOIN LATERAL (SELECT * FROM {schema}.sync_jobs
                          WHERE connection_id = c.id AND status IN ('queued', 'running')
                         OFFSET 0) j
     WHERE c.tenant_id = $1 AND {is_wanted_job} AND j.id < $16
     ORDER BY j.id DESC LIMIT $17
"""

ENDED_JOBS = """
    -- The next failed or cancelled jobs, the newest first.
    SELECT j.id FROM {schema}.sync_jobs j
     WHERE j.status = $4 AND coalesce(j.status, '') IN ('failed', 'cancelled')
       AND {is_wanted_job} AND j.id < $16
     ORDER BY j.id DESC LIMIT $17
"""

JOBS_OF_CONNECTION = """
    -- The next jobs of one connection.
    SELECT j.id FROM {schema}.sync_jobs j
     WHERE j.connection_id = $2 AND {is_wanted_job} AND j.id < $16
     ORDER BY j.id DESC LIMIT $17
"""


async def next_jobs(
    tx: Transaction, wanted: JobFilter, stretch: Stretch, *, now: datetime
) -> list[UUID]:
    """Return the next ids of pending, failed or cancelled jobs, the newest first.

    So what is made meanwhile lies behind the walk.
    """
    if wanted.connection_id is not None:
        statement = JOBS_OF_CONNECTION
    elif wanted.status in UNSUCCESSFUL:
        statement = ENDED_JOBS
    else:
        statement = PENDING_JOBS if wanted.tenant_id is None else PENDING_JOBS_OF_TENANT
    place = (stretch.after or LAST_ID, stretch.limit)
    rows = await tx.fetch(statement, *values_of(wanted), now, *place)
    return [row["id"] for row in rows]
