"""Settle what has ended, many runs at a time, tell what came of it, and give the slots back."""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta

from syncline.clock import monotonic, pause
from syncline.engine.worker.runs import Run, Runs
from syncline.engine.worker.settle import Settlement, Settler
from syncline.engine.worker.settle_retry import SettleRetry, describe_refusal
from syncline.errors import ContractError
from syncline.policy.outcome import Cancelled, Failed, Raised, Released, Retry, Succeeded
from syncline.sdk.page import NOTHING_NEW, Page
from syncline.store.pool import is_held, is_timeout, lies_in_rows
from syncline.telemetry.engine import FailedAttempt, Telemetry

LANES = 2
LARGEST_GROUP = 1000  # jobs settled together
LARGEST_EMPTY_GROUP = 2000
STUCK_SECONDS = 0.25  # a close of empty runs that takes longer is waiting for somebody
LARGEST_GROUP_SIGNALS = 20_000
LARGEST_GROUP_BYTES = 8_000_000  # of payloads; a page beyond that has a lane of its own
HELD_PAUSE_SECONDS, LONGEST_HELD_PAUSE_SECONDS = 0.1, 2.0


class SettleQueue:
    """Tasks that settle groups of runs, one transaction each.

    Each kind of trouble has one task, and so one connection to the database: what waits for
    somebody's lock, what was parted because of a bad row, what is large. The others go on.
    """

    def __init__(
        self,
        settler: Settler,
        runs: Runs,
        telemetry: Telemetry,
        lease_seconds: float,
    ) -> None:
        self._settler = settler
        self._runs = runs
        self._settled = runs.settled
        self._telemetry = telemetry
        self._lease_seconds = lease_seconds
        self._empty: deque[Run] = deque()  # nothing to write but that their jobs succeeded
        self._ended: deque[Run] = deque()  # all others
        self._large: deque[Run] = deque()  # pages that take their time on a slow link
        self._parted: deque[Sequence[Run]] = deque()  # of a group that could not be settled whole
        self._held: list[Run] = []  # whose rows somebody else holds
        self._lanes: set[asyncio.Task[None]] = set()
        self._settling_large: set[asyncio.Task[None]] = set()
        self._settling_parted: set[asyncio.Task[None]] = set()
        self._settling_held: set[asyncio.Task[None]] = set()
        self._closing_since: float | None = None  # when the lane that closes empty runs began
        self.gives_up = False
        self.trouble: str | None = None  # why nothing could be stored the last time

    def take(self, run: Run) -> None:
        """Settle a run that has ended, as soon as there is a lane for it."""
        page = run.ending if isinstance(run.ending, Page) else None
        if page is not None and page.payload_bytes > LARGEST_GROUP_BYTES:
            self._large.append(run)
            self._go_on(self._settle_large, self._settling_large)
            return
        is_empty = page is not None and page.is_empty and not run.claim.is_first
        (self._empty if is_empty else self._ended).append(run)
        if not (is_empty and self._is_closing(run.ended)):
            self._go_on(self._settle_ended, self._lanes, LANES)

    def _is_closing(self, now: float) -> bool:
        """Whether a lane closes empty runs, and will soon come for the few that wait.

        They are left to it: two would get in each other's way within the database (36 µs of it
        for a run instead of 32), and find half as many to close at once.
        """
        if self._closing_since is None or len(self._empty) >= LARGEST_EMPTY_GROUP:
            return False
        return now - self._closing_since < STUCK_SECONDS

    def _go_on(
        self,
        work: Callable[[], Coroutine[None, None, None]],
        tasks: "set[asyncio.Task[None]]",
        most: int = 1,
    ) -> None:
        if len(tasks) < most:
            task = asyncio.get_running_loop().create_task(work())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _settle_ended(self) -> None:
        """Settle what has ended, a group at a time, those first that wait longest."""
        while True:
            empty = self._empty if not self._is_closing(monotonic()) else ()
            if empty and not (self._ended and self._ended[0].ended < empty[0].ended):
                await self._settle_empty()
            elif self._ended:
                # While somebody holds rows, the next group must not wait for his lock in its turn.
                await self._settle(self._take_group(), lock_jobs=self._runs.held > 0)
            else:
                return

    async def _settle_empty(self) -> None:
        """Settle runs whose pages are empty, at a third of the usual cost; or, if there is more
        to it, or somebody is in the way, like all others."""
        size = min(len(self._empty), LARGEST_EMPTY_GROUP)
        group = [self._empty.popleft() for _ in range(size)]
        closed: list[Run] = []
        unclosed = group
        self._closing_since = monotonic()
        try:
            # Whatever goes wrong, the usual way will meet it again, and tell it.
            with suppress(Exception), self._telemetry.settle(len(group)):
                left = await self._settler.settle_empty([run.claim for run in group])
                closed = [run for run in group if run.claim.id not in left] if left else group
                unclosed = [run for run in group if run.claim.id in left] if left else []
        finally:
            self._closing_since = None
            self._ended.extend(unclosed)
        self._tell_succeeded(closed)
        self._settled(closed)

    def _take_group(self) -> list[Run]:
        """Return runs of different connections, as many as go well into one transaction."""
        group: dict[object, Run] = {}
        put_back: list[Run] = []
        signals = size = 0
        while self._ended and len(group) < LARGEST_GROUP and signals < LARGEST_GROUP_SIGNALS:
            run = self._ended.popleft()
            page = run.ending if isinstance(run.ending, Page) else NOTHING_NEW
            if run.claim.connection_id in group or size + page.payload_bytes > LARGEST_GROUP_BYTES:
                put_back.append(run)
                if len(put_back) < LARGEST_GROUP:
                    continue
                break
            group[run.claim.connection_id] = run
            signals += page.signal_count
            size += page.payload_bytes
        self._ended.extendleft(reversed(put_back))
        return list(group.values())

    async def _settle_large(self) -> None:
        while self._large:
            await self._settle([self._large.popleft()])

    async def _settle_parted(self) -> None:
        while self._parted:
            await self._settle(self._parted.popleft(), lock_jobs=True)

    async def _settle_held(self) -> None:
        """Try again, every now and then, to settle what somebody else's transaction holds up."""
        wait = HELD_PAUSE_SECONDS
        while self._held and not self.gives_up:
            await pause(wait)
            wait = min(2 * wait, LONGEST_HELD_PAUSE_SECONDS)
            waiting, self._held = self._held, []
            group = {run.claim.connection_id: run for run in waiting[:LARGEST_GROUP]}
            self._held += [run for run in waiting if group.get(run.claim.connection_id) is not run]
            await self._settle(list(group.values()), lock_jobs=True)
        self._settled(self._held)  # nobody will come for them any more
        self._held = []

    async def _settle(self, group: Sequence[Run], *, lock_jobs: bool = False) -> None:
        """Settle runs together, however long the database is away.

        What somebody holds waits apart, and a group with a bad row, or that takes too long, is
        parted: it holds up its own connection and no other.
        """
        over: Sequence[Run] = group
        try:
            over = await self._settle_together(group, lock_jobs=lock_jobs)
        finally:
            # Whatever went wrong, no slot is lost to it: an unsettled lease lapses.
            self._settled(over)

    async def _settle_together(self, group: Sequence[Run], *, lock_jobs: bool) -> Sequence[Run]:
        """Return the runs that are over; the others are settled elsewhere."""
        retry = SettleRetry(self._lease_seconds)
        while not self.gives_up:
            settlements = [Settlement(run.claim, run.ending) for run in group if run.ending]
            try:
                with self._telemetry.settle(len(group)):
                    await self._settler.settle(settlements, lock_jobs=lock_jobs)
            except Exception as error:
                must_end = retry.must_end(
                    error, server_answered_at=self._settler.server_answered_at
                )
                if len(group) > 1 and (lies_in_rows(error) or is_timeout(error) or must_end):
                    self._part(group)
                    return ()
                if is_held(error):
                    self._hold(group)
                    return ()
                if not must_end:
                    wait = retry.next_pause_seconds()
                    self.trouble = f"{type(error).__name__}: {error}"
                    self._telemetry.loop_failed("settle", error, timedelta(seconds=wait))
                    await pause(wait)
                elif not self._refuse_page(group[0], error):
                    return group
            else:
                self.trouble = None
                return self._take_settled(group, settlements)
        return group

    def _refuse_page(self, run: Run, error: Exception) -> bool:
        """Tell the job that its page cannot be stored; return whether there was one."""
        if isinstance(run.ending, Page):
            run.ending = Raised(ContractError(describe_refusal(error)))
            return True
        self._telemetry.loop_failed("settle", error, timedelta())
        return False

    def _part(self, group: Sequence[Run]) -> None:
        middle = len(group) // 2
        self._parted.extend((group[:middle], group[middle:]))
        self._go_on(self._settle_parted, self._settling_parted)

    def _hold(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self._runs.hold(run)
            self._held.append(run)
        self._go_on(self._settle_held, self._settling_held)

    def _take_settled(
        self, group: Sequence[Run], settlements: Sequence[Settlement]
    ) -> Sequence[Run]:
        held = [run for run, one in zip(group, settlements, strict=True) if one.is_held]
        if not held:
            self._tell_settled(group, settlements)
            return group
        self._hold(held)
        pairs = zip(group, settlements, strict=True)
        settled = [(run, one) for run, one in pairs if not one.is_held]
        self._tell_settled([run for run, _ in settled], [one for _, one in settled])
        return [run for run, _ in settled]

    def _tell_settled(self, group: Sequence[Run], settlements: Sequence[Settlement]) -> None:
        """Tell what was written."""
        succeeded = []
        for run, one in zip(group, settlements, strict=True):
            if isinstance(one.outcome, Succeeded) and not one.is_fenced:
                succeeded.append(run)
            else:
                run.is_lost = one.is_fenced
                tell_unsuccessful(self._telemetry, one, timedelta(seconds=run.ended - run.began))
        self._tell_succeeded(succeeded)

    def _tell_succeeded(self, group: Sequence[Run]) -> None:
        """Tell of runs that brought a page, those of a provider together."""
        durations: dict[str, list[float]] = defaultdict(list)
        signals: Counter[str] = Counter()
        for run in group:
            durations[run.claim.provider_slug].append(run.ended - run.began)
            if isinstance(run.ending, Page) and run.ending.kinds:
                signals[run.claim.provider_slug] += run.ending.signal_count
        for provider, seconds in durations.items():
            self._telemetry.runs_succeeded(provider, seconds, signals=signals[provider])


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
                FailedAttempt(
                    provider_slug=provider,
                    connection_id=one.claim.connection_id,
                    job_id=one.claim.id,
                    error_class=error_class,
                    terminal=isinstance(one.outcome, Failed),
                    wait=wait,
                )
            )
            telemetry.run_finished(provider, "failed", took)
            if error_class == "RateLimited" and wait is not None:
                telemetry.rate_limited(provider, wait)
        case Released():
            telemetry.job_released(provider)
        case Cancelled():
            telemetry.job_cancelled(provider)
