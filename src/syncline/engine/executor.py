"""Claim due jobs into free slots and run them; how they ended is settled in lanes."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from uuid import uuid4

from syncline.clock import Clock, monotonic
from syncline.engine.attempt import Caller, attempt
from syncline.engine.lanes import Lanes
from syncline.engine.renewal import Renewals
from syncline.engine.runs import Run, Runs
from syncline.engine.settlement import ACTIVE, Settler
from syncline.engine.streams import Streams
from syncline.engine.vault import without_secrets
from syncline.errors import ContractError
from syncline.policy.outcome import Ending, Raised, Unrun
from syncline.sdk.connector import Connector
from syncline.sdk.page import Page
from syncline.settings import ExecutorSettings
from syncline.store import claims
from syncline.store.claims import Claim, Lease
from syncline.store.pool import LostRace, Pool
from syncline.telemetry import Telemetry

LARGEST_CLAIM = 1000
RELEASE_SECONDS = 3  # what a slow database is given, after the grace, to take the rows back
MOST_UNSETTLED = 2  # claimed and not yet settled, as a multiple of the slots
LOST_RACES = 3  # so many lost races in a row read as "nothing to claim"


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
        renewals: Renewals,
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._connectors = connectors
        self._clock = clock
        self._telemetry = telemetry
        self._renewals = renewals
        self._limits = settings.page_limits
        self._callers = {slug: Caller.of(one) for slug, one in connectors.items()}
        self._is_traced = False
        self.attempts = 0
        self.on_room: Callable[[], None] = lambda: None
        self.is_claiming = True
        self.runs = Runs(lambda run: self._lanes.take(run), lambda: self.on_room())
        self._lanes = Lanes(settler, self.runs.settled, telemetry)
        self._streams = Streams(pool, settings, clock, self.runs, telemetry)

    @property
    def free_slots(self) -> int:
        """How many more connectors may be at work; fewer where settling does not keep up."""
        most = self._settings.concurrency
        return min(most - self.runs.slots_taken, MOST_UNSETTLED * most - len(self.runs))

    async def step(self) -> timedelta:
        """Fill the free slots, and return how long to wait unless a slot or a wake-up comes.

        While more is due the next claim is sent before the jobs of the last one begin: the
        database and this process then work at the same time.
        """
        self.is_claiming = True
        is_more_due = True
        while is_more_due and self.free_slots > 0 and self.is_claiming:
            wanted = min(self.free_slots, LARGEST_CLAIM)
            is_more_due = await self.claim_and_start() >= wanted
        return timedelta(seconds=self._settings.poll_interval_seconds)

    async def claim_and_start(self) -> int:
        """Return how many due jobs were claimed and started, in their order."""
        wanted = min(self.free_slots, LARGEST_CLAIM)
        if wanted <= 0 or not self._connectors:
            return 0
        self._lanes.gives_up = self.runs.is_draining = False
        self._is_traced = self._telemetry.is_traced()
        asked = monotonic()
        with self._telemetry.claim():  # what is started below does not belong to it
            claimed = await self._claim(wanted)
        for claim in claimed:
            self._start(claim, leased_since=asked)
        return len(claimed)

    async def drain(self, grace_seconds: float) -> bool:
        """Let running jobs end, then release the rest; return whether every row was settled."""
        self.runs.is_draining = True
        if await self._settled_within(grace_seconds):
            return True
        for run in self.runs.unsettled():
            self.runs.interrupt(run)
        # The database may be away; then the rows are left to the reaper.
        clean = await self._settled_within(RELEASE_SECONDS)
        self._lanes.gives_up = not clean
        return clean

    async def _settled_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.runs.wait_until_settled()
        except TimeoutError:
            return False
        return True

    async def _claim(self, limit: int) -> list[Claim]:
        for _ in range(LOST_RACES):
            try:
                async with self._pool.statement() as tx:
                    claimed = await claims.claim(
                        tx,
                        list(self._connectors),
                        limit=limit,
                        suspects=max(0, 1 - self.runs.suspects),
                        flight_by_type=self._settings.single_flight == "job_type",
                        lease=Lease(uuid4(), self._clock.instant(), self._settings.lease),
                    )
            except LostRace:
                continue
            await self._renewals.attach(claimed)
            self._tell_claimed(claimed)
            return claimed
        return []

    def _tell_claimed(self, claimed: Sequence[Claim]) -> None:
        delays: dict[str, list[timedelta]] = defaultdict(list)
        lateness: dict[str, list[timedelta]] = defaultdict(list)
        for claim in claimed:
            delays[claim.provider_slug].append(claim.started_at - claim.due_at)
            if claim.slot_at is not None:
                lateness[claim.provider_slug].append(claim.started_at - claim.slot_at)
        for provider, waited in delays.items():
            self._telemetry.jobs_claimed(provider, waited)
        for provider, late in lateness.items():
            self._telemetry.jobs_late(provider, late)

    def _start(self, claim: Claim, *, leased_since: float) -> None:
        run = self.runs.add(claim, leased_since)
        if claim.connection_status != ACTIVE:
            run.is_over = True
            self.runs.end(run, Unrun())
            self.runs.free(run)
            return
        self.attempts += 1
        run.task = asyncio.get_running_loop().create_task(self._execute(run))

    async def _execute(self, run: Run) -> None:
        """Run the connector and take note of how that ended; whatever it raises ends here."""
        ending: Ending
        try:
            ending = await (self._attempt_traced if self._is_traced else self._attempt)(run)
        except asyncio.CancelledError:
            # Nobody here asked for it unless the run has its ending already.
            ending = Raised(ContractError("the connector cancelled itself"))
        except BaseException as error:
            ending = Raised(without_secrets(error, run.claim.credentials))
        run.is_over = True
        self.runs.end(run, ending)
        self.runs.free(run)

    async def _attempt_traced(self, run: Run) -> Ending:
        claim = run.claim
        with self._telemetry.run(
            claim.id, claim.connection_id, claim.provider_slug, claim.job_type
        ):
            return await self._attempt(run)

    async def _attempt(self, run: Run) -> Ending:
        caller = self._callers[run.claim.provider_slug]
        result = await attempt(caller, run, self._limits, self._renewals)
        return result if isinstance(result, Page) else await self._streams.follow(run, result)
