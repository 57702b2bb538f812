"""The path of a job in this process: claim it, attempt it, settle it."""

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from datetime import timedelta

from syncline.clock import monotonic, pause
from syncline.engine.context import EngineContext
from syncline.engine.secrets.token_refresh import TokenRefresher
from syncline.engine.secrets.vault import trace_without_secrets, without_secrets
from syncline.engine.worker.attempt import Caller, PageChecker, attempt
from syncline.engine.worker.claimer import ClaimedBatch, Claimer
from syncline.engine.worker.gatekeeper import Gatekeeper
from syncline.engine.worker.reports import keep_trace
from syncline.engine.worker.runs import Run, Runs, safe_seconds
from syncline.engine.worker.settle import ACTIVE
from syncline.engine.worker.share_book import ShareBook
from syncline.engine.worker.slots import Slots, make_slots
from syncline.engine.worker.streams import Streams
from syncline.errors import ContractError, SyncError, Transient
from syncline.http.budgets import Spender
from syncline.policy.concurrency import unsettled_room
from syncline.policy.outcome import Ending, Interrupted, Raised, Unrun
from syncline.sdk.connector import Connector
from syncline.sdk.page import Page
from syncline.store.errors import is_passing, is_timeout
from syncline.store.pool import SessionLease
from syncline.store.queue import claims
from syncline.store.queue.claims import Claim

SMALL_CLAIM, LARGEST_CLAIM = 25, 2000
RELEASE_SECONDS = 3  # after the grace, a slow database gets this long to take the rows back
STARTED_IN_A_ROW = 100  # then answers of the database get a turn of the event loop
LONG = timedelta(seconds=1)


