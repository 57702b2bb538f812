"""Signals: stored a page at a time, deleted in batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from syncline.sdk.page import Page
from syncline.store.pool import Transaction, seconds_for
from syncline.store.queue.claims import Claim

STATEMENT_BYTES = 256_000  # of payloads: two seconds at 1 Mbit/s, a few milliseconds to encode
SMALL_BYTES = 32_000  # arrives in time even if many share a slow link

INSERT = """
    -- Store pages of signals, except those whose dedupe key the connection has seen. Tenant,
    -- provider and connection are those of the job's row.
    INSERT INTO {schema}.signals
           (id, tenant_id, provider_slug, connection_id, job_id, kind, occurred_at, payload,
            dedupe_key)
    SELECT page.id, page.tenant_id, page.provider_slug, page.connection_id, page.job_id,
           page.kind, page.occurred_at, page.payload, page.dedupe_key
      FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::uuid[], $6::text[],
                  $7::timestamptz[], $8::jsonb[], $9::text[])
           AS page (id, tenant_id, provider_slug, connection_id, job_id, kind, occurred_at,
                    payload, dedupe_key)
        ON CONFLICT (connection_id, dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING
"""


@dataclass(slots=True)
class Columns:
    """Signals of several jobs, column by column."""

    ids: list[UUID] = field(default_factory=list)
    tenant_ids: list[str] = field(default_factory=list)
    provider_slugs: list[str] = field(default_factory=list)
    connection_ids: list[UUID] = field(default_factory=list)
    job_ids: list[UUID] = field(default_factory=list)
    page: Page = field(default_factory=Page)

    def add(self, claim: Claim, page: Page, ids: Sequence[UUID]) -> None:
        """Add a job's page; its ids, tenant, provider and connection come from the job's row."""
        self.ids += ids
        self.tenant_ids += [claim.tenant_id] * len(ids)
        self.provider_slugs += [claim.provider_slug] * len(ids)
        self.connection_ids += [claim.connection_id] * len(ids)
        self.job_ids += [claim.id] * len(ids)
        self.page.kinds += page.kinds
        self.page.occurred_at += page.occurred_at
        self.page.payloads += page.payloads
        self.page.dedupe_keys += page.dedupe_keys


async def insert(tx: Transaction, columns: Columns) -> int:
    """Return how many signals were new.

    A large page is split over several statements: each is encoded without blocking the event loop,
    and arrives in time over a slow link.
    """
    page = columns.page
    every: list[list[Any]] = [
        columns.ids,
        columns.tenant_ids,
        columns.provider_slugs,
        columns.connection_ids,
        columns.job_ids,
        page.kinds,
        page.occurred_at,
        page.payloads,
        page.dedupe_keys,
    ]
    sizes = list(map(len, page.payloads))
    if sum(sizes) <= SMALL_BYTES:
        return await tx.execute(INSERT, *every)
    inserted, parts = 0, list(_cut(sizes))
    await tx.send_large(max(size for _, _, size in parts))
    for first, last, size in parts:
        part = [column[first:last] for column in every]
        timeout = seconds_for(size) if size > STATEMENT_BYTES else None
        inserted += await tx.execute(INSERT, *part, timeout=timeout)
    return inserted


def _cut(sizes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the bounds and the size of each part; only a single signal may exceed the limit."""
    first = total = 0
    for index, size in enumerate(sizes):
        if index > first and total + size > STATEMENT_BYTES:
            yield first, index, total
            first, total = index, 0
        total += size
    yield first, len(sizes), total


DELETE_BATCH = """
    -- Delete some signals of a deleted connection.
    DELETE FROM {schema}.signals
     WHERE id = ANY (ARRAY(SELECT id FROM {schema}.signals
                            WHERE connection_id = $1 AND ($2::text IS NULL OR tenant_id = $2)
                            ORDER BY received_at, id LIMIT $3))
"""


async def delete_batch(
    tx: Transaction, connection_id: UUID, tenant_id: str | None, *, limit: int
) -> int:
    return await tx.execute(DELETE_BATCH, connection_id, tenant_id, limit)
