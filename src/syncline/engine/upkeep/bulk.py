"""Carries out actions on many rows, a batch per transaction, so that none is lost or done twice."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID, uuid4

from syncline.clock import monotonic
from syncline.engine.context import EngineContext
from syncline.engine.upkeep.bulk_batches import Batch, change_connections, change_jobs
from syncline.engine.wakeup import Wakeup
from syncline.model import JobFilter
from syncline.policy.audit import Actor
from syncline.policy.bulk import BulkAction, Target
from syncline.store.data import audit, bulk_actions
from syncline.store.data.bulk_actions import BulkLease
from syncline.store.errors import is_held
from syncline.store.listings import walks
from syncline.store.pool import Transaction

BATCH_SIZE = 500
LOOK_EVERY = timedelta(seconds=2)
LEASE = timedelta(seconds=30)
LOCK_PATIENCE = timedelta(seconds=2)
STATEMENT_PATIENCE = timedelta(seconds=20)
KEPT = timedelta(days=90)
FORGET_SECONDS = 3600.0


class BulkRunner:
    """Works on one action at a time; any number of processes may do so at once.

    An action belongs to whoever holds its lease. Its place is stored with each batch, so a process
    that dies loses nothing but a batch that was not committed.
    """

    def __init__(self, context: EngineContext, wakeup: Wakeup) -> None:
        self._pool = context.pool
        self._clock = context.clock
        self._wakeup = wakeup
        self._token = uuid4()
        self._forget_at = monotonic() + FORGET_SECONDS
        self._is_stopping = False
        self.wake = asyncio.Event()  # ends the pause before the next step

    def stop(self) -> None:
        """Let the batch in progress end; another process, or the next start, goes on."""
        self._is_stopping = True

    def start(self) -> None:
        self._is_stopping = False

    async def step(self) -> timedelta:
        """Carry out the first action that nobody works on; return how long to wait."""
        if monotonic() >= self._forget_at:
            self._forget_at = monotonic() + FORGET_SECONDS
            async with self._pool.transaction() as tx:
                before = await self._clock.now(tx) - KEPT
                await bulk_actions.forget(tx, before=before)
        return timedelta() if await self.run() else LOOK_EVERY

    async def run(
        self, id_: UUID | None = None, on_progress: Callable[[int], None] = lambda _: None
    ) -> bool:
        """Carry out an action, or the first one that is free; return whether there was one."""
        taken = await self._take(id_)
        if taken is None:
            return False
        is_skipping = False
        while not self._is_stopping:
            try:
                work = partial(self._batch, id_=taken, skips_held=is_skipping)
                rows = await self._pool.retrying(work)
            except Exception as error:
                if is_skipping or not is_held(error):
                    raise
                is_skipping = True  # once: this batch leaves out what somebody else holds
                continue
            is_skipping = False
            if rows is None:
                break
            on_progress(rows)
        return True

    async def _take(self, id_: UUID | None) -> UUID | None:
        async with self._pool.transaction() as tx:
            return await bulk_actions.take(tx, self._lease(await self._clock.now(tx)), id_)

    def _lease(self, now: datetime) -> BulkLease:
        return BulkLease(self._token, now, now + LEASE)

    async def _batch(self, tx: Transaction, id_: UUID, *, skips_held: bool) -> int | None:
        """Do one batch; return how many rows it had, or None if the action goes no further."""
        await tx.limit(lock=LOCK_PATIENCE, statement=STATEMENT_PATIENCE)
        action = await bulk_actions.lock(tx, id_, self._token)
        if action is None:
            return None
        now = await self._clock.now(tx)
        ids = await _next_ids(tx, action, now)
        change = change_jobs if action.target is Target.JOBS else change_connections
        outcome = await change(tx, Batch(action, ids, now, skips_held))
        await audit.record(tx, Actor.from_json(action.actor), outcome.entries, now=now)
        is_last = len(ids) < BATCH_SIZE
        place = None if is_last else ids[-1]
        await bulk_actions.advance(tx, action, outcome.tally, place, self._lease(now))
        if outcome.makes_due:
            await self._wakeup.notify(tx)
        return None if is_last else len(ids)


async def _next_ids(tx: Transaction, action: BulkAction, now: datetime) -> list[UUID]:
    """Return the next rows that match, of those that were there when the action began."""
    if isinstance(action.wanted, JobFilter):
        return await walks.next_jobs(
            tx, action.wanted, walks.Stretch(action.place, action.started_at, BATCH_SIZE), now=now
        )
    return await walks.next_connections(
        tx, action.wanted, walks.Stretch(action.place, action.started_at, BATCH_SIZE)
    )
