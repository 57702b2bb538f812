"""API keys, and the browser sessions that began with one."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.model import ApiKey, KeyStatus, Scope
from syncline.policy.keys import NOTICE, key_status
from syncline.store.pool import Transaction

INSERT_KEY = """
    -- Add a key: its prefix and its digest, never the key itself.
    INSERT INTO {schema}.api_keys
           (id, name, tenant_id, prefix, digest, scope, created_at, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""


async def insert(tx: Transaction, key: ApiKey, digest: bytes) -> None:
    await tx.execute(
        INSERT_KEY,
        *(key.id, key.name, key.tenant_id, key.prefix, digest, key.scope),
        *(key.created_at, key.expires_at),
    )


LIST_KEYS = """
    -- Every key, oldest first, expired and revoked ones too.
    SELECT id, name, tenant_id, prefix, scope, created_at, expires_at, revoked_at, last_used_at
      FROM {schema}.api_keys ORDER BY id
"""


async def list_all(tx: Transaction) -> list[ApiKey]:
    return [_key(row) for row in await tx.fetch(LIST_KEYS)]


ANY_KEYS = """
    -- Whether a key was ever created: from then on, every request needs one.
    SELECT EXISTS (SELECT FROM {schema}.api_keys)
"""


async def exist(tx: Transaction) -> bool:
    found: bool = await tx.fetchval(ANY_KEYS)
    return found


EXPIRING_KEYS = """
    -- Valid keys that expire by then, the soonest first.
    SELECT id, name, tenant_id, prefix, scope, created_at, expires_at, revoked_at, last_used_at
      FROM {schema}.api_keys
     WHERE revoked_at IS NULL AND expires_at > $1 AND expires_at <= $2
     ORDER BY expires_at, id
"""


async def list_expiring(tx: Transaction, *, now: datetime) -> list[ApiKey]:
    """Return the keys whose end is announced now, the soonest first."""
    found = [_key(row) for row in await tx.fetch(EXPIRING_KEYS, now, now + NOTICE)]
    return [key for key in found if key_status(key, now) == KeyStatus.EXPIRING]


SAVE_USES = """
    -- Save when keys were last used. A process that holds a row is saving the same.
    WITH used AS MATERIALIZED (
        SELECT k.id, u.at
          FROM unnest($1::uuid[], $2::timestamptz[]) AS u (id, at)
          JOIN {schema}.api_keys k ON k.id = u.id
         WHERE k.last_used_at IS NULL OR k.last_used_at < u.at
         ORDER BY k.id
           FOR NO KEY UPDATE OF k SKIP LOCKED
    )
    UPDATE {schema}.api_keys k SET last_used_at = used.at FROM used WHERE k.id = used.id
"""


async def save_uses(tx: Transaction, uses: Mapping[UUID, datetime]) -> int:
    """Return how many keys got a later time."""
    return await tx.execute(SAVE_USES, list(uses), list(uses.values()))


READ_KEY = """
    -- One key, which nobody else changes until the transaction ends.
    SELECT id, name, tenant_id, prefix, scope, created_at, expires_at, revoked_at, last_used_at
      FROM {schema}.api_keys WHERE id = $1 FOR NO KEY UPDATE
"""

REVOKE_KEY = """
    -- Revoke a key.
    UPDATE {schema}.api_keys SET revoked_at = $2 WHERE id = $1
"""

END_SESSIONS = """
    -- End the sessions that began with a key.
    DELETE FROM {schema}.api_sessions WHERE key_id = $1
"""


async def lock(tx: Transaction, key_id: UUID) -> ApiKey | None:
    row = await tx.fetchrow(READ_KEY, key_id)
    return _key(row) if row is not None else None


async def revoke(tx: Transaction, key: ApiKey, *, now: datetime) -> ApiKey:
    """Return the key as it is then; one that is revoked already keeps its time."""
    if key.revoked_at is None:
        await tx.execute(REVOKE_KEY, key.id, now)
    await tx.execute(END_SESSIONS, key.id)
    return replace(key, revoked_at=key.revoked_at or now)


REVOKE_KEYS_OF_TENANT = """
    -- Revoke the keys of a tenant.
    UPDATE {schema}.api_keys SET revoked_at = $2 WHERE tenant_id = $1 AND revoked_at IS NULL
"""

END_SESSIONS_OF_TENANT = """
    -- End the sessions that began with a key of a tenant.
    DELETE FROM {schema}.api_sessions
     WHERE key_id = ANY (ARRAY(SELECT id FROM {schema}.api_keys WHERE tenant_id = $1))
"""

FORGET_ANSWERS_OF_TENANT = """
    -- Delete the stored answers to a tenant's keys: they hold the tenant's data.
    DELETE FROM {schema}.api_requests
     WHERE scope = ANY (ARRAY(SELECT id::text FROM {schema}.api_keys WHERE tenant_id = $1))
"""


async def revoke_of_tenant(tx: Transaction, tenant_id: str, *, now: datetime) -> int:
    """Return how many keys were not revoked yet."""
    revoked = await tx.execute(REVOKE_KEYS_OF_TENANT, tenant_id, now)
    await tx.execute(END_SESSIONS_OF_TENANT, tenant_id)
    await tx.execute(FORGET_ANSWERS_OF_TENANT, tenant_id)
    return revoked


FIND_KEY = """
    -- The key with a prefix, if it is valid now.
    SELECT id, name, tenant_id, prefix, scope, created_at, expires_at, revoked_at, last_used_at,
           digest
      FROM {schema}.api_keys
     WHERE prefix = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)
"""


async def find(tx: Transaction, prefix: str, *, now: datetime) -> tuple[ApiKey, bytes] | None:
    row = await tx.fetchrow(FIND_KEY, prefix, now)
    if row is None:
        return None
    values = dict(row)
    digest: bytes = values.pop("digest")
    return _key(values), digest


INSERT_SESSION = """
    -- Begin a session.
    INSERT INTO {schema}.api_sessions (digest, key_id, created_at, expires_at)
    VALUES ($1, $2, $3, $4)
"""

SWEEP_SESSIONS = """
    -- Delete some sessions that are over.
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
    -- The key that a session began with, if both are valid now.
    SELECT k.id, k.name, k.tenant_id, k.prefix, k.scope, k.created_at, k.expires_at, k.revoked_at,
           k.last_used_at
      FROM {schema}.api_sessions s JOIN {schema}.api_keys k ON k.id = s.key_id
     WHERE s.digest = $1 AND s.expires_at > $2 AND k.revoked_at IS NULL
       AND (k.expires_at IS NULL OR k.expires_at > $2)
"""


async def find_session(tx: Transaction, digest: bytes, *, now: datetime) -> ApiKey | None:
    row = await tx.fetchrow(FIND_SESSION, digest, now)
    return _key(row) if row is not None else None


DELETE_SESSION = """
    -- End a session.
    DELETE FROM {schema}.api_sessions WHERE digest = $1
"""


async def delete_session(tx: Transaction, digest: bytes) -> bool:
    return await tx.execute(DELETE_SESSION, digest) == 1


def _key(row: Mapping[str, Any]) -> ApiKey:
    return ApiKey(**{**row, "scope": Scope(row["scope"])})
