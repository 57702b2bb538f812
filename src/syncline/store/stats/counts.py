"""How many connections, pending jobs and signals there are."""

from syncline.model import ConnectionStatus
from syncline.policy.stats import Counts, Figure
from syncline.store.pool import Transaction

COUNTED_EXACTLY = 20_000
SIGNALS_COUNTED = 1_000_000  # of one tenant

COUNT_UP_TO = """
    -- Connections, up to a bound.
    SELECT count(*) FROM (SELECT FROM {schema}.connections LIMIT $1) AS bounded
"""

COUNT_STATUS = """
    -- Connections in each status but active, up to a bound.
    SELECT status.name, (SELECT count(*) FROM (
               SELECT FROM {schema}.connections c
                WHERE c.status = status.name AND c.status <> 'active'
                ORDER BY c.id LIMIT $2) AS bounded) AS count
      FROM unnest($1::text[]) AS status (name)
"""

COUNT_STATUS_OF_TENANT = """
    -- One tenant's connections by status, up to a bound.
    SELECT status AS name, count(*) AS count
      FROM (SELECT status FROM {schema}.connections WHERE tenant_id = $1 LIMIT $2) AS bounded
     GROUP BY status
"""

ESTIMATE_ROWS = """
    -- The planner's estimate of a table's rows.
    SELECT reltuples::bigint FROM pg_catalog.pg_class WHERE oid = $1::text::regclass
"""


async def read_counts(tx: Transaction, tenant_id: str | None) -> Counts:
    if tenant_id is None:
        total, by_status = await _count_statuses(tx)
    else:
        total, by_status = await _count_statuses_of_tenant(tx, tenant_id)
    return Counts(total, by_status, await _count_signals(tx, tenant_id))


async def count_connections(tx: Transaction) -> Figure:
    counted = await tx.fetchval(COUNT_UP_TO, COUNTED_EXACTLY + 1)
    return await _exact_or_estimate(tx, "connections", counted)


async def _count_statuses(tx: Transaction) -> tuple[Figure, dict[str, Figure]]:
    total = await count_connections(tx)
    names = [status.value for status in ConnectionStatus if status != ConnectionStatus.ACTIVE]
    rows = await tx.fetch(COUNT_STATUS, names, COUNTED_EXACTLY + 1)
    found = {row["name"]: _bounded(row["count"], COUNTED_EXACTLY) for row in rows}
    active = max(total.count - sum(figure.count for figure in found.values()), 0)
    return total, {ConnectionStatus.ACTIVE.value: Figure(active, total.kind), **found}


async def _count_statuses_of_tenant(
    tx: Transaction, tenant_id: str
) -> tuple[Figure, dict[str, Figure]]:
    rows = await tx.fetch(COUNT_STATUS_OF_TENANT, tenant_id, COUNTED_EXACTLY + 1)
    total = _bounded(sum(row["count"] for row in rows), COUNTED_EXACTLY)
    by_status = {status.value: Figure(0, total.kind) for status in ConnectionStatus}
    return total, by_status | {
        row["name"]: Figure(min(row["count"], COUNTED_EXACTLY), total.kind) for row in rows
    }


COUNT_SIGNALS = """
    -- Signals, up to a bound.
    SELECT count(*) FROM (SELECT FROM {schema}.signals LIMIT $1) AS bounded
"""

COUNT_SIGNALS_OF_TENANT = """
    -- One tenant's signals, up to a bound.
    SELECT count(*) FROM (SELECT FROM {schema}.signals WHERE tenant_id = $1 LIMIT $2) AS bounded
"""


async def _count_signals(tx: Transaction, tenant_id: str | None) -> Figure:
    if tenant_id is None:
        counted = await tx.fetchval(COUNT_SIGNALS, COUNTED_EXACTLY + 1)
        return await _exact_or_estimate(tx, "signals", counted)
    counted = await tx.fetchval(COUNT_SIGNALS_OF_TENANT, tenant_id, SIGNALS_COUNTED + 1)
    return _bounded(counted, SIGNALS_COUNTED)


COUNT_PENDING = """
    -- Pending jobs by status, up to a bound.
    SELECT status, count(*) AS count
      FROM (SELECT status FROM {schema}.sync_jobs WHERE status IN ('queued', 'running')
             ORDER BY connection_id, job_type LIMIT $1) AS bounded
     GROUP BY status
"""


async def count_pending(tx: Transaction) -> dict[str, Figure]:
    """Return the pending jobs by status; a status without jobs is left out."""
    rows = await tx.fetch(COUNT_PENDING, COUNTED_EXACTLY + 1)
    kind = _bounded(sum(row["count"] for row in rows), COUNTED_EXACTLY).kind
    return {row["status"]: Figure(row["count"], kind) for row in rows}


async def _exact_or_estimate(tx: Transaction, table: str, counted: int) -> Figure:
    if counted <= COUNTED_EXACTLY:
        return Figure(counted)
    estimate: int = await tx.fetchval(ESTIMATE_ROWS, tx.qualified(table))
    return Figure(estimate, "estimate") if estimate >= counted else Figure(counted - 1, "at_least")


def _bounded(counted: int, bound: int) -> Figure:
    return Figure(counted) if counted <= bound else Figure(bound, "at_least")
