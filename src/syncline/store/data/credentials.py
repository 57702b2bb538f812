"""Stored credentials: encrypted, with a version and a lease for refreshing them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.store.pool import Transaction


@dataclass(frozen=True, slots=True)
class Stored:
    """The encrypted credentials of one connection, at one version."""

    connection_id: UUID
    tenant_id: str
    key_id: str
    sealed: bytes
    version: int = 1


READ = """
    -- The encrypted credentials of these connections.
    SELECT connection_id, tenant_id, key_id, sealed, version FROM {schema}.credentials
     WHERE connection_id = ANY ($1::uuid[])
"""


async def read(tx: Transaction, connection_ids: Sequence[UUID]) -> dict[UUID, Stored]:
    return {row["connection_id"]: Stored(*row) for row in await tx.fetch(READ, connection_ids)}


SAVE = """
    -- Replace credentials; a refresh in progress finds a newer version.
    INSERT INTO {schema}.credentials (connection_id, tenant_id, key_id, sealed, updated_at)
    VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (connection_id) DO UPDATE
       SET key_id = excluded.key_id, sealed = excluded.sealed, updated_at = excluded.updated_at,
           version = credentials.version + 1, renewing = NULL, renewing_until = NULL
"""

MARK = """
    -- Record on the connection whether it has credentials.
    UPDATE {schema}.connections SET has_credentials = $2, updated_at = $3 WHERE id = $1
"""

REMOVE = """
    -- Delete credentials.
    DELETE FROM {schema}.credentials WHERE connection_id = $1
"""


async def save(tx: Transaction, new: Stored, *, now: datetime) -> None:
    await tx.execute(SAVE, new.connection_id, new.tenant_id, new.key_id, new.sealed, now)
    await tx.execute(MARK, new.connection_id, True, now)


async def remove(tx: Transaction, connection_id: UUID, *, now: datetime) -> None:
    await tx.execute(REMOVE, connection_id)
    await tx.execute(MARK, connection_id, False, now)


BEGIN_REFRESH = """
    -- Take the lease for refreshing these credentials, unless it is taken or they have changed.
    UPDATE {schema}.credentials SET renewing = $3, renewing_until = $5
     WHERE connection_id = $1 AND version = $2
       AND (renewing IS NULL OR renewing_until <= $4)
"""


async def begin_refresh(
    tx: Transaction, stored: Stored, token: UUID, *, now: datetime, until: datetime
) -> bool:
    """Return whether we got the lease."""
    arguments = (stored.connection_id, stored.version, token, now, until)
    return await tx.execute(BEGIN_REFRESH, *arguments) == 1


FINISH_REFRESH = """
    -- Store refreshed credentials, unless they were replaced since the refresh began.
    UPDATE {schema}.credentials
       SET key_id = $3, sealed = $4, version = version + 1, renewing = NULL,
           renewing_until = NULL, updated_at = $5
     WHERE connection_id = $1 AND version = $2
"""


async def finish_refresh(
    tx: Transaction, stored: Stored, key_id: str, sealed: bytes, *, now: datetime
) -> bool:
    """Return whether they were stored.

    The lease is not checked: the old token is spent, so the new one must not be lost.
    """
    arguments = (stored.connection_id, stored.version, key_id, sealed, now)
    return await tx.execute(FINISH_REFRESH, *arguments) == 1


END_REFRESH = """
    -- Return the lease of a refresh that failed.
    UPDATE {schema}.credentials SET renewing = NULL, renewing_until = NULL
     WHERE connection_id = $1 AND renewing = $2
"""


async def end_refresh(tx: Transaction, connection_id: UUID, token: UUID) -> None:
    await tx.execute(END_REFRESH, connection_id, token)


COUNT_OTHERS = """
    -- How many credentials are encrypted with another key.
    SELECT count(*) FROM {schema}.credentials WHERE key_id <> $1
"""


async def count_others(tx: Transaction, key_id: str) -> int:
    count: int = await tx.fetchval(COUNT_OTHERS, key_id)
    return count


LOCK_OTHERS = """
    -- Lock some credentials that are encrypted with another key.
    SELECT connection_id, tenant_id, key_id, sealed, version FROM {schema}.credentials
     WHERE key_id <> $1 AND connection_id > $2
     ORDER BY connection_id LIMIT $3
       FOR UPDATE
"""


async def lock_others(tx: Transaction, key_id: str, *, after: UUID, limit: int) -> list[Stored]:
    return [Stored(*row) for row in await tx.fetch(LOCK_OTHERS, key_id, after, limit)]


RESEAL = """
    -- Store the same credentials, encrypted with another key; the version stays.
    UPDATE {schema}.credentials c SET key_id = $3, sealed = fresh.sealed
      FROM unnest($1::uuid[], $2::bytea[]) AS fresh (connection_id, sealed)
     WHERE c.connection_id = fresh.connection_id
"""


async def reseal(tx: Transaction, fresh: Sequence[tuple[UUID, bytes]], key_id: str) -> Any:
    ids, sealed = zip(*fresh, strict=True)
    return await tx.execute(RESEAL, ids, sealed, key_id)
