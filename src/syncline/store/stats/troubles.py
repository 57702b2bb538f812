"""Which connections need attention: those that wait for a person, and those that keep failing."""

from typing import Any

from syncline.policy.stats import Trouble
from syncline.sdk.json_text import read_json
from syncline.store.pool import Transaction

CONNECTIONS_READ = 2_000  # of each status
JOBS_READ = 20_000

WAITING_FOR_PERSON = """
    -- Connections in error or needs_reauth, the latest first among those read of each status.
    SELECT c.tenant_id, c.provider_slug, c.external_id, c.id AS connection_id, c.status,
           c.status_reason AS reason, c.updated_at AS since, NULL::int AS attempts,
           NULL::timestamptz AS retry_after
      FROM unnest(ARRAY['error', 'needs_reauth']) AS trouble (status)
     CROSS JOIN LATERAL (SELECT * FROM {schema}.connections
                          WHERE status = trouble.status AND status <> 'active'
                          ORDER BY id LIMIT $2) c
     ORDER BY c.updated_at DESC, c.id LIMIT $1
"""

WAITING_FOR_PERSON_OF_TENANT = """
    -- The same among one tenant's connections.
    SELECT c.tenant_id, c.provider_slug, c.external_id, c.id AS connection_id, c.status,
           c.status_reason AS reason, c.updated_at AS since, NULL::int AS attempts,
           NULL::timestamptz AS retry_after
      FROM (SELECT * FROM {schema}.connections WHERE tenant_id = $3 LIMIT $2) c
     WHERE c.status IN ('error', 'needs_reauth')
     ORDER BY c.updated_at DESC, c.id LIMIT $1
"""

FAILING = """
    -- Jobs in backoff, the most failures first among those read.
    SELECT c.tenant_id, c.provider_slug, c.external_id, c.id AS connection_id,
           'backoff' AS status, j.error AS reason, j.updated_at AS since, j.attempts, j.retry_after
      FROM (SELECT * FROM (SELECT id, connection_id, attempts, retry_after, error, updated_at
                             FROM {schema}.sync_jobs
                            WHERE status = 'queued' AND retry_after IS NOT NULL
                            ORDER BY provider_slug, retry_after LIMIT $2) AS bounded
             ORDER BY attempts DESC, id LIMIT $1) j
      JOIN {schema}.connections c ON c.id = j.connection_id
     ORDER BY j.attempts DESC, j.id
"""

FAILING_OF_TENANT = """
    -- The same among the jobs of one tenant's connections.
    SELECT c.tenant_id, c.provider_slug, c.external_id, c.id AS connection_id,
           'backoff' AS status, j.error AS reason, j.updated_at AS since, j.attempts, j.retry_after
      FROM (SELECT * FROM {schema}.connections WHERE tenant_id = $3 LIMIT $2) c
     CROSS JOIN LATERAL (SELECT * FROM {schema}.sync_jobs
                          WHERE connection_id = c.id AND status IN ('queued', 'running')
                         OFFSET 0) j
     WHERE j.status = 'queued' AND j.retry_after IS NOT NULL
     ORDER BY j.attempts DESC, j.id LIMIT $1
"""


WAITING_AT_PROVIDER = """
    -- Connections of one provider in error or needs_reauth, the latest first, among those read.
    SELECT c.tenant_id, c.provider_slug, c.external_id, c.id AS connection_id, c.status,
           c.status_reason AS reason, c.updated_at AS since, NULL::int AS attempts,
           NULL::timestamptz AS retry_after
      FROM unnest(ARRAY['error', 'needs_reauth']) AS trouble (status)
     CROSS JOIN LATERAL (SELECT * FROM {schema}.connections
                          WHERE status = trouble.status AND status <> 'active'
                          ORDER BY id LIMIT $2) c
     WHERE c.provider_slug = $3
     ORDER BY c.updated_at DESC, c.id LIMIT $1
"""

FAILING_AT_PROVIDER = """
    -- Jobs of one provider in backoff, the most failures first among those read.
    SELECT c.tenant_id, c.provider_slug, c.external_id, c.id AS connection_id,
           'backoff' AS status, j.error AS reason, j.updated_at AS since, j.attempts, j.retry_after
      FROM (SELECT * FROM (SELECT id, connection_id, attempts, retry_after, error, updated_at
                             FROM {schema}.sync_jobs
                            WHERE status = 'queued' AND retry_after IS NOT NULL
                              AND provider_slug = $3
                            ORDER BY retry_after LIMIT $2) AS bounded
             ORDER BY attempts DESC, id LIMIT $1) j
      JOIN {schema}.connections c ON c.id = j.connection_id
     ORDER BY j.attempts DESC, j.id
"""


async def list_at_provider(tx: Transaction, provider_slug: str, *, limit: int) -> list[Trouble]:
    """Return one provider's connections that wait for a person, then those that fail."""
    waiting = await tx.fetch(WAITING_AT_PROVIDER, limit, JOBS_READ, provider_slug)
    failing = await tx.fetch(FAILING_AT_PROVIDER, limit, JOBS_READ, provider_slug)
    return [_trouble(row) for row in (*waiting, *failing)]


async def list_troubles(tx: Transaction, tenant_id: str | None, *, limit: int) -> list[Trouble]:
    """Return up to `limit` connections that wait for a person, then up to `limit` that fail."""
    if tenant_id is None:
        waiting = await tx.fetch(WAITING_FOR_PERSON, limit, CONNECTIONS_READ)
        failing = await tx.fetch(FAILING, limit, JOBS_READ)
    else:
        waiting = await tx.fetch(WAITING_FOR_PERSON_OF_TENANT, limit, JOBS_READ, tenant_id)
        failing = await tx.fetch(FAILING_OF_TENANT, limit, JOBS_READ, tenant_id)
    return [_trouble(row) for row in (*waiting, *failing)]


def _trouble(row: Any) -> Trouble:
    return Trouble(**{**row, "reason": read_json(row["reason"])})
