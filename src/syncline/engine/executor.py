"""Claim due jobs into free slots, run them, and settle how they ended, many at a time."""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from uuid import uuid4

from syncline.clock import Clock, monotonic, pause
from syncline.engine.attempt import attempt
from syncline.engine.runs import Run, Runs
from syncline.engine.settlement import ACTIVE, Settlement, Settler
from syncline.errors import ContractError
from syncline.policy.outcome import (
    Cancelled,
    Ending,
    Failed,
    Raised,
    Released,
    Retry,
    Succeeded,
    Unrun,
)
from syncline.sdk.connector import Connector
from syncline.sdk.page import Page
from syncline.settings import ExecutorSettings
from syncline.store import claims
from syncline.store.claims import Claim, Lease
from syncline.store.pool import LostRace, Pool, is_passing
from syncline.telemetry import Telemetry

LARGEST_CLAIM = 1000
LARGEST_GROUP = 1000  # jobs settled together
LARGEST_GROUP_SIGNALS = 20_000
SETTLE_LANES = 2
LOST_RACES = 3  # so many lost races in a row read as "nothing to claim"
SETTLE_PAUSE_SECONDS = 0.5


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
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._connectors = connectors
        self._clock = clock
        self._settler = settler
        self._telemetry = telemetry
        self._limits = settings.page_limits
        self._ended: deque[Run] = deque()
        self._lanes: set[asyncio.Task[None]] = set()
        self._gives_up = False
        self.attempts = 0
        self.on_room: Callable[[], None] = lambda: None
        self.runs = Runs(self._queue_settlement, lambda: self.on_room())

    @property
    def free_slots(self) -> int:
        return self._settings.concurrency - len(self.runs)

    async def step(self) -> timedelta:
        """Fill the free slots, and return how long to wait unless a slot or a wake-up comes."""
        wanted = min(self.free_slots, LARGEST_CLAIM)
        claimed = await self.claim_and_start() if wanted else 0
        look_again = 0 < wanted == claimed and self.free_slots
        return timedelta(seconds=0 if look_again else self._settings.poll_interval_seconds)

    async def claim_and_start(self) -> int:
        """Return how many due jobs were claimed and started, in their order."""
        self._gives_up = False
        asked = monotonic()
        claimed = await self._claim(min(self.free_slots, LARGEST_CLAIM))
        for claim in claimed:
            self._start(claim, leased_since=asked)
        return len(claimed)

    async def drain(self, grace_seconds: float) -> bool:
        """Let running jobs end, then release the rest; return whether every row was settled."""
        if await self._settled_within(grace_seconds):
            return True
        for run in self.runs.unsettled():
            self.runs.interrupt(run)
        # The database may be away; then the rows are left to the reaper.
        clean = await self._settled_within(2 * SETTLE_PAUSE_SECONDS + 1)
        self._gives_up = not clean
        return clean

    async def _settled_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.runs.wait_until_settled()
        except TimeoutError:
            return False
        return True

    async def _claim(self, limit: int) -> list[Claim]:
        if limit <= 0 or not self._connectors:
            return []
        for _ in range(LOST_RACES):
            try:
                async with self._pool.transaction() as tx:
                    now = await self._clock.now(tx)
                    claimed = await claims.claim(
                        tx,
                        list(self._connectors),
                        limit=limit,
                        suspects=max(0, 1 - self.runs.suspects),
                        flight_by_type=self._settings.single_flight == "job_type",
                        lease=Lease(uuid4(), now, now + self._settings.lease),
                    )
            except LostRace:
                continue
            self._tell_claimed(claimed, now)
            return claimed
        return []

    def _tell_claimed(self, claimed: Sequence[Claim], now: datetime) -> None:
        delays: dict[str, list[timedelta]] = defaultdict(list)
        for claim in claimed:
            delays[claim.provider_slug].append(now - claim.due_at)
        for provider, waited in delays.items():
            self._telemetry.jobs_claimed(provider, waited)

    def _start(self, claim: Claim, *, leased_since: float) -> None:
        run = self.runs.add(claim, leased_since)
        if claim.connection_status != ACTIVE:
            self.runs.end(run, Unrun())
            return
        self.attempts += 1
        run.task = asyncio.get_running_loop().create_task(self._execute(run))
        run.task.add_done_callback(partial(self._take_ending, run))

    async def _execute(self, run: Run) -> Ending:
        """Return how the attempt ended; whatever a connector raises ends here."""
        claim = run.claim
        connector = self._connectors[claim.provider_slug]
        try:
            with self._telemetry.run(
                claim.id, claim.connection_id, claim.provider_slug, claim.job_type
            ):
                return await attempt(connector, claim, self._limits, run.threads)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return Raised(error)

    def _take_ending(self, run: Run, task: "asyncio.Task[Ending]") -> None:
        if task.cancelled():
            # Nobody here asked for it unless the run has its ending already.
            self.runs.end(run, Raised(ContractError("the connector cancelled itself")))
        else:
            self.runs.end(run, task.result())
        self.runs.free(run)

    def _queue_settlement(self, run: Run) -> None:
        self._ended.append(run)
        if len(self._lanes) < SETTLE_LANES:
            lane = asyncio.get_running_loop().create_task(self._settle_ended())
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)

    async def _settle_ended(self) -> None:
        """Settle what has ended, a group at a time, until nothing is left."""
        while group := self._take_group():
            settlements = [
                Settlement(run.claim, run.ending) for run in group if run.ending is not None
            ]
            try:
                await self._settle(settlements)
                self._tell_settled(group, settlements)
            finally:
                # Whatever went wrong, no slot is lost to it: an unsettled lease lapses.
                self.runs.settled(group)

    def _take_group(self) -> list[Run]:
        """Return runs of different connections, as many as go well into one transaction."""
        group: dict[object, Run] = {}
        put_back: list[Run] = []
        signals = 0
        while self._ended and len(group) < LARGEST_GROUP and signals < LARGEST_GROUP_SIGNALS:
            run = self._ended.popleft()
            if run.claim.connection_id in group:
                put_back.append(run)
                continue
            group[run.claim.connection_id] = run
            signals += run.ending.signal_count if isinstance(run.ending, Page) else 0
        self._ended.extendleft(reversed(put_back))
        return list(group.values())

    async def _settle(self, group: Sequence[Settlement]) -> None:
        """Settle a group however long the database is away; one bad row does not sink the rest."""
        while not self._gives_up:
            try:
                await self._settler.settle(group)
            except Exception as error:
                if not is_passing(error):
                    await self._settle_one_by_one(group, error)
                    return
                self._telemetry.loop_failed(
                    "settle", error, timedelta(seconds=SETTLE_PAUSE_SECONDS)
                )
                await pause(SETTLE_PAUSE_SECONDS)
            else:
                return

    async def _settle_one_by_one(self, group: Sequence[Settlement], error: Exception) -> None:
        if len(group) > 1:
            for one in group:
                await self._settle([one])
        elif isinstance(group[0].ending, Page):
            # The page itself cannot be stored; the job is told so and keeps its place.
            group[0].ending = Raised(ContractError(f"the page could not be stored: {error}"))
            await self._settle(group)
        else:
            self._telemetry.loop_failed("settle", error, timedelta())

    def _tell_settled(self, group: Sequence[Run], settlements: Sequence[Settlement]) -> None:
        """Tell what was written; attempts that succeeded are counted together."""
        succeeded: dict[str, list[timedelta]] = defaultdict(list)
        signals: Counter[str] = Counter()
        for run, one in zip(group, settlements, strict=True):
            provider, took = run.claim.provider_slug, timedelta(seconds=run.ended - run.began)
            if isinstance(one.outcome, Succeeded) and not one.is_fenced:
                succeeded[provider].append(took)
                signals[provider] += one.outcome.page.signal_count
            else:
                tell_unsuccessful(self._telemetry, one, took)
        for provider, durations in succeeded.items():
            self._telemetry.jobs_succeeded(provider, len(durations), signals[provider])
            self._telemetry.runs_finished(provider, "succeeded", durations)


def tell_unsuccessful(telemetry: Telemetry, one: Settlement, took: timedelta) -> None:
    """Tell of an attempt that brought nothing."""
    provider = one.claim.provider_slug
    if one.is_fenced:
        telemetry.job_fenced(provider)
        return
    match one.outcome:
        case Retry(error_class=error_class) | Failed(error_class=error_class):
            wait = one.wait
            telemetry.job_failed(
                provider,
                error_class,
                connection_id=one.claim.connection_id,
                job_id=one.claim.id,
                terminal=isinstance(one.outcome, Failed),
                wait=wait,
            )
            telemetry.run_finished(provider, "failed", took)
            if error_class == "RateLimited" and wait is not None:
                telemetry.rate_limited(provider, wait)
        case Released():
            telemetry.job_released(provider)
        case Cancelled():
            telemetry.job_cancelled(provider)
