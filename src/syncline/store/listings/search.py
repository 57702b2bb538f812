"""What people look for by a part of its name or id. No index serves parts, so rows are bounded.

The newest are read first. Whole names and the beginnings of ids are found by an index, however
many rows there are.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from syncline.store.pool import Transaction

CONNECTIONS_SEARCHED = 400_000
JOBS_SEARCHED = 200_000
TENANTS_SEARCHED = 10_000
PAIRS_SEARCHED = 10_000  # of a tenant and a provider
IDS_OF_A_MOMENT = 100_000  # with the same beginning

CONNECTIONS = """
    -- Connections whose external id holds a text, or whose id a part of one; among the newest.
    SELECT id, tenant_id, provider_slug, external_id, status
      FROM (SELECT id, tenant_id, provider_slug, external_id, status FROM {schema}.connections
             ORDER BY id DESC LIMIT $3) newest
     WHERE strpos(lower(external_id), lower($1)) > 0 OR strpos(id::text, $2) > 0
     ORDER BY id DESC LIMIT $4
"""

CONNECTIONS_OF_TENANT = """
    -- The same of one tenant, the one with this very external id first.
    SELECT id, tenant_id, provider_slug, external_id, status
      FROM (SELECT id, tenant_id, provider_slug, external_id, status FROM {schema}.connections
             WHERE tenant_id = $5 ORDER BY id DESC LIMIT $3) newest
     WHERE strpos(lower(external_id), lower($1)) > 0 OR strpos(id::text, $2) > 0
     ORDER BY external_id <> $1, id DESC LIMIT $4
"""

LAST_SEARCHED = """
    -- When the last of so many connections was added; nothing if there are fewer.
    SELECT created_at FROM {schema}.connections ORDER BY id DESC OFFSET $1 LIMIT 1
"""

LAST_SEARCHED_OF_TENANT = """
    -- The same of one tenant.
    SELECT created_at FROM {schema}.connections WHERE tenant_id = $2
     ORDER BY id DESC OFFSET $1 LIMIT 1
"""

BY_EXTERNAL_ID = """
    -- Connections with this external id, whoever owns them. The recursion hops along the index from
    -- one tenant and provider to the next.
    WITH RECURSIVE pairs AS (
        (SELECT tenant_id, provider_slug, 1 AS place FROM {schema}.connections
          ORDER BY tenant_id, provider_slug LIMIT 1)
        UNION ALL
        SELECT next.tenant_id, next.provider_slug, pairs.place + 1
          FROM pairs CROSS JOIN LATERAL (
               SELECT c.tenant_id, c.provider_slug FROM {schema}.connections c
                WHERE (c.tenant_id, c.provider_slug) > (pairs.tenant_id, pairs.provider_slug)
                ORDER BY c.tenant_id, c.provider_slug LIMIT 1) next
         WHERE pairs.place < $2
    )
    SELECT found.id, found.tenant_id, found.provider_slug, found.external_id, found.status
      FROM pairs CROSS JOIN LATERAL (
           SELECT id, tenant_id, provider_slug, external_id, status FROM {schema}.connections c
            WHERE c.tenant_id = pairs.tenant_id AND c.provider_slug = pairs.provider_slug
              AND c.external_id = $1) found
     ORDER BY found.id DESC LIMIT $3
"""

CONNECTIONS_BY_ID = """
    -- Connections whose ids lie in a range and end in a text.
    SELECT id, tenant_id, provider_slug, external_id, status
      FROM (SELECT id, tenant_id, provider_slug, external_id, status FROM {schema}.connections
             WHERE id BETWEEN $1 AND $2 ORDER BY id DESC LIMIT $4) near
     WHERE right(id::text, length($3)) = $3 AND ($6::text IS NULL OR tenant_id = $6)
     ORDER BY id DESC LIMIT $5
