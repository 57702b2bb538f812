"""Settle runs that have ended, many at a time."""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from syncline.clock import monotonic, pause
from syncline.engine.worker.reports import brought_by, settlement_of
from syncline.engine.worker.settle import Settlement, Settler
from syncline.engine.worker.settle_retry import SettleRetry, describe_refusal
from syncline.errors import ContractError
from syncline.policy.outcome import Cancelled, Ending, Failed, Raised, Released, Retry, Succeeded
from syncline.sdk.page import NOTHING_NEW, Page
from syncline.store.errors import is_held, is_timeout, lies_in_rows
from syncline.store.queue.claims import Claim
from syncline.telemetry.engine import FailedAttempt, Telemetry

if TYPE_CHECKING:
    from syncline.engine.worker.runs import Run

SETTLE_TASKS = 2
LARGEST_GROUP = 1000  # jobs settled together
LARGEST_EMPTY_GROUP = 2000
STUCK_SECONDS = 0.25  # a group that takes longer waits for something
LARGEST_GROUP_SIGNALS = 20_000
LARGEST_GROUP_BYTES = 8_000_000  # of payloads; a larger page is settled alone
BLOCKED_PAUSE_SECONDS, LONGEST_BLOCKED_PAUSE_SECONDS = 0.1, 2.0
MAX_BLOCKED_BYTES = 256_000_000  # of pages whose rows another transaction holds


class Observer(Protocol):
    """Is told how runs end, by provider."""

    def succeeded(self, provider_slug: str, count: int) -> None: ...
    def pages_returned(self, job_ids: Iterable[UUID]) -> None: ...
    def ended(self, claim: Claim, ending: Ending, limited_until: datetime | None) -> None: ...


