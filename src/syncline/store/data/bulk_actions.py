"""Actions on many rows: begin, lease, advance, cancel and list them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.policy.bulk import (
    NAMED,
    BulkAction,
    BulkState,
    BulkVerb,
    Tally,
    Target,
    filter_as_json,
    filter_from_json,
)
from syncline.sdk.json_text import read_json
from syncline.store.errors import expect
from syncline.store.pool import Transaction

INSERT = """
    -- Begin an action; the caller may hold its lease from the start.
    INSERT INTO {schema}.bulk_actions
           (id, tenant_id, target, action, filter, options, actor, expected, started_at,
            state, finished_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
"""


async def insert(tx: Transaction, action: BulkAction) -> None:
    await tx.execute(
        INSERT,
        *(action.id, action.tenant_id, action.target, action.action),
        json.dumps(filter_as_json(action.wanted)),
        json.dumps(dict(action.options)),
        json.dumps(dict(action.actor)),
        *(action.expected, action.started_at, action.state, action.finished_at),
    )


GET = """
    -- One action, which must have been begun by the tenant's key if a tenant is named.
    SELECT id, tenant_id, target, action, filter, options, actor, expected, state, done, refused,
           refusals, refused_first, place, started_at, finished_at
      FROM {schema}.bulk_actions
     WHERE id = $1 AND ($2::text IS NULL OR tenant_id = $2)
"""

LIST = """
    -- Actions, the newest first; old ones are deleted, so there are few.
    SELECT id, tenant_id, target, action, filter, options, actor, expected, state, done, refused,
           refusals, refused_first, place, started_at, finished_at
      FROM {schema}.bulk_actions
     WHERE ($1::text IS NULL OR tenant_id = $1) AND ($2::uuid IS NULL OR id < $2)
     ORDER BY id DESC LIMIT $3
"""


async def get(tx: Transaction, id_: UUID, tenant_id: str | None) -> BulkAction | None:
    row = await tx.fetchrow(GET, id_, tenant_id)
    return _read(row) if row is not None else None


async def read_page(
    tx: Transaction, tenant_id: str | None, *, after: UUID | None, limit: int
) -> list[BulkAction]:
    return [_read(row) for row in await tx.fetch(LIST, tenant_id, after, limit)]


TAKE = """
    -- Take the lease of an action ($4), or of the first one that nobody works on.
    UPDATE {schema}.bulk_actions SET lease_token = $1, lease_expires_at = $3
     WHERE id = ANY (ARRAY(
           SELECT id FROM {schema}.bulk_actions
            WHERE state = 'running'
              AND (coalesce(lease_expires_at <= $2, true) OR lease_token = $1)
              AND ($4::uuid IS NULL OR id = $4)
            ORDER BY id LIMIT 1
              FOR UPDATE SKIP LOCKED))
 RETURNING id
"""


@dataclass(frozen=True, slots=True)
class BulkLease:
    token: UUID
    now: datetime
    until: datetime


async def take(tx: Transaction, lease: BulkLease, id_: UUID | None = None) -> UUID | None:
    """Return the action whose lease is now ours."""
    taken: UUID | None = await tx.fetchval(TAKE, lease.token, lease.now, lease.until, id_)
    return taken


LOCK = """
    -- Lock an action that is ours and goes on.
    SELECT id, tenant_id, target, action, filter, options, actor, expected, state, done, refused,
           refusals, refused_first, place, started_at, finished_at
      FROM {schema}.bulk_actions
     WHERE id = $1 AND lease_token = $2 AND state = 'running'
       FOR NO KEY UPDATE
"""


async def lock(tx: Transaction, id_: UUID, token: UUID) -> BulkAction | None:
    """Return the action; None if it ended, or another process has taken it."""
    row = await tx.fetchrow(LOCK, id_, token)
    return _read(row) if row is not None else None


ADVANCE = """
    -- Add what a batch did, and how far it came; without a place, that was the last one.
    UPDATE {schema}.bulk_actions
       SET done = $2, refused = $3, refusals = $4, refused_first = $5, place = coalesce($6, place),
           state = CASE WHEN $6::uuid IS NULL THEN 'done' ELSE state END,
           finished_at = CASE WHEN $6::uuid IS NULL THEN $7::timestamptz END,
           lease_expires_at = $8
     WHERE id = $1
"""


async def advance(
    tx: Transaction, action: BulkAction, batch: Tally, place: UUID | None, lease: BulkLease
) -> None:
    refusals = dict(action.refusals)
    for reason, count in batch.refusals.items():
        refusals[reason] = refusals.get(reason, 0) + count
    advanced = await tx.execute(
        ADVANCE,
        *(action.id, action.done + batch.done, action.refused + batch.refused),
        json.dumps(refusals),
        json.dumps([*action.refused_first, *batch.first][:NAMED]),
        *(place, lease.now, lease.until),
    )
    expect(advanced, 1, "bulk actions")


CANCEL = """
    -- Cancel an action that goes on; batches that were committed stay.
    UPDATE {schema}.bulk_actions SET state = 'cancelled', finished_at = $3
     WHERE id = $1 AND ($2::text IS NULL OR tenant_id = $2) AND state = 'running'
"""


async def cancel(tx: Transaction, id_: UUID, tenant_id: str | None, *, now: datetime) -> bool:
    return await tx.execute(CANCEL, id_, tenant_id, now) == 1


FORGET = """
    -- Delete actions that ended long ago.
    DELETE FROM {schema}.bulk_actions WHERE finished_at < $1
"""


async def forget(tx: Transaction, *, before: datetime) -> int:
    return await tx.execute(FORGET, before)


def _read(row: Any) -> BulkAction:
    values: dict[str, Any] = dict(row)
    stored: Mapping[str, Any] = read_json(values.pop("filter"))
    for name in ("options", "actor", "refusals", "refused_first"):
        values[name] = read_json(values[name])
    values["target"], values["action"] = Target(values["target"]), BulkVerb(values["action"])
    values["state"] = BulkState(values["state"])
    return BulkAction(wanted=filter_from_json(values["target"], stored), **values)
