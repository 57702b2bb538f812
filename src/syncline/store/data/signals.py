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
    -- provider and connection are those of the job's row. They are sent once per job, with the
    -- number of its signals ($5), because the driver takes a third of a microsecond per element.
    INSERT INTO {schema}.signals
           (tenant_id, provider_slug, connection_id, job_id, id, kind, occurred_at, payload,
            dedupe_key)
    SELECT page.tenant_id, page.provider_slug, page.connection_id, page.job_id, page.id,
           page.kind, page.occurred_at, page.payload, page.dedupe_key
      FROM unnest(
           ARRAY(SELECT job.tenant_id FROM unnest($1::text[], $5::int[])
                 AS job (tenant_id, signals) CROSS JOIN generate_series(1, job.signals)),
           ARRAY(SELECT job.provider_slug FROM unnest($2::text[], $5::int[])
                 AS job (provider_slug, signals) CROSS JOIN generate_series(1, job.signals)),
           ARRAY(SELECT job.connection_id FROM unnest($3::uuid[], $5::int[])
                 AS job (connection_id, signals) CROSS JOIN generate_series(1, job.signals)),
           ARRAY(SELECT job.id FROM unnest($4::uuid[], $5::int[])
                 AS job (id, signals) CROSS JOIN generate_series(1, job.signals)),
           $6::uuid[], $7::text[], $8::timestamptz[], $9::jsonb[], $10::text[])
           AS page (tenant_id, provider_slug, connection_id, job_id, id, kind, occurred_at,
                    payload, dedupe_key)
        ON CONFLICT (connection_id, dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING
"""


@dataclass(slots=True)
class Columns:
    """Signals of several jobs, column by column."""

    jobs: list[tuple[Claim, int]] = field(default_factory=list)  # and how many signals each has
    ids: list[UUID] = field(default_factory=list)
    page: Page = field(default_factory=Page)

    def add(self, claim: Claim, page: Page, ids: Sequence[UUID]) -> None:
        """Add a job's page; its tenant, provider and connection come from the job's row."""
        self.jobs.append((claim, len(ids)))
        self.ids += ids
        self.page.kinds += page.kinds
        self.page.occurred_at += page.occurred_at
        self.page.payloads += page.payloads
        self.page.dedupe_keys += page.dedupe_keys

    def between(self, first: int, last: int) -> Sequence[Sequence[Any]]:
        """Return the arguments of INSERT for some of the signals."""
        page = self.page
        every = (self.ids, page.kinds, page.occurred_at, page.payloads, page.dedupe_keys)
        is_all = last - first == len(self.ids)
        jobs = self.jobs if is_all else list(_jobs_between(self.jobs, first, last))
        return (
            [claim.tenant_id for claim, _ in jobs],
            [claim.provider_slug for claim, _ in jobs],
            [claim.connection_id for claim, _ in jobs],
            [claim.id for claim, _ in jobs],
            [count for _, count in jobs],
            *(every if is_all else [column[first:last] for column in every]),
        )


def _jobs_between(
    jobs: Sequence[tuple[Claim, int]], first: int, last: int
) -> Iterator[tuple[Claim, int]]:
    """Yield the jobs of some signals, and how many of those each has."""
    begin = 0
    for claim, count in jobs:
        end = begin + count
        if min(end, last) > max(begin, first):
            yield claim, min(end, last) - max(begin, first)
        begin = end


async def insert(tx: Transaction, columns: Columns) -> int:
    """Return how many signals were new.

    A large page is split over several statements: each is encoded without blocking the event loop,
    and arrives in time over a slow link.
    """
    sizes = list(map(len, columns.page.payloads))
    if sum(sizes) <= SMALL_BYTES:
        return await tx.execute(INSERT, *columns.between(0, len(sizes)))
    inserted, parts = 0, list(_cut(sizes))
    await tx.send_large(max(size for _, _, size in parts))
    for first, last, size in parts:
        timeout = seconds_for(size) if size > STATEMENT_BYTES else None
        inserted += await tx.execute(INSERT, *columns.between(first, last), timeout=timeout)
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
