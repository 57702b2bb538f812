"""Tenants by name, each with its connections by status."""

from collections.abc import Collection
from typing import Any

from syncline.policy.stats import TenantLine
from syncline.store.pool import Transaction

CONNECTIONS_COUNTED = 2_000  # of each tenant

TENANTS = """
    -- The next tenants by name, with their connections by status up to a bound. The recursion hops
    -- along the index.
    WITH RECURSIVE hops AS (
        (SELECT tenant_id, 1 AS place FROM {schema}.connections
          WHERE tenant_id > $1 ORDER BY tenant_id LIMIT 1)
        UNION ALL
        SELECT (SELECT c.tenant_id FROM {schema}.connections c
                 WHERE c.tenant_id > hops.tenant_id ORDER BY c.tenant_id LIMIT 1), hops.place + 1
          FROM hops WHERE hops.tenant_id IS NOT NULL AND hops.place < $2
    )
    SELECT hops.tenant_id, counted.status, counted.count
      FROM hops CROSS JOIN LATERAL (
           SELECT status, count(*) AS count
             FROM (SELECT status FROM {schema}.connections c
                    WHERE c.tenant_id = hops.tenant_id LIMIT $3) AS bounded
            GROUP BY status) counted
     WHERE hops.tenant_id IS NOT NULL
     ORDER BY hops.place
"""


WITHOUT_CONNECTIONS = """
    -- Which of these tenants have no connection.
    SELECT named.tenant_id FROM unnest($1::text[]) AS named (tenant_id)
     WHERE NOT EXISTS (SELECT FROM {schema}.connections c WHERE c.tenant_id = named.tenant_id)
"""


async def read_without_connections(tx: Transaction, tenant_ids: Collection[str]) -> set[str]:
    rows = await tx.fetch(WITHOUT_CONNECTIONS, list(tenant_ids))
    return {row["tenant_id"] for row in rows}


async def read_page(tx: Transaction, *, after: str, limit: int) -> list[TenantLine]:
    """Return the tenants that follow a name."""
    rows: list[Any] = await tx.fetch(TENANTS, after, limit, CONNECTIONS_COUNTED + 1)
    counted: dict[str, dict[str, int]] = {}
    for row in rows:
        counted.setdefault(row["tenant_id"], {})[row["status"]] = row["count"]
    return [
        TenantLine(tenant, by_status, sum(by_status.values()) > CONNECTIONS_COUNTED)
        for tenant, by_status in counted.items()
    ]