"""


@dataclass(frozen=True, slots=True)
class FoundConnection:
    id: UUID
    tenant_id: str
    provider_slug: str
    external_id: str
    status: str


@dataclass(frozen=True, slots=True)
class FoundJob:
    id: UUID
    tenant_id: str
    provider_slug: str
    connection_id: UUID
    job_type: str
    status: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class IdRange:
    """The ids that begin with a text; those wanted end in another one."""

    first: UUID
    last: UUID
    end: str


async def find_connections(
    tx: Transaction, tenant_id: str | None, text: str, id_part: str | None, limit: int
) -> list[FoundConnection]:
    """Return connections with the text in their external id, or the part in their id."""
    arguments = (text, id_part, CONNECTIONS_SEARCHED, limit)
    if tenant_id is None:
        rows = await tx.fetch(CONNECTIONS, *arguments)
    else:
        rows = await tx.fetch(CONNECTIONS_OF_TENANT, *arguments, tenant_id)
    return [FoundConnection(**row) for row in rows]


async def last_searched(tx: Transaction, tenant_id: str | None) -> datetime | None:
    """Return when the last connection was added that is searched; None if all are."""
    if tenant_id is None:
        found: datetime | None = await tx.fetchval(LAST_SEARCHED, CONNECTIONS_SEARCHED)
    else:
        found = await tx.fetchval(LAST_SEARCHED_OF_TENANT, CONNECTIONS_SEARCHED, tenant_id)
    return found


async def find_by_external_id(
    tx: Transaction, external_id: str, *, limit: int
) -> list[FoundConnection]:
    """Return connections with exactly this external id."""
    rows = await tx.fetch(BY_EXTERNAL_ID, external_id, PAIRS_SEARCHED, limit)
    return [FoundConnection(**row) for row in rows]


async def find_connections_by_id(
    tx: Transaction, tenant_id: str | None, range_: IdRange, *, limit: int
) -> list[FoundConnection]:
    keys = (range_.first, range_.last, range_.end, IDS_OF_A_MOMENT, limit, tenant_id)
    return [FoundConnection(**row) for row in await tx.fetch(CONNECTIONS_BY_ID, *keys)]


JOBS_BY_ID = """
    -- Jobs whose ids lie in a range and end in a text.
    SELECT id, tenant_id, provider_slug, connection_id, job_type, status, created_at
      FROM {schema}.sync_jobs
     WHERE id = ANY (ARRAY(
           SELECT id FROM (SELECT id FROM {schema}.sync_jobs WHERE id BETWEEN $1 AND $2
                            ORDER BY id DESC LIMIT $4) near
            WHERE right(id::text, length($3)) = $3 ORDER BY id DESC LIMIT $5))
       AND ($6::text IS NULL OR tenant_id = $6)
     ORDER BY id DESC
"""

JOBS = """
    -- Jobs whose ids hold a text, among the newest.
    SELECT id, tenant_id, provider_slug, connection_id, job_type, status, created_at
      FROM {schema}.sync_jobs
     WHERE id = ANY (ARRAY(
           SELECT id FROM (SELECT id FROM {schema}.sync_jobs ORDER BY id DESC LIMIT $2) newest
            WHERE strpos(id::text, $1) > 0 ORDER BY id DESC LIMIT $3))
       AND ($4::text IS NULL OR tenant_id = $4)
     ORDER BY id DESC
"""


async def find_jobs_by_id(
    tx: Transaction, tenant_id: str | None, range_: IdRange, *, limit: int
) -> list[FoundJob]:
    keys = (range_.first, range_.last, range_.end, IDS_OF_A_MOMENT, limit, tenant_id)
    return [FoundJob(**row) for row in await tx.fetch(JOBS_BY_ID, *keys)]


async def find_jobs(
    tx: Transaction, tenant_id: str | None, id_part: str, *, limit: int
) -> list[FoundJob]:
    """Return jobs with the part in their ids, newest first."""
    rows = await tx.fetch(JOBS, id_part, JOBS_SEARCHED, limit, tenant_id)
    return [FoundJob(**row) for row in rows]


TENANTS = """
    -- Tenants whose name holds a text, among those read, and the one with this very name. The
    -- recursion hops along the index.
    WITH RECURSIVE hops AS (
        (SELECT tenant_id, 1 AS place FROM {schema}.connections ORDER BY tenant_id LIMIT 1)
        UNION ALL
        SELECT (SELECT c.tenant_id FROM {schema}.connections c
                 WHERE c.tenant_id > hops.tenant_id ORDER BY c.tenant_id LIMIT 1), hops.place + 1
          FROM hops WHERE hops.tenant_id IS NOT NULL AND hops.place < $2
    ), named AS (
        SELECT tenant_id, place FROM hops WHERE tenant_id IS NOT NULL
         UNION ALL
        (SELECT tenant_id, 0 FROM {schema}.connections WHERE tenant_id = $1 LIMIT 1)
    )
    SELECT tenant_id
      FROM named WHERE strpos(lower(tenant_id), lower($1)) > 0
     GROUP BY tenant_id
     ORDER BY tenant_id <> $1, NOT starts_with(lower(tenant_id), lower($1)), tenant_id LIMIT $3
"""


async def find_tenants(tx: Transaction, text: str, *, limit: int) -> list[str]:
    """Return tenants with the text in their names; the best matches come first."""
    return [row["tenant_id"] for row in await tx.fetch(TENANTS, text, TENANTS_SEARCHED, limit)]
