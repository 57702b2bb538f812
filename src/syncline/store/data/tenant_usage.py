"""What tenants have, to compare it with what they may have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from syncline.store.pool import Transaction

LOCK = """
    -- Lock a tenant's row, which is made if it is missing.
    INSERT INTO {schema}.tenant_usage AS usage (tenant_id) VALUES ($1)
        ON CONFLICT (tenant_id) DO UPDATE SET stored_bytes = usage.stored_bytes
"""

HAS_MORE_CONNECTIONS = """
    -- Whether a tenant has more connections than so many; no more than these are read.
    SELECT count(*) > $2::bigint
      FROM (SELECT FROM {schema}.connections WHERE tenant_id = $1 LIMIT $2::bigint + 1) AS few
"""


async def has_more_connections(tx: Transaction, tenant_id: str, number: int) -> bool:
    """Return whether a tenant has more connections, those of this transaction among them.

    Whoever asks the same at the same time waits for the end of this transaction.
    """
    await tx.execute(LOCK, tenant_id)
    return bool(await tx.fetchval(HAS_MORE_CONNECTIONS, tenant_id, number))


MEASURE = """
    -- The next signals in the order of their ids: how many bytes each tenant has in them, and the
    -- last id. A payload counts as it is stored, compressed; it is not read for that.
    WITH page AS MATERIALIZED (
        SELECT id, tenant_id, pg_column_size(payload) + $3::int AS bytes
          FROM {schema}.signals WHERE id > $1 ORDER BY id LIMIT $2
    )
    SELECT tenant_id, sum(bytes)::bigint AS bytes,
           (SELECT id FROM page ORDER BY id DESC LIMIT 1) AS last
      FROM page GROUP BY tenant_id
"""


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """The bytes of each tenant in a batch of signals, and its last id; None at the end."""

    bytes_by_tenant: dict[str, int]
    last: UUID | None


async def measure(
    tx: Transaction, *, after: UUID, limit: int, bytes_beside_payload: int
) -> MeasuredBatch:
    rows = await tx.fetch(MEASURE, after, limit, bytes_beside_payload)
    found = {row["tenant_id"]: row["bytes"] for row in rows}
    return MeasuredBatch(found, rows[0]["last"] if rows else None)


SAVE = """
    -- Keep what each tenant stores.
    INSERT INTO {schema}.tenant_usage (tenant_id, stored_bytes, measured_at)
    SELECT measured.tenant_id, measured.bytes, $3::timestamptz
      FROM unnest($1::text[], $2::bigint[]) AS measured (tenant_id, bytes)
     WHERE char_length(measured.tenant_id) BETWEEN 1 AND 255
     ORDER BY measured.tenant_id
        ON CONFLICT (tenant_id) DO UPDATE
       SET stored_bytes = EXCLUDED.stored_bytes, measured_at = EXCLUDED.measured_at
"""

SAVE_NOTHING = """
    -- Tenants that had something at the last measurement, and have nothing now.
    UPDATE {schema}.tenant_usage SET stored_bytes = 0, measured_at = $2
     WHERE stored_bytes > 0 AND NOT tenant_id = ANY ($1::text[])
"""


async def save(tx: Transaction, bytes_by_tenant: Mapping[str, int], *, now: datetime) -> None:
    tenants = sorted(bytes_by_tenant)
    await tx.execute(SAVE, tenants, [bytes_by_tenant[tenant] for tenant in tenants], now)
    await tx.execute(SAVE_NOTHING, tenants, now)


READ = """
    -- What a tenant stored when it was last measured.
    SELECT stored_bytes FROM {schema}.tenant_usage WHERE tenant_id = $1
"""


async def read_stored_bytes(tx: Transaction, tenant_id: str) -> int:
    return await tx.fetchval(READ, tenant_id) or 0


NEXT_ACTIVE = """
    -- The next active connections of these tenants, in the order of their ids.
    SELECT id FROM {schema}.connections
     WHERE status = 'active' AND tenant_id = ANY ($1::text[]) AND id > $2
     ORDER BY id LIMIT $3
"""


async def next_active(
    tx: Transaction, tenants: Sequence[str], *, after: UUID, limit: int
) -> list[UUID]:
    return [row["id"] for row in await tx.fetch(NEXT_ACTIVE, tenants, after, limit)]


DELETE = """
    -- Forget a tenant.
    DELETE FROM {schema}.tenant_usage WHERE tenant_id = $1
"""


async def delete(tx: Transaction, tenant_id: str) -> None:
    await tx.execute(DELETE, tenant_id)
