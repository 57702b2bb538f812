"""Pages of the audit, newest first: one statement for each index that can find them."""

from datetime import UTC, datetime
from uuid import UUID

from syncline.policy.audit import AuditFilter, AuditRecord
from syncline.sdk.json_text import read_json
from syncline.store.pool import Transaction

Place = tuple[datetime, UUID]
"""Where a page ended: when its last row was written, and its id."""

LATEST: Place = (datetime(9999, 12, 1, tzinfo=UTC), UUID(int=2**128 - 1))

ALL = """
    -- What anybody did.
    SELECT id, acted_at, actor_kind, actor, key_id, address, action, tenant_id, provider_slug,
           subject, connection_ids, count, before, after
      FROM {schema}.audit WHERE {is_wanted_act}
     ORDER BY acted_at DESC, id DESC LIMIT $11
"""

OF_TENANT = """
    -- What happened to a tenant.
    SELECT id, acted_at, actor_kind, actor, key_id, address, action, tenant_id, provider_slug,
           subject, connection_ids, count, before, after
      FROM {schema}.audit WHERE tenant_id = $1 AND {is_wanted_act}
     ORDER BY acted_at DESC, id DESC LIMIT $11
"""

OF_PROVIDER = """
    -- What happened to a provider.
    SELECT id, acted_at, actor_kind, actor, key_id, address, action, tenant_id, provider_slug,
           subject, connection_ids, count, before, after
      FROM {schema}.audit WHERE provider_slug = $2 AND {is_wanted_act}
     ORDER BY acted_at DESC, id DESC LIMIT $11
"""

BY_ACTOR = """
    -- What somebody did.
    SELECT id, acted_at, actor_kind, actor, key_id, address, action, tenant_id, provider_slug,
           subject, connection_ids, count, before, after
      FROM {schema}.audit WHERE actor = $4 AND {is_wanted_act}
     ORDER BY acted_at DESC, id DESC LIMIT $11
"""

BY_ACTION = """
    -- One kind of action.
    SELECT id, acted_at, actor_kind, actor, key_id, address, action, tenant_id, provider_slug,
           subject, connection_ids, count, before, after
      FROM {schema}.audit WHERE action = $5 AND {is_wanted_act}
     ORDER BY acted_at DESC, id DESC LIMIT $11
"""

OF_CONNECTION = """
    -- What happened to a connection, all of it first: an index of arrays has no order.
    WITH own AS MATERIALIZED (
        SELECT id, acted_at, actor_kind, actor, key_id, address, action, tenant_id, provider_slug,
               subject, connection_ids, count, before, after
          FROM {schema}.audit WHERE connection_ids @> ARRAY[$3::uuid]
    )
    SELECT id, acted_at, actor_kind, actor, key_id, address, action, tenant_id, provider_slug,
           subject, connection_ids, count, before, after
      FROM own WHERE {is_wanted_act}
     ORDER BY acted_at DESC, id DESC LIMIT $11
"""


async def read_page(
    tx: Transaction,
    wanted: AuditFilter,
    *,
    before: Place | None,
    limit: int,
    is_tenants: bool = False,
) -> list[AuditRecord]:
    """Return the next rows, newest first; with `is_tenants`, `actor` is what a tenant sees."""
    rows = await tx.fetch(
        _statement(wanted, is_tenants=is_tenants),
        wanted.tenant_id,
        wanted.provider_slug,
        wanted.connection_id,
        wanted.actor,
        wanted.action,
        wanted.since,
        wanted.until,
        *(before or LATEST),
        is_tenants,
        limit,
    )
    return [
        AuditRecord(**{**row, "before": read_json(row["before"]), "after": read_json(row["after"])})
        for row in rows
    ]


def _statement(wanted: AuditFilter, *, is_tenants: bool) -> str:
    """Return the statement whose index finds the fewest rows."""
    if wanted.connection_id is not None:
        return OF_CONNECTION
    if wanted.tenant_id is not None:
        return OF_TENANT
    if wanted.actor is not None and not is_tenants:
        return BY_ACTOR
    if wanted.provider_slug is not None:
        return OF_PROVIDER
    return BY_ACTION if wanted.action is not None else ALL
