"""Who changed what, and when: rows that are added once and never change."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from syncline.clock import new_id
from syncline.policy.audit import NOBODY, Action, Actor, Entry, shown
from syncline.store.errors import expect
from syncline.store.pool import Transaction

RECORD = """
    -- Add what somebody did, in the transaction that does it.
    INSERT INTO {schema}.audit
           (id, acted_at, actor_kind, actor, key_id, address, action, tenant_id, provider_slug,
            subject, connection_ids, count, before, after)
    SELECT new.id, $2, $3, $4, $5, $6, new.action, new.tenant_id, new.provider_slug,
           new.subject, new.connection_ids, new.count, new.before, new.after
      FROM jsonb_to_recordset($1::jsonb)
           AS new (id uuid, action text, tenant_id text, provider_slug text, subject text,
                   connection_ids uuid[], count int, before jsonb, after jsonb)
"""


async def record(tx: Transaction, actor: Actor, entries: Sequence[Entry], *, now: datetime) -> None:
    """Record what an actor did, by one statement for all entries."""
    if not entries:
        return
    rows = f"[{','.join(map(_row, entries))}]"
    added = await tx.execute(RECORD, rows, now, actor.kind, actor.name, actor.key_id, actor.address)
    expect(added, len(entries), "audit")


def _row(entry: Entry) -> str:
    plain = json.dumps(
        {
            "id": str(new_id()),
            "action": entry.action,
            "tenant_id": entry.tenant_id,
            "provider_slug": entry.provider_slug,
            "subject": entry.subject,
            "connection_ids": [str(id_) for id_ in entry.connection_ids],
            "count": entry.count,
        }
    )
    before, after = shown(entry.before) or "null", shown(entry.after) or "null"
    return f'{plain[:-1]}, "before": {before}, "after": {after}}}'


async def record_refusals(tx: Transaction, refused: Mapping[str, int], *, now: datetime) -> None:
    """Record how many invalid keys came from each address."""
    for address, count in refused.items():
        entry = Entry(Action.SESSIONS_REFUSE, count=count)
        await record(tx, replace(NOBODY, address=address), [entry], now=now)


PRUNE = """
    -- Delete some of the oldest rows. Nothing else deletes any, so none is locked.
    DELETE FROM {schema}.audit
     WHERE id = ANY (ARRAY(SELECT id FROM {schema}.audit WHERE acted_at < $1
                            ORDER BY acted_at LIMIT $2))
"""


async def prune(tx: Transaction, *, before: datetime, limit: int) -> int:
    return await tx.execute(PRUNE, before, limit)
