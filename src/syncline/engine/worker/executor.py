"""Claim due jobs into free slots and run them; how they ended is settled in lanes."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from syncline.clock import Clock, monotonic
from syncline.engine.secrets.token_refresh import TokenRefresher
from syncline.engine.secrets.vault import trace_without_secrets, without_secrets
from syncline.engine.worker.attempt import Caller, PageChecker, attempt
from syncline.engine.worker.runs import Run, Runs, safe_seconds
from syncline.engine.worker.settle import ACTIVE, Settler
from syncline.engine.worker.settle_queue import SettleQueue
from syncline.engine.worker.streams import Streams
from syncline.errors import ContractError, SyncError, Transient
from syncline.policy.outcome import Ending, Interrupted, Raised, Unrun
from syncline.sdk.connector import Connector
from syncline.sdk.page import Page
from syncline.settings import ExecutorSettings
from syncline.store.pool import LostRace, Pool, SessionLease, is_passing, is_timeout
from syncline.store.queue import claims
from syncline.store.queue.claims import Claim, Lease
from syncline.telemetry.engine import Telemetry

SMALL_CLAIM, LARGEST_CLAIM = 25, 2000
RELEASE_SECONDS = 3  # what a slow database is given, after the grace, to take the rows back
MOST_UNSETTLED = 2  # claimed and not yet settled, as a multiple of the slots
MOST_HELD_BYTES = 256_000_000  # of pages whose rows somebody else holds
BACKOFFS_A_TIME = 2000
END_BACKOFFS_EVERY_SECONDS, END_BACKOFFS_FOR_SECONDS = 0.1, 0.25
LOST_RACES = 3  # so many lost races in a row read as "nothing to claim"


@dataclass(frozen=True, slots=True)
class ClaimedBatch:
    """Claimed jobs in hand, not yet read."""

    rows: Sequence[Any]
    token: UUID
    asked: float  # when, by this process's clock: the lease holds from then
    poison_jobs: int
    is_full: bool  # so many as were asked for, so there may be more


class Executor:
    """Runs jobs; any number of processes may do so at once."""

    def __init__(
        self,
        pool: Pool,
        settings: ExecutorSettings,
        connectors: Mapping[str, Connector],
        clock: Clock,
        settler: Settler,
        telemetry: Telemetry,
        token_refresher: TokenRefresher,
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._connectors = connectors
        self._clock = clock
        self._telemetry = telemetry
        self._token_refresher = token_refresher
        self._checker = PageChecker(settings.page_limits)
        self._safe_seconds = safe_seconds(settings.lease_seconds)
        self._callers = {slug: Caller.of(one) for slug, one in connectors.items()}
        self._is_traced = False
        self._promised = self._promised_poison_jobs = 0  # slots of claims that are on their way
        self._reading_large = asyncio.Lock()
        self._backoffs_ended = 0.0  # when nothing was left of them
        self.attempts = 0
        self.on_room: Callable[[], None] = lambda: None
        self.is_claiming = True
        self.runs = Runs(lambda run: self._settle_queue.take(run), lambda: self.on_room())
        self._settle_queue = SettleQueue(settler, self.runs, telemetry, settings.lease_seconds)
        self._streams = Streams(pool, settings, clock, self.runs, self._checker, telemetry)

    @property
    def settle_trouble(self) -> str | None:
        """Why what has ended cannot be settled just now; None where it can."""
        return self._settle_queue.trouble

    @property
    def free_slots(self) -> int:
        """How many more connectors may be at work; fewer where settling does not keep up."""
        most, runs = self._settings.concurrency, self.runs
        # What waits for somebody else's lock is not behind, and holds nobody up while it is small.
        behind = len(runs) - (runs.held if runs.held_bytes <= MOST_HELD_BYTES else 0)
        return min(most - runs.slots_taken, MOST_UNSETTLED * most - behind)

    async def step(self) -> timedelta:
        """Fill the free slots, and return how long to wait unless a slot or a wake-up comes.

        While there is more due than there are slots, the next claim is sent before what the last
        one brought is read and begun: the database and this process then work at the same time.
        It is sent at once, without another task and in the same session: each wait for the event
        loop's next round may last a millisecond, while a hundred runs end in it.
        """
        self.is_claiming = True
        self._promised = self._promised_poison_jobs = 0  # a step before may have been cut short
        pause = timedelta(seconds=self._settings.poll_interval_seconds)
        if not self._wanted():
            return pause
        begin = asyncio.get_running_loop().create_task
        starting: asyncio.Task[None] | None = None
        try:
            async with self._pool.session() as lend:
                batch = await self._take(lend)
                starting = begin(self._start(batch))
                while batch.is_full and self.is_claiming and self._wanted() > 0:
                    batch = await self._take(lend)
                    await starting
                    starting = begin(self._start(batch))
        finally:
            if starting is not None:
                await starting
        return timedelta() if batch.is_full else pause

    async def claim_and_start(self) -> int:
        """Return how many due jobs were claimed and started, in their order."""
        if not self._wanted():
            return 0
        self._backoffs_ended = 0.0  # a fresh look misses nothing
        async with self._pool.session() as lend:
            batch = await self._take(lend)
        await self._start(batch)
        return len(batch.rows)

    async def drain(self, grace_seconds: float) -> bool:
        """Let running jobs end, then release the rest; return whether every row was settled."""
        self.runs.is_draining = True
        if await self._settled_within(grace_seconds):
            return True
        for run in self.runs.unsettled():
            self.runs.stop(run, Interrupted())
        # The database may be away; then the rows are left to the reaper.
        clean = await self._settled_within(RELEASE_SECONDS)
        self._settle_queue.gives_up = not clean
        return clean

    async def _settled_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.runs.wait_until_settled()
        except TimeoutError:
            return False
        return True

    def _wanted(self) -> int:
        """Return how many jobs to claim: no more than there are free slots, and few enough that
        the slots are not all waiting for one claim. What is claimed together tends to end so."""
        if not self._connectors:
            return 0
        slots = self._settings.concurrency
        share = slots // (4 if slots >= 4 * LARGEST_CLAIM else 8)
        return max(0, min(self.free_slots - self._promised, max(share, SMALL_CLAIM), LARGEST_CLAIM))

    async def _take(self, lend: SessionLease) -> ClaimedBatch:
        """Claim due jobs into slots that are theirs from now."""
        wanted = self._wanted()
        self._settle_queue.gives_up = self.runs.is_draining = False
        self._is_traced = self._telemetry.is_traced()
        rows: Sequence[Any] = ()
        await self._end_backoffs(lend)
        lease = Lease(uuid4(), self._clock.instant(), self._settings.lease)
        asked = monotonic()
        self._promised += wanted
        try:
            rows = await self._claim(lend, wanted, lease)
        finally:
            self._promised -= wanted - len(rows)
        poison_jobs = claims.count_poison_jobs(rows)
        self._promised_poison_jobs += poison_jobs
        return ClaimedBatch(rows, lease.token, asked, poison_jobs, is_full=len(rows) >= wanted)

    async def _end_backoffs(self, lend: SessionLease) -> None:
        """Let what waited long enough be claimed; after an outage that may be very many."""
        began = monotonic()
        if began - self._backoffs_ended < END_BACKOFFS_EVERY_SECONDS:
            return
        ended = BACKOFFS_A_TIME
        while ended == BACKOFFS_A_TIME and monotonic() - began < END_BACKOFFS_FOR_SECONDS:
            async with lend() as tx:
                ended = await claims.end_backoffs(
                    tx, list(self._connectors), now=self._clock.instant(), limit=BACKOFFS_A_TIME
                )
        self._backoffs_ended = monotonic() if ended < BACKOFFS_A_TIME else 0.0

    async def _claim(self, lend: SessionLease, wanted: int, lease: Lease) -> Sequence[Any]:
        for _ in range(LOST_RACES):
            poison_jobs = self.runs.poison_jobs + self._promised_poison_jobs
            with suppress(*LostRace), self._telemetry.claim():
                async with lend() as tx:
                    return await claims.claim(
                        tx,
                        list(self._connectors),
                        limit=wanted,
                        poison_jobs=0 if poison_jobs else 1,
                        flight_by_type=self._settings.single_flight == "job_type",
                        lease=lease,
                    )
        return ()

    async def _start(self, batch: ClaimedBatch) -> None:
        claimed = claims.read_claims(batch.rows, batch.token)
        await self._token_refresher.attach(claimed)
        self._tell_claimed(claimed)
        self._promised -= len(claimed)
        self._promised_poison_jobs -= batch.poison_jobs
        for claim in claimed:
            self._begin(self.runs.add(claim, leased_since=batch.asked))

    def _tell_claimed(self, claimed: Sequence[Claim]) -> None:
        due: dict[str, list[float]] = defaultdict(list)
        late: dict[str, list[float]] = defaultdict(list)
        for claim in claimed:
            due[claim.provider_slug].append(claim.seconds_due)
            if claim.seconds_late is not None:
                late[claim.provider_slug].append(claim.seconds_late)
        for provider, seconds in due.items():
            self._telemetry.jobs_claimed(provider, seconds)
        for provider, seconds in late.items():
            self._telemetry.jobs_late(provider, seconds)

    def _begin(self, run: Run) -> None:
        if run.claim.connection_status != ACTIVE:
            self.runs.end(run, Unrun())
            return
        self.attempts += 1
        self.runs.begin(run, asyncio.get_running_loop().create_task(self._execute(run)))

    async def _execute(self, run: Run) -> None:
        """Run the connector and take note of how that ended; whatever it raises ends here."""
        ending: Ending
        try:
            ending = await (self._attempt_traced if self._is_traced else self._attempt)(run)
        except asyncio.CancelledError:
            # Nobody here asked for it unless the run has its ending already.
            ending = Raised(ContractError("the connector cancelled itself"))
        except BaseException as error:
            if not isinstance(error, SyncError | ContractError):  # these say all by themselves
                self._show(error, run.claim)
            ending = Raised(without_secrets(error, run.claim.credentials))
        self.runs.end(run, ending)
        self.runs.leave(run)

    def _show(self, error: BaseException, claim: Claim) -> None:
        """Log where a connector raised what it should not have."""
        shown = trace_without_secrets(error, claim.credentials)
        self._telemetry.connector_raised(
            claim.provider_slug, claim.connection_id, type(error).__name__, shown
        )

    async def _attempt_traced(self, run: Run) -> Ending:
        claim = run.claim
        with self._telemetry.run(
            claim.id, claim.connection_id, claim.provider_slug, claim.job_type
        ):
            return await self._attempt(run)

    async def _attempt(self, run: Run) -> Ending:
        if run.before is not None:
            await self.runs.wait_until_stopped(run.before)
        caller = self._callers[run.claim.provider_slug]
        if run.claim.is_large and (ending := await self._read_large(run)):
            return ending
        if monotonic() - run.lease_confirmed >= self._safe_seconds:
            return Interrupted()  # the claim's answer took too long: another may have the job
        result = await attempt(caller, run, self._checker, self._token_refresher)
        return result if isinstance(result, Page) else await self._streams.follow(run, result)

    async def _read_large(self, run: Run) -> Interrupted | None:
        """Read the connection that was too large to come with its claim; return how the run ends,
        or None where it goes on. One at a time: a slow link is everybody's."""
        run.page_began = math.inf  # the connector has not been called yet
        try:
            async with self._reading_large, self._pool.transaction() as tx:
                most = self._settings.max_run_seconds
                await claims.read_large(tx, run.claim, at_most_seconds=most)
        except Exception as error:
            if is_passing(error) and not is_timeout(error):
                return Interrupted()  # the database is away
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            raise Transient(f"config and metadata could not be read: {reason}") from None
        run.page_began = monotonic()
        return None
