"""Streams: a connector that yields pages; each is committed before it is asked for the next.

A page commits in one transaction with its signals and its cursor, which becomes the job's own as
well. Whatever ends the run, the pages before are kept, and the next attempt goes on after them.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from syncline.clock import Clock, monotonic, new_id, pause
from syncline.engine.attempt import PageStream, check_page
from syncline.engine.lanes import SETTLE_PAUSE_SECONDS
from syncline.engine.runs import Run, Runs
from syncline.engine.settlement import ACTIVE
from syncline.errors import ContractError
from syncline.policy.outcome import Interrupted
from syncline.sdk.page import Page
from syncline.settings import ExecutorSettings
from syncline.store import connections, jobs, signals
from syncline.store.claims import Claim
from syncline.store.pool import Pool, Transaction, expect, is_passing
from syncline.telemetry import Telemetry


class Streams:
    """Takes pages from connectors that stream, no faster than they can be committed."""

    def __init__(
        self,
        pool: Pool,
        settings: ExecutorSettings,
        clock: Clock,
        runs: Runs,
        telemetry: Telemetry,
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._limits = settings.page_limits
        self._clock = clock
        self._runs = runs
        self._telemetry = telemetry

    async def follow(self, run: Run, stream: PageStream) -> Page | Interrupted:
        """Commit page after page; return what is left to settle.

        After the last page that is nothing but its follow-up, where it has more.
        """
        rest, cursor = Page(), stream.cursor
        async with _closing(stream.results) as results:
            async for result in results:
                page = await check_page(result, cursor, self._limits, run.threads)
                if not await self._keep(run, page):
                    return Interrupted()
                rest = Page(next_cursor=page.next_cursor, has_more=page.has_more)
                if page.next_cursor is not None:
                    # Read again from its text: the connector may go on changing its own object.
                    cursor = json.loads(page.next_cursor)
                del result, page  # the connector needs the room for the next one
        return rest if rest.has_more else Page()

    async def _keep(self, run: Run, page: Page) -> bool:
        """Commit a page of a run; return whether the run goes on."""
        if run.ending is not None:
            return False  # it was told to stop, and did not listen
        run.is_committing = True
        try:
            connection_status = await self._commit(run, page)
        finally:
            run.is_committing = False
            run.page_began = monotonic()
        if connection_status is None:
            self._runs.abandon(run)
            self._telemetry.job_fenced(run.claim.provider_slug)
            return False
        self._telemetry.page_committed(run.claim.provider_slug, signals=page.signal_count)
        return connection_status == ACTIVE and not self._runs.is_draining

    async def _commit(self, run: Run, page: Page) -> str | None:
        """Commit a page, however long the database is away.

        Return the connection's status, or None where the job was no longer ours.
        """
        ids = [new_id() for _ in range(page.signal_count)]
        is_repeated = False
        while True:
            asked = monotonic()
            try:
                async with self._pool.transaction() as tx:
                    kept = await self._advance(tx, run.claim, page, ids, is_repeated=is_repeated)
            except Exception as error:
                if not is_passing(error):
                    raise ContractError(f"the page could not be stored: {error}") from None
                wait = timedelta(seconds=SETTLE_PAUSE_SECONDS)
                self._telemetry.loop_failed("settle", error, wait)
            else:
                if kept is None:
                    return None
                run.lease_confirmed = asked
                run.claim.attempts, run.claim.lapses = kept.attempts, kept.lapses
                return kept.connection_status
            is_repeated = True
            await pause(SETTLE_PAUSE_SECONDS)

    async def _advance(
        self, tx: Transaction, claim: Claim, page: Page, ids: Sequence[UUID], *, is_repeated: bool
    ) -> "Kept | None":
        """Store a page with its cursor; None where the job was no longer ours.

        A commit whose answer was lost is repeated, and must not double what it stored: the ids of
        the signals tell.
        """
        locked = await connections.lock(tx, [claim.connection_id])
        now = await self._clock.now(tx)
        held = await jobs.advance(
            tx,
            [(claim.id, claim.lease_token, page.next_cursor)],
            lease_expires_at=now + self._settings.lease,
        )
        if claim.id not in held:
            return None
        if ids and not (is_repeated and await signals.are_stored(tx, ids)):
            columns = signals.Columns()
            columns.add(claim, page, ids)
            await signals.insert(tx, columns)
        if page.next_cursor is not None:
            progress = [(claim.connection_id, page.next_cursor, None)]
            expect(await connections.save_progress(tx, progress, now=now), 1, "progress")
        attempts, lapses = held[claim.id]
        return Kept(locked[claim.connection_id].status, attempts, lapses)


@dataclass(frozen=True, slots=True)
class Kept:
    """How a page that was committed left its connection and its job."""

    connection_status: str
    attempts: int
    lapses: int


@asynccontextmanager
async def _closing(results: AsyncIterator[Any]) -> AsyncIterator[AsyncIterator[Any]]:
    """Lend a connector's pages; its own clean-up runs at the end, whatever ended it."""
    try:
        yield results
    finally:
        close = getattr(results, "aclose", None)
        if close is not None:
            await close()
