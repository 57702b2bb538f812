"""Answers to requests with an idempotency key, kept so that repeating one changes nothing."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from syncline.model import IdempotentRequest
from syncline.store.errors import WriteLost
from syncline.store.pool import Transaction

KEPT_FOR = timedelta(days=1)
FORGOTTEN_AT_ONCE = 100

BEGIN = """
    -- Take an idempotency key. If another transaction holds it, wait until that ends.
    INSERT INTO {schema}.api_requests (scope, idempotency_key, digest, created_at, tenant_id)
    VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (scope, idempotency_key) DO NOTHING
"""

READ = """
    -- The answer, and the digest of the request that got it.
    SELECT digest, answer FROM {schema}.api_requests WHERE scope = $1 AND idempotency_key = $2
"""

FINISH = """
    -- Store the answer in the transaction that makes the change.
    UPDATE {schema}.api_requests SET answer = $3 WHERE scope = $1 AND idempotency_key = $2
"""

FORGET = """
    -- Delete some old answers, except those that another session is deleting.
    WITH old AS MATERIALIZED (
        SELECT scope, idempotency_key FROM {schema}.api_requests WHERE created_at < $1
         ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
    )
    DELETE FROM {schema}.api_requests r USING old
     WHERE r.scope = old.scope AND r.idempotency_key = old.idempotency_key
"""


@dataclass(frozen=True, slots=True)
class Answered:
    digest: bytes
    answer: str


async def begin(tx: Transaction, request: IdempotentRequest, *, now: datetime) -> Answered | None:
    """Return the earlier answer, or None the first time."""
    await forget(tx, before=now - KEPT_FOR, limit=FORGOTTEN_AT_ONCE)
    key = (request.scope, request.idempotency_key)
    if await tx.execute(BEGIN, *key, request.digest, now, request.tenant_id) == 1:
        return None
    row = await tx.fetchrow(READ, *key)
    if row is None:
        raise WriteLost("an idempotency key was forgotten while it was read")
    return Answered(row["digest"], row["answer"] or "")


async def forget(tx: Transaction, *, before: datetime, limit: int) -> int:
    """Return how many answers were deleted; a tenant's request deletes only that tenant's."""
    return await tx.execute(FORGET, before, limit)


async def finish(tx: Transaction, request: IdempotentRequest, answer: str) -> None:
    await tx.execute(FINISH, request.scope, request.idempotency_key, answer)
