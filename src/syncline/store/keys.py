"""Keys to the API, and the browsers that signed in with one."""

from datetime import datetime
from uuid import UUID

from syncline.model import ApiKey
from syncline.store.pool import Transaction

INSERT_KEY = """
    -- Add a key: what finds it and what proves it, never the key.
    INSERT INTO {schema}.api_keys (id, name, tenant_id, prefix, digest, created_at, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
"""


async def insert(tx: Transaction, key: ApiKey, digest: bytes) -> None:
    await tx.execute(
        INSERT_KEY,
        *(key.id, key.name, key.tenant_id, key.prefix, digest, key.created_at, key.expires_at),
    )


LIST_KEYS = """
    -- Every key, the oldest first; those that no longer open anything too.
    SELECT id, name, tenant_id, prefix, created_at, expires_at, revoked_at
      FROM {schema}.api_keys ORDER BY id
"""


async def list_all(tx: Transaction) -> list[ApiKey]:
    return [ApiKey(**row) for row in await tx.fetch(LIST_KEYS)]


ANY_KEYS = """
    -- Whether there was ever a key: from then on nobody comes in without.
    SELECT EXISTS (SELECT FROM {schema}.api_keys)
"""


async def exist(tx: Transaction) -> bool:
    found: bool = await tx.fetchval(ANY_KEYS)
    return found


REVOKE_KEY = """
    -- Refuse a key from now on; one that was revoked before keeps its time.
    UPDATE {schema}.api_keys SET revoked_at = coalesce(revoked_at, $2) WHERE id = $1
 RETURNING id, name, tenant_id, prefix, created_at, expires_at, revoked_at
"""

END_SESSIONS = """
    -- Sign out the browsers that came in with a key.
    DELETE FROM {schema}.api_sessions WHERE key_id = $1
"""


async def revoke(tx: Transaction, key_id: UUID, *, now: datetime) -> ApiKey | None:
    row = await tx.fetchrow(REVOKE_KEY, key_id, now)
    if row is None:
        return None
    await tx.execute(END_SESSIONS, key_id)
    return ApiKey(**row)


FIND_KEY = """
    -- The key with a prefix, if it is good at this moment.
    SELECT id, name, tenant_id, prefix, created_at, expires_at, revoked_at, digest
      FROM {schema}.api_keys
     WHERE prefix = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)
"""


async def find(tx: Transaction, prefix: str, *, now: datetime) -> tuple[ApiKey, bytes] | None:
    row = await tx.fetchrow(FIND_KEY, prefix, now)
    if row is None:
        return None
    values = dict(row)
    digest: bytes = values.pop("digest")
    return ApiKey(**values), digest


INSERT_SESSION = """
    -- Let a browser in for a while.
    INSERT INTO {schema}.api_sessions (digest, key_id, created_at, expires_at)
    VALUES ($1, $2, $3, $4)
"""

SWEEP_SESSIONS = """
    -- Remove some sessions that are over.
    DELETE FROM {schema}.api_sessions
     WHERE digest = ANY (ARRAY(SELECT digest FROM {schema}.api_sessions WHERE expires_at <= $1
                                ORDER BY expires_at LIMIT 100))
"""


async def insert_session(
    tx: Transaction, digest: bytes, key_id: UUID, *, now: datetime, expires_at: datetime
) -> None:
    await tx.execute(SWEEP_SESSIONS, now)
    await tx.execute(INSERT_SESSION, digest, key_id, now, expires_at)


FIND_SESSION = """
    -- The key that a browser signed in with, if both are good at this moment.
    SELECT k.id, k.name, k.tenant_id, k.prefix, k.created_at, k.expires_at, k.revoked_at
      FROM {schema}.api_sessions s JOIN {schema}.api_keys k ON k.id = s.key_id
     WHERE s.digest = $1 AND s.expires_at > $2 AND k.revoked_at IS NULL
       AND (k.expires_at IS NULL OR k.expires_at > $2)
"""


async def find_session(tx: Transaction, digest: bytes, *, now: datetime) -> ApiKey | None:
    row = await tx.fetchrow(FIND_SESSION, digest, now)
    return ApiKey(**row) if row is not None else None


DELETE_SESSION = """
    -- Sign a browser out.
    DELETE FROM {schema}.api_sessions WHERE digest = $1
"""


async def delete_session(tx: Transaction, digest: bytes) -> None:
    await tx.execute(DELETE_SESSION, digest)
