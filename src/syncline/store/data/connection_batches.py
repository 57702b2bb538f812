"""Many connections at once."""

import json
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from syncline.model import Connection
from syncline.store.pool import Transaction

Key = tuple[str, str, str]
"""What a connection is known by: tenant, provider, external id."""

INSERT_MANY = """
    -- Add connections, but for those whose key is taken.
    INSERT INTO {schema}.connections
           (id, tenant_id, provider_slug, external_id, config, metadata, created_at, updated_at)
    SELECT new.id, new.tenant_id, new.provider_slug, new.external_id, new.config, new.metadata,
           $7::timestamptz, $7::timestamptz
      FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::jsonb[])
           AS new (id, tenant_id, provider_slug, external_id, config, metadata)
        ON CONFLICT (tenant_id, provider_slug, external_id) DO NOTHING
"""

FIND_MANY = """
    -- The ids that keys stand for.
    SELECT c.id, c.tenant_id, c.provider_slug, c.external_id
      FROM unnest($1::text[], $2::text[], $3::text[])
           AS wanted (tenant_id, provider_slug, external_id)
      JOIN {schema}.connections c USING (tenant_id, provider_slug, external_id)
"""


def key_of(connection: Connection) -> Key:
    return connection.tenant_id, connection.provider_slug, connection.external_id


async def insert_many(
    tx: Transaction, connections: Sequence[Connection], *, now: datetime
) -> dict[Key, UUID]:
    """Return the id that each key stands for: the new one, unless it was taken."""
    # In one order, so that two who add the same ones wait for each other in one direction only.
    ordered = sorted(connections, key=key_of)
    keys = list(zip(*map(key_of, ordered), strict=True))
    await tx.execute(
        INSERT_MANY,
        [connection.id for connection in ordered],
        *keys,
        [json.dumps(connection.config) for connection in ordered],
        [json.dumps(connection.metadata) for connection in ordered],
        now,
    )
    rows = await tx.fetch(FIND_MANY, *keys)
    return {(row["tenant_id"], row["provider_slug"], row["external_id"]): row["id"] for row in rows}
