"""Retrying and cancelling jobs by the many: which they are, then each as if alone."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from syncline.errors import Refused
from syncline.model import Job, JobFilter
from syncline.services.base import BaseService
from syncline.store.pool import Transaction
from syncline.store.queue import job_batches

A_BATCH = 500
AT_ONCE = 5  # half of the usual pool: whoever else uses it gets a turn

RETRIED_STATES = ("failed", "cancelled", "backoff")
CANCELLED_STATES = ("queued", "running")


@dataclass(slots=True)
class BatchReport:
    """How many were changed, and why others were not."""

    done: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class JobBatches(BaseService):
    async def find(self, which: JobFilter, states: Sequence[str]) -> list[UUID]:
        """Return the jobs in these states; of those that ended, only each connection's last."""
        found: list[UUID] = []
        for state in states:
            async for batch in self._find(which, state):
                found += batch
        return found

    async def _find(self, which: JobFilter, state: str) -> AsyncIterator[list[UUID]]:
        after = UUID(int=0)
        while batch := await self._next(which, state, after):
            yield batch
            after = batch[-1]

    async def _next(self, which: JobFilter, state: str, after: UUID) -> list[UUID]:
        async def read(tx: Transaction) -> list[UUID]:
            return await job_batches.next_jobs(tx, which, state, after=after, limit=A_BATCH)

        return await self._pool.retrying(read)


async def change_each(
    job_ids: Sequence[UUID],
    change: Callable[[UUID], Awaitable[Job]],
    on_progress: Callable[[int], None] = lambda _: None,
) -> BatchReport:
    """Change jobs one by one, a few at once; what cannot be changed is counted by its reason."""
    report = BatchReport()
    waiting = iter(job_ids)

    async def work() -> None:
        for job_id in waiting:
            try:
                await change(job_id)
                report.done += 1
            except Refused as error:
                report.refused[error.summary] += 1
            on_progress(1)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return report
