"""Tenants that are paused: the tick plans none of their runs, and no claim takes their jobs."""

from syncline.policy.gates import TenantPause
from syncline.store.pool import Transaction

READ = """
    -- Every paused tenant, or one of them; usually there is none.
    SELECT tenant_id, paused_at, paused_because, paused_by FROM {schema}.tenant_pauses
     WHERE $1::text IS NULL OR tenant_id = $1
     ORDER BY tenant_id
"""


async def read(tx: Transaction, tenant_id: str | None = None) -> list[TenantPause]:
    return [TenantPause(*row.values()) for row in await tx.fetch(READ, tenant_id)]


PAUSE = """
    -- Pause a tenant; one that is paused already keeps its time.
    INSERT INTO {schema}.tenant_pauses AS pause (tenant_id, paused_at, paused_because, paused_by)
    VALUES ($1, $2, $3, $4)
        ON CONFLICT (tenant_id) DO UPDATE
       SET paused_because = coalesce(excluded.paused_because, pause.paused_because),
           paused_by = coalesce(excluded.paused_by, pause.paused_by)
"""

RESUME = """
    -- End the pause of a tenant.
    DELETE FROM {schema}.tenant_pauses WHERE tenant_id = $1
"""

NEXT_PROVIDER = """
    -- The next provider of a tenant's connections; one step along the index.
    SELECT provider_slug FROM {schema}.connections
     WHERE tenant_id = $1 AND provider_slug > $2
     ORDER BY provider_slug LIMIT 1
"""


async def pause(tx: Transaction, one: TenantPause) -> None:
    await tx.execute(PAUSE, one.tenant_id, one.paused_at, one.paused_because, one.paused_by)


async def resume(tx: Transaction, tenant_id: str) -> bool:
    """Return whether the tenant was paused."""
    return await tx.execute(RESUME, tenant_id) == 1


async def providers_of(tx: Transaction, tenant_id: str) -> list[str]:
    found: list[str] = []
    last = ""
    while (slug := await tx.fetchval(NEXT_PROVIDER, tenant_id, last)) is not None:
        found.append(slug)
        last = slug
    return found
