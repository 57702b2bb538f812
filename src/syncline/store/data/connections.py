"""Connections: what a settle or a person changes.

A transaction that changes a connection and its jobs locks the connection first, in id order.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from syncline.model import Connection
from syncline.policy.status import StoredStatus
from syncline.sdk.json_text import read_json
from syncline.store.errors import expect
from syncline.store.pool import Transaction

CHECK_NOW = """
    -- Let the next tick check these connections.
    UPDATE {schema}.connections SET look_at = '1970-01-01 00:00:00+00'
     WHERE id = ANY ($1::uuid[])
"""


async def check_now(tx: Transaction, ids: Sequence[UUID]) -> int:
    return await tx.execute(CHECK_NOW, ids)


SET_ASIDE = """
    -- Record that these inactive connections have no queued jobs any more.
    UPDATE {schema}.connections SET look_at = '0002-01-01 00:00:00+00'
     WHERE id = ANY ($1::uuid[])
"""


async def set_aside(tx: Transaction, ids: Sequence[UUID]) -> int:
    return await tx.execute(SET_ASIDE, ids)


LOCK = """
    -- Lock connections before their jobs, in id order, as every transaction does.
    SELECT id, tenant_id, provider_slug, status FROM {schema}.connections
     WHERE id = ANY ($1::uuid[])
     ORDER BY id
       FOR NO KEY UPDATE
"""


@dataclass(frozen=True, slots=True)
class LockedConnection:
    id: UUID
    tenant_id: str
    provider_slug: str
    status: str


async def lock(tx: Transaction, ids: Sequence[UUID]) -> dict[UUID, LockedConnection]:
    """Return the connections that exist, locked."""
    return {row["id"]: LockedConnection(*row) for row in await tx.fetch(LOCK, ids)}


LOCK_FREE = """
    -- Lock the connections that no other transaction holds, before their jobs.
    SELECT id, tenant_id, provider_slug, status FROM {schema}.connections
     WHERE id = ANY ($1::uuid[])
     ORDER BY id
       FOR NO KEY UPDATE SKIP LOCKED
"""


async def lock_free(
    tx: Transaction, ids: Sequence[UUID]
) -> tuple[dict[UUID, LockedConnection], set[UUID]]:
    """Lock and return the connections that are free; also return the ids of those that are not."""
    locked = {row["id"]: LockedConnection(*row) for row in await tx.fetch(LOCK_FREE, ids)}
    if len(locked) == len(ids):
        return locked, set()
    return locked, await existing(tx, ids) - locked.keys()


LOCK_ACTIVE = """
    -- Lock connections as above, and count the active ones among those that no other transaction
    -- holds. A settle that gets all of them needs to know nothing more.
    WITH free AS MATERIALIZED (
        SELECT status FROM {schema}.connections
         WHERE id = ANY ($1::uuid[])
         ORDER BY id
           FOR NO KEY UPDATE SKIP LOCKED
    )
    SELECT count(*) FROM free WHERE status = 'active'
