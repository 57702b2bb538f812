"""Claim due jobs for the connectors of this process."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from syncline.clock import monotonic
from syncline.engine.context import EngineContext
from syncline.store.errors import LostRace
from syncline.store.pool import SessionLease
from syncline.store.queue import claims
from syncline.store.queue.claims import ClaimRequest, Lease

LOST_RACES = 3  # after this many lost races in a row there counts as nothing to claim
BACKOFFS_A_TIME = 2000
END_BACKOFFS_EVERY_SECONDS, END_BACKOFFS_FOR_SECONDS = 0.1, 0.25


@dataclass(frozen=True, slots=True, eq=False)
class ClaimedBatch:
    """Jobs that were claimed together, not yet read."""

    rows: Sequence[Any]
    token: UUID
    asked_at: float  # by this process's clock; the lease counts from then
    poison_jobs: int
    is_full: bool  # as many as were asked for, so more may be due


class Claimer:
    """Takes due jobs from the queue, and lets jobs back in whose backoff has ended."""

    def __init__(self, context: EngineContext, providers: Sequence[str]) -> None:
        self._settings = context.settings.executor
        self._clock = context.clock
        self._telemetry = context.telemetry
        self._providers = providers
        self._backoffs_ended_at = 0.0  # when none was left to end

    async def claim(
        self, session: SessionLease, limit: int, *, with_poison_job: bool
    ) -> ClaimedBatch:
        """Claim due jobs, among them one poison job at most."""
        await self._end_backoffs(session)
        lease = Lease(uuid4(), self._clock.instant(), self._settings.lease)
        request = ClaimRequest(
            self._providers,
            limit,
            poison_jobs=1 if with_poison_job else 0,
            flight_by_type=self._settings.single_flight == "job_type",
        )
        asked_at = monotonic()
        rows: Sequence[Any] = ()
        for _ in range(LOST_RACES):
            with suppress(*LostRace), self._telemetry.claim():
                async with session() as tx:
                    rows = await claims.claim(tx, request, lease)
                break
        poison_jobs = claims.count_poison_jobs(rows)
        return ClaimedBatch(rows, lease.token, asked_at, poison_jobs, is_full=len(rows) >= limit)

    def forget_backoffs(self) -> None:
        """Let the next claim look for ended backoffs again, however soon it comes."""
        self._backoffs_ended_at = 0.0

    async def _end_backoffs(self, session: SessionLease) -> None:
        """Make jobs claimable that have waited long enough; after an outage there may be many."""
        began = monotonic()
        if began - self._backoffs_ended_at < END_BACKOFFS_EVERY_SECONDS:
            return
        ended = BACKOFFS_A_TIME
        while ended == BACKOFFS_A_TIME and monotonic() - began < END_BACKOFFS_FOR_SECONDS:
            async with session() as tx:
                ended = await claims.end_backoffs(
                    tx, self._providers, now=self._clock.instant(), limit=BACKOFFS_A_TIME
                )
        self._backoffs_ended_at = monotonic() if ended < BACKOFFS_A_TIME else 0.0
