"""Streams: a connector yields pages, and each is committed before the next is requested.

A page commits in one transaction with its signals and its cursor, which also becomes the job's
own. Whatever ends the run, the earlier pages are kept, and the next attempt continues after them.

A database may lose its last commits: a standby that lagged is promoted, or the server crashes with
asynchronous commit. So each page commits only on top of the one before it. If that one is gone,
the run ends, and the next attempt starts from what is stored.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from syncline.clock import monotonic, new_id, pause
from syncline.engine.context import EngineContext
from syncline.engine.worker.attempt import PageChecker, PageStream
from syncline.engine.worker.runs import Run, Runs
from syncline.engine.worker.settle import ACTIVE, overwrites_cursor
from syncline.engine.worker.settle_retry import SettleRetry, describe_refusal
from syncline.errors import ContractError
from syncline.policy.outcome import Interrupted
from syncline.sdk.page import Page
from syncline.store.data import connections, signals
from syncline.store.data.connections import LockedConnection, Progress
from syncline.store.errors import RowHeld, is_held
from syncline.store.pool import Transaction
from syncline.store.queue import jobs, streams
from syncline.store.queue.claims import Claim
from syncline.store.queue.streams import NewPage


class Streams:
    """Takes pages from connectors that stream, no faster than they can be committed."""

    def __init__(self, context: EngineContext, runs: Runs, checker: PageChecker) -> None:
        self._pool = context.pool
        self._settings = context.settings.executor
        self._clock = context.clock
        self._telemetry = context.telemetry
        self._runs = runs
        self._checker = checker

    async def follow(self, run: Run, stream: PageStream) -> Page | Interrupted:
        """Commit page after page; return what is left to settle.

        After the last page only its follow-up is left, if it has more.
        """
        rest, cursor, found = Page(), stream.cursor, False
        async with _closing(stream.results) as results:
            async for result in results:
                page = await self._checker.check(result, cursor, run)
                run.largest_page = max(run.largest_page, page.payload_bytes)
                ending = await self._keep(run, page)
                if ending is not None:
                    return ending
                rest = Page(next_cursor=page.next_cursor, has_more=page.has_more)
                found = found or not page.is_empty
                if page.next_cursor is not None:
                    # Read from its text, because the connector may still change its own object.
                    cursor = json.loads(page.next_cursor)
                del result, page  # free the memory before the next page
        if rest.has_more:
            return rest
        return StreamEnd() if found else Page()

    async def _keep(self, run: Run, page: Page) -> Page | Interrupted | None:
        """Commit a page of a run; return how the run ends, or None if it continues."""
        if run.ending is not None:
            return Interrupted()  # it was told to stop, and continued
        run.is_committing = True
        try:
            commit = await self._commit(run, page)
        finally:
            self._runs.take_slot_back(run)
            run.is_committing = False
            run.page_began = monotonic()
        provider = run.claim.provider_slug
        match commit:
            case Refusal.FENCED:
                self._runs.abandon(run)
                self._telemetry.job_fenced(provider)
                return Interrupted()
            case Refusal.PAGES_LOST:
                self._telemetry.pages_lost(provider, run.claim.connection_id, run.claim.id)
                return Interrupted()
            case Committed(connection_status, cursor_was_moved):
                self._telemetry.page_committed(provider, signals=page.signal_count)
                if cursor_was_moved:
                    return Page(has_more=True)  # a follow-up starts at the cursor that was set
                goes_on = connection_status == ACTIVE and not self._runs.is_draining
                return None if goes_on else Interrupted()

    async def _commit(self, run: Run, page: Page) -> "Committed | Refusal":
        """Commit a page, however long the database is away."""
        ids = new_id.many(page.signal_count)
        is_repeated = False
        retry = SettleRetry(self._settings.lease_seconds)
        while True:
            asked = monotonic()
            try:
                async with self._pool.transaction() as tx:
                    commit = await self._advance(tx, run, page, ids, is_repeated=is_repeated)
            except Exception as error:
                if retry.must_end(error, server_answered_at=self._pool.answered_at):
                    raise ContractError(describe_refusal(error)) from None
                if is_held(error) or isinstance(error, RowHeld):
                    self._runs.lend_slot(run)
                wait = retry.next_pause_seconds()
                self._telemetry.loop_failed("settle", error, timedelta(seconds=wait))
            else:
                if isinstance(commit, Committed):
                    run.lease_confirmed = asked
                    run.record_page(commit.progress, page)
                return commit
            is_repeated = True
            await pause(wait)

    async def _advance(
        self, tx: Transaction, run: Run, page: Page, ids: Sequence[UUID], *, is_repeated: bool
    ) -> "Committed | Refusal":
        """Store a page with its cursor, on top of the page that this run committed before it.

        A commit whose answer was lost is repeated, and must not store its signals twice: the job's
        count of pages tells whether the first one came through.
        """
        claim, before = run.claim, run.committed_pages
        connection = await _lock_connection(tx, claim, is_repeated=is_repeated)
        if connection is None:
            return Refusal.FENCED
        now = self._clock.instant()
        new_page = NewPage(claim.id, claim.lease_token, page.next_cursor, before)
        advanced = await streams.advance(tx, [new_page], now=now, lease=self._settings.lease)
        if claim.id not in advanced:
            found = await streams.read_progress(tx, claim.id, claim.lease_token)
            if found is None:
                return Refusal.FENCED
            if is_repeated and found.committed_pages == before + 1:
                return Committed(connection.status, False, found)
            return Refusal.PAGES_LOST
        if ids:
            columns = signals.Columns()
            columns.add(claim, page, ids)
            await signals.insert(tx, columns)
        moved: set[UUID] = set()
        if page.next_cursor is not None:
            progress = Progress(
                claim.connection_id,
                page.next_cursor,
                replaces=claim.stored_cursor,
                overwrites=overwrites_cursor(claim, self._settings),
            )
            moved = await connections.save_progress(tx, [progress], now=now)
            if moved:
                # Whatever becomes of this run, the next one starts at the cursor that was set.
                await jobs.forget_cursors(tx, claim.connection_id)
        return Committed(connection.status, bool(moved), advanced[claim.id])


async def _lock_connection(
    tx: Transaction, claim: Claim, *, is_repeated: bool
) -> LockedConnection | None:
    """Lock a claim's connection, or raise RowHeld; in a repetition, also if the job is held.

    None means that the connection was deleted.
    """
    locked, blocked = await connections.lock_free(tx, [claim.connection_id])
    if is_repeated:  # the held row may be the job's: do not wait for it again
        blocked |= await jobs.lock_free(tx, [claim.id])
    if blocked:
        raise RowHeld(f"another transaction holds connection {claim.connection_id} or its job")
    return locked.get(claim.connection_id)


class StreamEnd(Page):
    """The end of a stream whose pages are stored: nothing is left, and yet it was not empty."""

    __slots__ = ()

    @property
    def is_empty(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Committed:
    """A page was committed: the state of its connection and its job."""

    connection_status: str
    cursor_was_moved: bool  # by a person or another run, meanwhile; theirs stays
    progress: streams.Progress


class Refusal(Enum):
    """Why a page was not committed."""

    FENCED = "the job is no longer ours"
    PAGES_LOST = "the database has lost pages that were committed before"


@asynccontextmanager
async def _closing(results: AsyncIterator[Any]) -> AsyncIterator[AsyncIterator[Any]]:
    """Close the connector's iterator at the end, so that its own clean-up runs."""
    try:
        yield results
    finally:
        close = getattr(results, "aclose", None)
        if close is not None:
            await close()