"""


async def lock_active(tx: Transaction, ids: Sequence[UUID]) -> bool:
    """Lock the connections that are free; return whether all are free, and active."""
    active: int = await tx.fetchval(LOCK_ACTIVE, ids)
    return active == len(ids)


SAVE_PROGRESS = """
    -- Save the cursor of each page that has one, and the first completion, which outlives its
    -- job; the tick copies later ones. The rest of the metadata stays. A cursor replaces only the
    -- one that its run has read: if the stored one was moved meanwhile, it stays.
    -- A stored cursor that already equals the page's counts as saved.
    UPDATE {schema}.connections c
       SET metadata = CASE
               WHEN page.cursor IS NULL THEN c.metadata
               WHEN jsonb_typeof(c.metadata -> 'sync') = 'object'  -- nearly always
               THEN jsonb_set(c.metadata, '{sync,cursor}', page.cursor)
               ELSE jsonb_set(jsonb_set({schema}.object_or_empty(c.metadata), '{sync}', '{}'),
                              '{sync,cursor}', page.cursor) END,
           last_finished_at = CASE WHEN page.is_first
               THEN coalesce(c.last_finished_at, moment.now)
               ELSE c.last_finished_at END,
           updated_at = moment.now
      FROM unnest($1::uuid[], $2::jsonb[], $3::jsonb[], $4::bool[], $5::bool[])
           AS page (id, cursor, replaces, overwrites, is_first)
     CROSS JOIN (SELECT coalesce($6::timestamptz, now())) AS moment (now)
     WHERE c.id = ANY (ARRAY[page.id])
       AND (page.cursor IS NULL OR page.overwrites
            OR (c.metadata #> '{sync,cursor}') IS NOT DISTINCT FROM page.replaces
            OR c.metadata #> '{sync,cursor}' = page.cursor)
"""

MOVED_MEANWHILE = """
    -- The connections that did not get the cursor of their page.
    SELECT c.id FROM unnest($1::uuid[], $2::jsonb[]) AS page (id, cursor)
     CROSS JOIN LATERAL (SELECT id, metadata FROM {schema}.connections
                          WHERE id = page.id OFFSET 0) c
     WHERE page.cursor IS NOT NULL
       AND (c.metadata #> '{sync,cursor}') IS DISTINCT FROM page.cursor
"""


class Progress(NamedTuple):
    """What a run writes to its connection. A tuple, because each run with a cursor makes one."""

    connection_id: UUID
    cursor: str | None
    replaces: str | None = None  # the cursor that the run had read
    overwrites: bool = False  # replace any stored cursor
    is_first: bool = False  # its first completion


async def save_progress(
    tx: Transaction, progress: Sequence[Progress], *, now: datetime | None
) -> set[UUID]:
    """Save cursors and first completions; return the connections whose cursor was moved.

    Without a time the database's now counts.
    """
    saved = await tx.execute(SAVE_PROGRESS, *_columns(progress), now)
    if saved == len(progress):
        return set()
    ids, cursors, *_ = _columns(progress)
    moved = {row["id"] for row in await tx.fetch(MOVED_MEANWHILE, ids, cursors)}
    rest = [one._replace(cursor=None) for one in progress if one.connection_id in moved]
    saved += await tx.execute(SAVE_PROGRESS, *_columns(rest), now)
    expect(saved, len(progress), "progress")
    return moved


def _columns(progress: Sequence[Progress]) -> tuple[tuple[Any, ...], ...]:
    return tuple(zip(*progress, strict=True)) or tuple(() for _ in Progress._fields)


READ_STATUSES = """
    -- The status of locked connections and its reason.
    SELECT id, status, status_reason FROM {schema}.connections WHERE id = ANY ($1::uuid[])
"""


async def read_statuses(tx: Transaction, ids: Sequence[UUID]) -> dict[UUID, StoredStatus]:
    rows = await tx.fetch(READ_STATUSES, ids)
    return {row["id"]: StoredStatus(row["status"], read_json(row["status_reason"])) for row in rows}


SET_STATUS = """
    -- Set the status of connections. The next tick checks an active one; any other is set aside,
    -- because the caller cancels its queued jobs.
    UPDATE {schema}.connections c
       SET status = change.status, status_reason = change.reason, updated_at = $4,
           look_at = CASE WHEN change.status = 'active' THEN timestamptz '1970-01-01 00:00:00+00'
                          ELSE '0002-01-01 00:00:00+00' END
      FROM unnest($1::uuid[], $2::text[], $3::jsonb[]) AS change (id, status, reason)
     WHERE c.id = change.id
"""


async def set_status(
    tx: Transaction, changes: Sequence[tuple[UUID, str, str | None]], *, now: datetime
) -> int:
    ids, statuses, reasons = zip(*changes, strict=True)
    return await tx.execute(SET_STATUS, ids, statuses, reasons, now)


async def set_statuses(
    tx: Transaction, statuses: Mapping[UUID, StoredStatus], *, now: datetime
) -> int:
    changes = [
        (id_, one.status, None if one.reason is None else json.dumps(one.reason))
        for id_, one in statuses.items()
    ]
    return await set_status(tx, changes, now=now) if changes else 0


Key = tuple[str, str, str]
"""What identifies a connection: tenant, provider and external id."""

FIND = """
    -- The id of the connection with a key.
    SELECT id FROM {schema}.connections
     WHERE tenant_id = $1 AND provider_slug = $2 AND external_id = $3
"""


async def find(tx: Transaction, key: Key) -> UUID | None:
    found: UUID | None = await tx.fetchval(FIND, *key)
    return found


INSERT_MANY = """
    -- Add connections, except those whose key exists.
    INSERT INTO {schema}.connections
           (id, tenant_id, provider_slug, external_id, config, metadata, created_at, updated_at)
    SELECT new.id, new.tenant_id, new.provider_slug, new.external_id, new.config, new.metadata,
           $7::timestamptz, $7::timestamptz
      FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::jsonb[])
           AS new (id, tenant_id, provider_slug, external_id, config, metadata)
        ON CONFLICT (tenant_id, provider_slug, external_id) DO NOTHING
"""

FIND_MANY = """
    -- The ids of the connections with these keys.
    SELECT c.id, c.tenant_id, c.provider_slug, c.external_id
      FROM unnest($1::text[], $2::text[], $3::text[])
           AS wanted (tenant_id, provider_slug, external_id)
      JOIN {schema}.connections c USING (tenant_id, provider_slug, external_id)
"""


async def insert_many(
    tx: Transaction, connections: Sequence[Connection], *, now: datetime
) -> dict[Key, UUID]:
    """Return the id of the connection with each key: a new one, or an older one."""
    if not connections:
        return {}
    # In one order, so that two callers who add the same connections cannot deadlock.
    ordered = sorted(connections, key=_key_of)
    keys = list(zip(*map(_key_of, ordered), strict=True))
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


def _key_of(connection: Connection) -> Key:
    return connection.tenant_id, connection.provider_slug, connection.external_id


SET_CONFIG = """
    -- Replace the config of a connection.
    UPDATE {schema}.connections SET config = $2, updated_at = $3 WHERE id = $1
"""


async def set_config(tx: Transaction, connection_id: UUID, config: str, *, now: datetime) -> None:
    await tx.execute(SET_CONFIG, connection_id, config, now)


SET_SYNC_KEY = """
    -- Set one key of metadata.sync.
    UPDATE {schema}.connections
       SET metadata = jsonb_set(
               jsonb_set({schema}.object_or_empty(metadata), '{sync}',
                         {schema}.object_or_empty(metadata -> 'sync')),
               ARRAY['sync', $2], $3),
           updated_at = $4
     WHERE id = $1
"""

REMOVE_SYNC_KEY = """
    -- Remove one key of metadata.sync.
    UPDATE {schema}.connections
       SET metadata = {schema}.object_or_empty(metadata) #- ARRAY['sync', $2], updated_at = $3
     WHERE id = $1 AND jsonb_typeof(metadata -> 'sync') = 'object'
"""


async def set_sync_key(
    tx: Transaction, connection_id: UUID, key: str, value: str | None, *, now: datetime
) -> None:
    """Set a key of `metadata.sync` to a JSON text, or remove it."""
    if value is None:
        await tx.execute(REMOVE_SYNC_KEY, connection_id, key, now)
    else:
        await tx.execute(SET_SYNC_KEY, connection_id, key, value, now)


DELETE = """
    -- Delete a connection; its jobs go with it.
    DELETE FROM {schema}.connections WHERE id = $1
"""


async def delete(tx: Transaction, connection_id: UUID) -> bool:
    return await tx.execute(DELETE, connection_id) == 1


EXISTING = """
    -- Those of these connections that exist.
    SELECT id FROM {schema}.connections WHERE id = ANY ($1::uuid[])
"""


async def existing(tx: Transaction, ids: Sequence[UUID]) -> set[UUID]:
    return {row["id"] for row in await tx.fetch(EXISTING, ids)}


COLUMNS_BY_ID = """
    -- One connection, which must be the tenant's if one is named.
    SELECT id, tenant_id, provider_slug, external_id, status, config, metadata, status_reason,
           created_at, updated_at, greatest(last_finished_at, (
               SELECT j.finished_at FROM {schema}.sync_jobs j
                WHERE j.connection_id = connections.id AND {is_completion}
                ORDER BY j.finished_at DESC LIMIT 1)) AS last_finished_at
      FROM {schema}.connections
     WHERE id = $1 AND ($2::text IS NULL OR tenant_id = $2)
"""


async def get(tx: Transaction, connection_id: UUID, tenant_id: str | None) -> Connection | None:
    row = await tx.fetchrow(COLUMNS_BY_ID, connection_id, tenant_id)
    return read_connection(row) if row is not None else None


def read_connection(row: Any) -> Connection:
    return Connection(
        id=row["id"],
        tenant_id=row["tenant_id"],
        provider_slug=row["provider_slug"],
        external_id=row["external_id"],
        status=row["status"],
        config=read_json(row["config"]),
        metadata=read_json(row["metadata"]),
        status_reason=read_json(row["status_reason"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        last_finished_at=row["last_finished_at"],
    )
