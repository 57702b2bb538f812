"""Settle what has ended, many runs at a time, tell what came of it, and give the slots back."""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta

from syncline.clock import monotonic, pause
from syncline.engine.runs import Run
from syncline.engine.settlement import Settlement, Settler
from syncline.errors import ContractError
from syncline.policy.outcome import Cancelled, Failed, Raised, Released, Retry, Succeeded
from syncline.sdk.page import Page
from syncline.store.pool import is_passing, lies_in_rows
from syncline.telemetry import Telemetry

LANES = 2
LARGEST_GROUP = 1000  # jobs settled together
LARGEST_EMPTY_GROUP = 2000
STUCK_SECONDS = 0.25  # a close of empty runs that takes longer is waiting for somebody
LARGEST_GROUP_SIGNALS = 20_000
SETTLE_PAUSE_SECONDS = 0.5


class Lanes:
    """Tasks that settle groups of runs, one transaction each."""

    def __init__(
        self, settler: Settler, settled: Callable[[Iterable[Run]], None], telemetry: Telemetry
    ) -> None:
        self._settler = settler
        self._settled = settled
        self._telemetry = telemetry
        self._empty: deque[Run] = deque()  # nothing to write but that their jobs succeeded
        self._ended: deque[Run] = deque()  # all others
        self._lanes: set[asyncio.Task[None]] = set()
        self._stragglers: set[asyncio.Task[None]] = set()
        self._closing_since: float | None = None  # when the lane that closes empty runs began
        self.gives_up = False

    def take(self, run: Run) -> None:
        """Settle a run that has ended, as soon as there is a lane for it."""
        is_empty = isinstance(run.ending, Page) and run.ending.is_empty and not run.claim.is_first
        (self._empty if is_empty else self._ended).append(run)
        if len(self._lanes) < LANES and not (is_empty and self._is_closing(run.ended)):
            self._go_on(self._settle_ended(), self._lanes)

    def _is_closing(self, now: float) -> bool:
        """Whether a lane closes empty runs, and will soon come for the few that wait.

        They are left to it: two would get in each other's way within the database (36 µs of it
        for a run instead of 32), and find half as many to close at once.
        """
        if self._closing_since is None or len(self._empty) >= LARGEST_EMPTY_GROUP:
            return False
        return now - self._closing_since < STUCK_SECONDS

    def _go_on(self, work: Coroutine[None, None, None], tasks: "set[asyncio.Task[None]]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _settle_ended(self) -> None:
        """Settle what has ended, a group at a time, those first that wait longest."""
        while True:
            empty = self._empty if not self._is_closing(monotonic()) else ()
            if empty and not (self._ended and self._ended[0].ended < empty[0].ended):
                await self._settle_empty()
            elif self._ended:
                await self._settle(self._take_group())
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

    async def _settle(self, group: Sequence[Run]) -> None:
        """Settle runs together, or each on its own: somebody's open transaction, or a bad row,
        holds up its own connection and no other."""
        over = True
        try:
            over = await self._settle_together(group)
        finally:
            if over:
                # Whatever went wrong, no slot is lost to it: an unsettled lease lapses.
                self._settled(group)
        if not over:
            for run in group:
                self._go_on(self._settle([run]), self._stragglers)

    async def _settle_together(self, group: Sequence[Run]) -> bool:
        """Return whether it is over, however long the database was away; else they must part."""
        while not self.gives_up:
            settlements = [Settlement(run.claim, run.ending) for run in group if run.ending]
            try:
                with self._telemetry.settle(len(group)):
                    await self._settler.settle(settlements)
            except Exception as error:
                if len(group) > 1 and (lies_in_rows(error) or not is_passing(error)):
                    return False
                if not await self._survive(error, group[0]):
                    return True
            else:
                self._tell_settled(group, settlements)
                return True
        return True

    async def _survive(self, error: Exception, run: Run) -> bool:
        """Return whether it makes sense to settle again, after a pause where one is needed."""
        if is_passing(error):
            self._telemetry.loop_failed("settle", error, timedelta(seconds=SETTLE_PAUSE_SECONDS))
            await pause(SETTLE_PAUSE_SECONDS)
            return True
        if isinstance(run.ending, Page):
            # The page itself cannot be stored; the job is told so and keeps its place.
            run.ending = Raised(ContractError(f"the page could not be stored: {error}"))
            return True
        self._telemetry.loop_failed("settle", error, timedelta())
        return False

    def _tell_settled(self, group: Sequence[Run], settlements: Sequence[Settlement]) -> None:
        """Tell what was written."""
        succeeded = []
        for run, one in zip(group, settlements, strict=True):
            if isinstance(one.outcome, Succeeded) and not one.is_fenced:
                succeeded.append(run)
            else:
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
