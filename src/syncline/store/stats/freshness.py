"""When active connections last succeeded: all of them, or a sample if there are many."""

from syncline.policy.freshness import LastSync, Sample
from syncline.store.pool import Transaction

SAMPLED = 2_000
READ_WHOLE = 3  # times the sample: up to here every connection is read
RUNS_LOOKED_BACK = 20  # a connection that failed so often in a row counts as never synced

SAMPLE = """
    -- Active connections in some blocks of the table, always the same ones, unless their tenant is
    -- paused, and the last good sync of each; one that was pruned left its time on the connection.
    SELECT c.provider_slug, greatest(c.last_succeeded_at, good.finished_at) AS last_good_at,
           c.created_at
      FROM {schema}.connections AS c TABLESAMPLE SYSTEM ($1) REPEATABLE (0)
      LEFT JOIN LATERAL (
           SELECT late.finished_at FROM (
               SELECT j.finished_at, j.status FROM {schema}.sync_jobs j
                WHERE j.connection_id = c.id AND j.finished_at IS NOT NULL
                ORDER BY j.finished_at DESC LIMIT $2) late
            WHERE late.status IN ('succeeded', 'completed')
            ORDER BY late.finished_at DESC LIMIT 1) good ON true
     WHERE c.status = 'active'
       AND c.tenant_id NOT IN (SELECT tenant_id FROM {schema}.tenant_pauses)
     LIMIT $3
"""

SAMPLE_OF_TENANT = """
    -- The active ones among a tenant's connections up to a bound, and the last good sync of each.
    SELECT c.provider_slug, greatest(c.last_succeeded_at, good.finished_at) AS last_good_at,
           c.created_at
      FROM (SELECT id, provider_slug, created_at, status, last_succeeded_at
              FROM {schema}.connections
             WHERE tenant_id = $1 LIMIT $3) AS c
      LEFT JOIN LATERAL (
           SELECT late.finished_at FROM (
               SELECT j.finished_at, j.status FROM {schema}.sync_jobs j
                WHERE j.connection_id = c.id AND j.finished_at IS NOT NULL
                ORDER BY j.finished_at DESC LIMIT $2) late
            WHERE late.status IN ('succeeded', 'completed')
            ORDER BY late.finished_at DESC LIMIT 1) good ON true
     WHERE c.status = 'active'
"""


async def sample(tx: Transaction, *, connections: int, size: int = SAMPLED) -> Sample:
    """Return the active connections, or about `size` of them if there are many in all."""
    share = size / connections if connections > READ_WHOLE * size else 1.0
    rows = await tx.fetch(SAMPLE, 100 * share, RUNS_LOOKED_BACK, 2 * READ_WHOLE * size)
    return Sample([LastSync(**row) for row in rows], 1 / share)


async def sample_of_tenant(
    tx: Transaction, tenant_id: str, *, connections: int, size: int = SAMPLED
) -> Sample:
    bound = READ_WHOLE * size
    rows = await tx.fetch(SAMPLE_OF_TENANT, tenant_id, RUNS_LOOKED_BACK, bound)
    return Sample([LastSync(**row) for row in rows], max(connections / bound, 1.0))