class SettleQueue:
    """Runs that wait to be settled, and the tasks that settle them in groups.

    Each kind of trouble has one task, and so one database connection: runs blocked by another
    transaction's lock, groups split because of a bad row, large pages. The others continue.
    """

    def __init__(
        self,
        settler: Settler,
        telemetry: Telemetry,
        lease_seconds: float,
        max_blocked_bytes: int = MAX_BLOCKED_BYTES,
        observer: Observer | None = None,
    ) -> None:
        self._settler = settler
        self._telemetry = telemetry
        self._lease_seconds = lease_seconds
        self._max_blocked_bytes = max_blocked_bytes
        self._observer = observer
        self._empty = _Waiting(LARGEST_EMPTY_GROUP)  # nothing to write but that jobs succeeded
        self._ended = _Waiting(LARGEST_GROUP)  # all others
        self._large: deque[Run] = deque()
        self._split: deque[Sequence[Run]] = deque()  # halves of groups that could not be settled
        self._blocked: list[Run] = []  # another transaction holds their rows; tried again
        self._blocked_bytes: dict[UUID, int] = {}  # by job, from the first block until settled
        self._ended_tasks = _Tasks(self._settle_ended, SETTLE_TASKS)
        self._large_task = _Tasks(self._settle_large)
        self._split_task = _Tasks(self._settle_split)
        self._blocked_task = _Tasks(self._settle_blocked)
        self._has_given_up = False
        self.waiting_bytes = 0  # of the pages that wait for their group
        self.trouble: str | None = None  # why nothing could be stored the last time

    def put(self, run: "Run") -> None:
        """Settle a run that has ended, as soon as a task is free for it."""
        page = run.ending if isinstance(run.ending, Page) else None
        if page is not None and page.payload_bytes > LARGEST_GROUP_BYTES:
            self._large.append(run)
            self._large_task.start()
            return
        is_empty = page is not None and page.is_empty and not run.claim.is_first
        waiting = self._empty if is_empty else self._ended
        waiting.append(run)
        self.waiting_bytes += 0 if page is None else page.payload_bytes
        if waiting.is_ready(run.ended):
            self._ended_tasks.start()

    @property
    def blocked(self) -> int:
        """How many runs wait for another transaction's lock."""
        return len(self._blocked_bytes)

    @property
    def excused(self) -> int:
        """How many runs do not count as unsettled: blocked ones, while their pages are small."""
        is_small = sum(self._blocked_bytes.values()) <= self._max_blocked_bytes
        return len(self._blocked_bytes) if is_small else 0

    def give_up(self) -> None:
        """Settle nothing more: the process ends, and the reaper gets what is left."""
        self._has_given_up = True

    def resume(self) -> None:
        self._has_given_up = False

    async def _settle_ended(self) -> None:
        """Settle one group after the other; the runs that wait longest come first."""
        start_another = self._ended_tasks.start
        while ready := [one for one in (self._empty, self._ended) if one.is_ready(monotonic())]:
            first = min(ready, key=lambda waiting: waiting[0].ended)
            first.group_began = monotonic()
            stuck = asyncio.get_running_loop().call_later(STUCK_SECONDS, start_another)
            try:
                await (self._settle_empty() if first is self._empty else self._settle_some())
            finally:
                stuck.cancel()
                first.group_began = None

    async def _settle_some(self) -> None:
        await self._settle_group(self._take_group())

    async def _settle_group(self, group: "Sequence[Run]") -> None:
        """Settle a group: its pages in the usual way, then the runs that are left."""
        # While another transaction holds rows, this group must not wait for them too.
        lock_jobs = self.blocked > 0
        if not lock_jobs:
            group, lock_jobs = await self._settle_pages(group)
        if group:
            await self._settle(group, lock_jobs=lock_jobs)

    async def _settle_pages(self, group: "Sequence[Run]") -> "tuple[Sequence[Run], bool]":
        """Settle the runs that returned a page, at half of the usual cost.

        Return the others, and whether it failed: a held job may be why.
        """
        pages = [
            (run.claim, page, brought_by(run, page))
            for run in group
            if isinstance(page := run.ending, Page)
        ]
        if not pages:
            return group, False
        settled: set[UUID] = set()
        failed = True
        try:
            # Whatever goes wrong happens again in the ordinary settle, which reports it.
            with suppress(Exception), self._telemetry.settle(len(pages)):
                left = await self._settler.settle_pages(pages)
                settled = {claim.id for claim, _, _ in pages} - left
                failed = False
        except BaseException:
            self._finish(group)  # the process ends; the reaper gets the jobs
            raise
        over = [run for run in group if run.claim.id in settled]
        self._record_succeeded(over)
        self._finish(over)
        return [run for run in group if run.claim.id not in settled], failed

    async def _settle_empty(self) -> None:
        """Close the jobs of empty pages, at a third of the usual cost.

        What cannot be closed that way is settled like any other run.
        """
        size = min(len(self._empty), LARGEST_EMPTY_GROUP)
        group = unclosed = [self._empty.popleft() for _ in range(size)]
        closed: list[Run] = []
        try:
            # Whatever goes wrong happens again in the ordinary settle, which reports it.
            with suppress(Exception), self._telemetry.settle(len(group)):
                left = await self._settler.settle_empty([run.claim for run in group])
                closed = [run for run in group if run.claim.id not in left] if left else group
                unclosed = [run for run in group if run.claim.id in left] if left else []
        finally:
            self._ended.extend(unclosed)
        self._record_succeeded(closed)
        self._finish(closed)

    def _take_group(self) -> "list[Run]":
        """Return runs of different connections, as many as fit into one transaction."""
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
        self.waiting_bytes -= size
        return list(group.values())

    async def _settle_large(self) -> None:
        while self._large:
            await self._settle([self._large.popleft()])

    async def _settle_split(self) -> None:
        while self._split:
            await self._settle(self._split.popleft(), lock_jobs=True)

    async def _settle_blocked(self) -> None:
        """Try the blocked runs again from time to time."""
        wait = BLOCKED_PAUSE_SECONDS
        while self._blocked and not self._has_given_up:
            await pause(wait)
            wait = min(2 * wait, LONGEST_BLOCKED_PAUSE_SECONDS)
            waiting, self._blocked = self._blocked, []
            group = {run.claim.connection_id: run for run in waiting[:LARGEST_GROUP]}
            self._blocked += [
                run for run in waiting if group.get(run.claim.connection_id) is not run
            ]
            await self._settle(list(group.values()), lock_jobs=True)
        left, self._blocked = self._blocked, []
        self._finish(left)  # nobody will try them again

    async def _settle(self, group: "Sequence[Run]", *, lock_jobs: bool = False) -> None:
        """Settle runs together, however long the database is away.

        Blocked runs wait apart. A group with a bad row, or one that takes too long, is split: the
        trouble then delays only its own connection.
        """
        over: Sequence[Run] = group
        try:
            over = await self._settle_together(group, lock_jobs=lock_jobs)
        finally:
            # Whatever went wrong must not cost a slot; an unsettled lease lapses.
            self._finish(over)

    async def _settle_together(self, group: "Sequence[Run]", *, lock_jobs: bool) -> "Sequence[Run]":
        """Return the runs that are over; the others wait in another part of the queue."""
        retry = SettleRetry(self._lease_seconds)
        while not self._has_given_up:
            settlements = [settlement_of(run) for run in group if run.ending]
            try:
                with self._telemetry.settle(len(group)):
                    await self._settler.settle(settlements, lock_jobs=lock_jobs)
            except Exception as error:
                must_end = retry.must_end(
                    error, server_answered_at=self._settler.server_answered_at
                )
                if len(group) > 1 and (lies_in_rows(error) or is_timeout(error) or must_end):
                    self._split_in_halves(group)
                    return ()
                if is_held(error):
                    self._block(group)
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

    def _refuse_page(self, run: "Run", error: Exception) -> bool:
        """Let the job fail because its page cannot be stored; return whether it had a page."""
        if isinstance(run.ending, Page):
            run.ending = Raised(ContractError(describe_refusal(error)))
            return True
        self._telemetry.loop_failed("settle", error, timedelta())
        return False

    def _split_in_halves(self, group: "Sequence[Run]") -> None:
        middle = len(group) // 2
        self._split.extend((group[:middle], group[middle:]))
        self._split_task.start()

    def _block(self, runs: "Iterable[Run]") -> None:
        """Let runs wait for another transaction's lock."""
        for run in runs:
            page = run.ending if isinstance(run.ending, Page) else NOTHING_NEW
            self._blocked_bytes[run.claim.id] = page.payload_bytes
            self._blocked.append(run)
            run.blocked()
        self._blocked_task.start()

    def _finish(self, runs: "Iterable[Run]") -> None:
        for run in runs:
            if self._blocked_bytes:
                self._blocked_bytes.pop(run.claim.id, None)
            run.settled()

    def _take_settled(
        self, group: "Sequence[Run]", settlements: Sequence[Settlement]
    ) -> "Sequence[Run]":
        pairs = list(zip(group, settlements, strict=True))
        if blocked := [run for run, one in pairs if one.is_blocked]:
            self._block(blocked)
            pairs = [(run, one) for run, one in pairs if not one.is_blocked]
        self._record_settled(pairs)
        return [run for run, _ in pairs]

    def _record_settled(self, pairs: "Sequence[tuple[Run, Settlement]]") -> None:
        succeeded = []
        for run, one in pairs:
            if isinstance(one.outcome, Succeeded) and not one.is_fenced:
                succeeded.append(run)
            else:
                run.is_lost = one.is_fenced
                duration = timedelta(seconds=run.ended - run.began)
                record_unsuccessful(self._telemetry, one, duration)
                if self._observer is not None and not one.is_fenced:
                    until = one.outcome.retry_after if isinstance(one.outcome, Retry) else None
                    self._observer.ended(one.claim, one.ending, until)
        self._record_succeeded(succeeded)

    def _record_succeeded(self, group: "Sequence[Run]") -> None:
        """Record runs that returned a page, those of one provider together."""
        durations: dict[str, list[float]] = defaultdict(list)
        signals: Counter[str] = Counter()
        for run in group:
            durations[run.claim.provider_slug].append(run.ended - run.began)
            if isinstance(run.ending, Page) and run.ending.kinds:
                signals[run.claim.provider_slug] += run.ending.signal_count
        for provider, seconds in durations.items():
            self._telemetry.runs_succeeded(provider, seconds, signals=signals[provider])
            if self._observer is not None:
                self._observer.succeeded(provider, len(seconds))
        if self._observer is not None:
            self._observer.pages_returned(run.claim.id for run in group)