class Executor:
    """Runs jobs; any number of processes may do so at once."""

    def __init__(
        self,
        context: EngineContext,
        connectors: Mapping[str, Connector],
        token_refresher: TokenRefresher,
        runs: Runs,
        gatekeeper: Gatekeeper,
    ) -> None:
        self._pool = context.pool
        self._settings = context.settings.executor
        self._telemetry = context.telemetry
        self._token_refresher = token_refresher
        self._gatekeeper = gatekeeper
        self._calls = gatekeeper.budgets.calls
        self._settle_queue = runs.settle_queue
        self._runs = runs
        self._callers = {slug: Caller.of(one) for slug, one in connectors.items()}
        self.slots = make_slots(
            self._callers, self._settings.concurrency, self._settings.max_run_seconds
        )
        book = ShareBook(context)
        self._claimers = {slots: Claimer(context, slots, gatekeeper, book) for slots in self.slots}
        self._checker = PageChecker(self._settings.page_limits)
        self._streams = Streams(context, runs, self._checker)
        self._safe_seconds = safe_seconds(self._settings.lease_seconds)
        self._unstarted: list[ClaimedBatch] = []  # claimed jobs that are not runs yet
        self._reading_large = asyncio.Lock()
        self._is_traced = False
        self._is_claiming = True
        self.attempts = 0

    async def step(self) -> timedelta:
        """Fill the free slots, and return how long to wait unless a slot is freed sooner.

        While more jobs are due than there are slots, the next claim is sent before the last one is
        read and started: the database and this process then work at the same time. It is sent from
        here and in the same session. Each turn of the event loop may last a millisecond, in which
        a hundred runs end.
        """
        usual = timedelta(seconds=self._settings.poll_interval_seconds)
        asking = self._choose_slots()
        if not asking:
            return usual
        begin = asyncio.get_running_loop().create_task
        turns, starting = deque(asking), list[asyncio.Task[None]]()
        try:
            async with self._pool.session() as session:
                while (slots := self._next_turn(turns)) is not None:
                    batch = await self._claim(session, slots)
                    await asyncio.gather(*starting)
                    starting = [begin(self._start(batch))]
                    turns += [slots] if slots.is_more_due and self._wanted(slots) else []
        finally:
            await asyncio.gather(*starting)
        return timedelta() if any(slots.is_more_due for slots in asking) else usual

    async def claim_and_start(self) -> int:
        """Claim due jobs once, start them in their order, and return how many there were."""
        batches = []
        for slots in self.slots:
            if self._wanted(slots):
                self._claimers[slots].look_again()
                async with self._pool.session() as session:
                    batches.append(await self._claim(session, slots))
                await self._start(batches[-1])
        return sum(len(batch.rows) for batch in batches)

    async def walk(self) -> timedelta:
        """Find out whose jobs stand where in the queue, beside the claims."""
        return min([await claimer.walk() for claimer in self._claimers.values()], default=LONG)

    def _choose_slots(self) -> list[Slots]:
        """Return the slots to claim jobs for.

        If runs ended, those of their kind only: the others have nothing new. They are asked for
        at the usual pace, and whenever something else ends the pause, such as a notification.
        """
        changed = [slots for slots in self.slots if slots.is_changed]
        long_ago = monotonic() - self._settings.poll_interval_seconds
        chosen = [one for one in self.slots if one.is_changed or one.asked <= long_ago]
        return [slots for slots in (chosen if changed else self.slots) if self._wanted(slots)]

    def _next_turn(self, turns: deque[Slots]) -> Slots | None:
        """Return the next slots that jobs are wanted for; a stop may have come meanwhile."""
        while turns:
            slots = turns.popleft()
            if self._wanted(slots):
                return slots
        return None

    async def _claim(self, session: SessionLease, slots: Slots) -> ClaimedBatch:
        """Claim due jobs, reserve a slot for each, and decide how many slots there are."""
        self._runs.resume()
        self._settle_queue.resume()
        self._is_traced = self._telemetry.is_traced()
        poison_jobs = self._runs.poison_jobs + sum(one.poison_jobs for one in self._unstarted)
        slots.begin_claim()
        asyncio.get_running_loop().call_soon(slots.record_turn, slots.asked)
        batch = await self._claimers[slots].claim(
            session, self._wanted(slots), with_poison_job=not poison_jobs
        )
        self._unstarted.append(batch)
        fills = batch.is_full and not batch.is_part
        slots.end_claim(is_full=fills, seconds=monotonic() - batch.asked_at)
        slots.is_more_due = batch.is_full
        self._telemetry.slots_counted(self.limit)
        return batch

    async def _start(self, batch: ClaimedBatch) -> None:
        """Read a claimed batch and start a run for each job."""
        try:
            claimed = claims.read_claims(batch.rows, batch.token)
            await self._token_refresher.attach(claimed)
        finally:
            self._unstarted = [other for other in self._unstarted if other is not batch]
        self._record_claimed(claimed)
        runs = [self._runs.add(claim, batch.asked_at, batch.slots) for claim in claimed]
        for number, run in enumerate(runs, 1):
            self._runs.begin(run, self._run_job(run))
            if number % STARTED_IN_A_ROW == 0:
                await pause(0)

    async def _run_job(self, run: Run) -> None:
        """Attempt a claimed job, then settle its outcome. No error leaves this method."""
        ending: Ending
        try:
            ending = await (self._attempt_traced if self._is_traced else self._attempt)(run)
        except asyncio.CancelledError as error:
            # If the run has no ending yet, this process did not cancel it.
            ending = Raised(ContractError("the connector cancelled itself"))
            if run.ending is None or isinstance(run.ending, Raised):
                keep_trace(run, error)  # it took too long, and this is where it was
        except BaseException as error:
            self._log_unexpected(error, run.claim)
            keep_trace(run, error)
            ending = Raised(without_secrets(error, run.claim.credentials))
        self._count_calls(run, ending)
        if run.end(ending):  # else it was told to stop, and is settled once it has stopped
            self._settle_queue.put(run)
        self._runs.leave(run)

    async def _attempt(self, run: Run) -> Ending:
        """Call the connector, and return its page or why there is none."""
        if run.claim.connection_status != ACTIVE:
            return Unrun()
        self.attempts += 1
        if run.predecessor is not None:
            await self._runs.wait_until_stopped(run.predecessor)
        if run.claim.is_large and (ending := await self._read_large(run)):
            return ending
        if monotonic() - run.lease_confirmed >= self._safe_seconds:
            return Interrupted()  # the claim's answer came late: another worker may have the job
        caller = self._callers[run.claim.provider_slug]
        result = await attempt(caller, run, self._checker, self._token_refresher)
        return result if isinstance(result, Page) else await self._streams.follow(run, result)

    def _count_calls(self, run: Run, ending: Ending) -> None:
        """Let the budget of the provider know that a run has ended."""
        claim = run.claim
        if self._calls.applies_to(claim.provider_slug) and not isinstance(
            ending, Unrun | Interrupted
        ):
            spender = Spender(claim.provider_slug, claim.tenant_id, claim.connection_id)
            self._calls.run_ended(spender)

    async def _attempt_traced(self, run: Run) -> Ending:
        claim = run.claim
        with self._telemetry.run(
            claim.id, claim.connection_id, claim.provider_slug, claim.job_type
        ):
            return await self._attempt(run)

    async def _read_large(self, run: Run) -> Interrupted | None:
        """Read a connection that was too large for its claim; return why the run ends, if it does.

        One connection is read at a time: all of them share a slow link.
        """
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

    @property
    def limit(self) -> int:
        """How many connectors may run at once, at present."""
        return sum(slots.limit for slots in self.slots)

    @property
    def free_slots(self) -> int:
        """How many more connectors may run; fewer while settling lags behind."""
        return min(sum(slots.limit - slots.taken for slots in self.slots), self._unsettled_room())

    def _unsettled_room(self) -> int:
        """Return how many more jobs may be claimed before others must be settled."""
        unsettled = len(self._runs) - self._settle_queue.excused
        return unsettled_room(self.limit, unsettled, self._settle_queue.waiting_bytes)

    def _wanted(self, slots: Slots) -> int:
        """Return how many jobs to claim now.

        No more than there are free slots, and few enough that not all slots wait for one claim:
        jobs that are claimed together tend to end together.
        """
        if not self._is_claiming:
            return 0
        share = slots.limit // (4 if slots.limit >= 4 * LARGEST_CLAIM else 12)
        unstarted = [batch for batch in self._unstarted if batch.rows]
        free = min(
            slots.limit - slots.taken - _count_rows(unstarted, slots),
            self._unsettled_room() - _count_rows(unstarted),
        )
        return max(0, min(free, max(share, SMALL_CLAIM), LARGEST_CLAIM))

    def stop_claiming(self) -> None:
        """Claim nothing more until `resume_claiming`; a step in progress ends."""
        self._is_claiming = False

    def resume_claiming(self) -> None:
        self._is_claiming = True
        self._unstarted = []  # a cancelled step may have left a batch

    async def drain(self, grace_seconds: float) -> bool:
        """Let running jobs end, then release the rest; return whether every row was settled."""
        self._runs.drain()
        if await self._settled_within(grace_seconds):
            return True
        for run in self._runs.unsettled():
            self._runs.stop(run, Interrupted())
        # The database may be away; then the reaper gets the rows.
        clean = await self._settled_within(RELEASE_SECONDS)
        if not clean:
            self._settle_queue.give_up()
        return clean

    async def _settled_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._runs.wait_until_settled()
        except TimeoutError:
            return False
        return True

    def _record_claimed(self, claimed: Sequence[Claim]) -> None:
        due: dict[str, list[float]] = defaultdict(list)
        late: dict[str, list[float]] = defaultdict(list)
        for claim in claimed:
            due[claim.provider_slug].append(claim.seconds_due)
            if claim.seconds_late is not None:
                late[claim.provider_slug].append(claim.seconds_late)
        for provider, seconds in due.items():
            self._telemetry.jobs_claimed(provider, seconds)
            self._gatekeeper.started(provider, len(seconds))
        for provider, seconds in late.items():
            self._telemetry.jobs_late(provider, seconds)

    def _log_unexpected(self, error: BaseException, claim: Claim) -> None:
        """Log the trace of an error that a connector should not raise."""
        if isinstance(error, SyncError | ContractError):
            return  # their messages say enough
        self._telemetry.connector_raised(
            claim.provider_slug,
            claim.connection_id,
            type(error).__name__,
            trace_without_secrets(error, claim.credentials),
        )


def _count_rows(batches: Sequence[ClaimedBatch], slots: Slots | None = None) -> int:
    """Return how many jobs there are, or how many of them are for these slots."""
    return sum(len(one.rows) for one in batches if slots is None or one.slots is slots)