def record_unsuccessful(telemetry: Telemetry, one: Settlement, duration: timedelta) -> None:
    """Record an attempt that returned no page."""
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
            telemetry.run_finished(provider, "failed", duration)
            if error_class == "RateLimited" and wait is not None:
                telemetry.rate_limited(provider, wait)
        case Released():
            telemetry.job_released(provider)
        case Cancelled():
            telemetry.job_cancelled(provider)


class _Waiting(deque["Run"]):
    """Runs that wait to be settled, and when the current group of their kind began.

    The few that wait are left to its task. A second one at once would settle small groups: both
    slow each other down in the database (36 µs of server time per empty run instead of 32), and a
    hundred connectors that call a provider cost a tenth more.
    """

    def __init__(self, largest_group: int) -> None:
        super().__init__()
        self._largest_group = largest_group
        self.group_began: float | None = None

    def is_ready(self, now: float) -> bool:
        """Return whether a group is to be settled now: a whole one, or the current is stuck."""
        if not self or self.group_began is None or len(self) >= self._largest_group:
            return bool(self)
        return now - self.group_began >= STUCK_SECONDS


class _Tasks:
    """A limited number of tasks that do the same work until none is left."""

    def __init__(self, work: Callable[[], Coroutine[None, None, None]], most: int = 1) -> None:
        self._work = work
        self._most = most
        self._running: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start another task, unless there are enough."""
        if len(self._running) < self._most:
            task = asyncio.get_running_loop().create_task(self._work())
            self._running.add(task)
            task.add_done_callback(self._running.discard)
