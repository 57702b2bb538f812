"""The runs of this process: their slots, their leases, and how they are stopped."""

import asyncio
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any
from uuid import UUID

from syncline.clock import monotonic
from syncline.engine.worker.reports import start_cursor
from syncline.engine.worker.settle_queue import SettleQueue
from syncline.engine.worker.slots import Slots
from syncline.engine.worker.threads import Threads
from syncline.http.budgets import CallBudgets
from syncline.http.calls import CallLog
from syncline.policy.outcome import Ending, Interrupted, Raised
from syncline.sdk.page import NOTHING_NEW, Page
from syncline.store.queue.claims import POISON_LAPSES, Claim
from syncline.store.queue.streams import Progress

STOP_SECONDS = 2.0  # how long a cancelled connector gets to stop


def safe_seconds(lease_seconds: float) -> float:
    """Return how long after its last renewal a run may continue.

    The rest of the lease gives its connector time to stop before another worker gets the job.
    """
    return lease_seconds - min(STOP_SECONDS, lease_seconds / 6)


class Run:
    """A claimed job in this process.

    It holds a slot while its connector works, and its lease until it is settled.
    """

    task: "asyncio.Task[None] | None" = None  # while it runs
    ending: Ending | None = None
    ended: float = 0
    is_settled = False
    is_poison = False
    slots: Slots | None = None  # that it has one of, from its start on
    has_slot = False
    has_lent_slot = False  # to another run, while another transaction holds its rows
    is_stopping = False  # it was cancelled; it is settled once it has stopped
    stopped: "asyncio.Future[None] | None" = None  # set if another run waits for this one
    predecessor: "Run | None" = None  # an earlier, lost run of the same job; it may be alive
    is_lost = False  # its job is no longer ours
    page_began: float | None = None  # when the current page was requested; None: at the start
    is_committing = False  # the connector waits for a page to be stored: no deadline counts
    committed_pages = 0  # of a stream
    largest_page = 0  # of a stream, in bytes of payloads
    was_blocked = False  # by another transaction's lock, when it was to be settled
    trace: str | None = None  # of its error, for people
    stored_signals = 0  # of a stream
    cursor_before: str | None = None  # of a stream, before its first page
    calls: CallLog | None = None  # that it made
    _threads: Threads | None = None

    def __init__(self, claim: Claim, lease_confirmed: float, runs: "Runs") -> None:
        self.claim = claim
        self.lease_confirmed = self.began = lease_confirmed
        self._runs = runs

    @property
    def threads(self) -> Threads:
        """The threads of this run; most runs have none."""
        if self._threads is None:
            self._threads = Threads(on_idle=partial(self._runs.free, self))
        return self._threads

    @property
    def call_log(self) -> CallLog:
        """Where the calls of this run are noted; most runs make none."""
        if self.calls is None:
            self.calls = CallLog()
        return self.calls

    @property
    def budgets(self) -> CallBudgets:
        """The budgets that its calls count in."""
        return self._runs.budgets

    @property
    def is_alive(self) -> bool:
        return self.task is not None or self.has_threads

    @property
    def has_threads(self) -> bool:
        return self._threads is not None and self._threads.alive > 0

    def end(self, ending: Ending) -> bool:
        """Take an ending; return whether it was the first. Only the first counts."""
        if self.ending is not None:
            return False
        self.ending, self.ended = ending, monotonic()
        return True

    def settled(self) -> None:
        """Record that nothing is left to write for this run."""
        self._runs.settled(self)

    def blocked(self) -> None:
        """Record that another transaction's lock delays settling this run."""
        self.was_blocked = True
        self._runs.look_for_room(self)

    def record_page(self, progress: Progress, page: Page) -> None:
        """Record a committed page, and its cursor if it has one."""
        cursor = page.next_cursor
        if not self.committed_pages:
            self.cursor_before = start_cursor(self.claim)
        self.stored_signals += page.signal_count
        self.committed_pages = progress.committed_pages
        self.claim.attempts, self.claim.lapses = progress.attempts, progress.lapses
        if cursor is not None:
            self.claim.stored_cursor = cursor

    def cancel(self) -> None:
        """Ask the connector to stop; one in a thread does not notice."""
        if self.task is not None:
            self.task.cancel()


class Runs:
    """The runs of one process, by job.

    It sets `claim_now` when there is room for more, and `renew_now` when a lost run has stopped.
    """

    def __init__(
        self,
        settle_queue: SettleQueue,
        claim_now: asyncio.Event,
        renew_now: asyncio.Event,
        budgets: CallBudgets | None = None,
    ) -> None:
        self.settle_queue = settle_queue
        self._claim_now = claim_now
        self._renew_now = renew_now
        self.budgets = budgets or CallBudgets()
        self._runs: dict[UUID, Run] = {}
        self._unsettled = 0
        self.poison_jobs = 0
        self.stopped: list[tuple[UUID, UUID]] = []  # lost runs that have stopped: job, lease token
        self.is_draining = False  # a stream ends after its current page
        self.some_settled = asyncio.Event()  # or blocked, which makes room too
        self._all_settled = asyncio.Event()
        self._all_settled.set()

    def __len__(self) -> int:
        return len(self._runs)

    def unsettled(self) -> list[Run]:
        return [run for run in self._runs.values() if not run.is_settled]

    def provider_of(self, task: "asyncio.Task[Any] | None") -> str:
        """Return the provider of a task, or of the running threads if they all have the same."""
        runs = list(self._runs.values())
        if task is not None:
            return next((run.claim.provider_slug for run in runs if run.task is task), "")
        threaded = {run.claim.provider_slug for run in runs if run.has_threads}
        return threaded.pop() if len(threaded) == 1 else ""

    def add(self, claim: Claim, leased_since: float, slots: Slots | None = None) -> Run:
        """Record a claimed job; it takes a slot at once, and begins when its turn comes."""
        run = Run(claim, leased_since, self)
        if slots is not None:
            run.slots, run.has_slot = slots, True
            slots.taken += 1
        if lost := self._runs.get(claim.id):
            self._forget(lost)
            run.predecessor = lost
        self._runs[claim.id] = run
        if claim.lapses >= POISON_LAPSES:
            run.is_poison = True
            self.poison_jobs += 1
        self._unsettled += 1
        self._all_settled.clear()
        return run

    def begin(self, run: Run, work: Coroutine[None, None, None]) -> None:
        """Start the run, unless it was told to stop before its turn came."""
        if run.ending is None:
            run.task, run.began = asyncio.get_running_loop().create_task(work), monotonic()
        else:
            work.close()
            self.leave(run)

    def lend_slot(self, run: Run) -> None:
        """Lend another run the slot of a stream that waits for another transaction's lock."""
        slots = run.slots
        if slots is not None and not run.has_lent_slot and slots.lent < slots.limit:
            run.has_lent_slot = True
            slots.lent += 1
            slots.taken -= 1
            self.look_for_room(run)

    def take_slot_back(self, run: Run) -> None:
        """Count a stream again that continues; for a while, runs may outnumber slots."""
        if run.has_lent_slot and run.slots is not None:
            run.has_lent_slot = False
            run.slots.lent -= 1
            run.slots.taken += 1

    def leave(self, run: Run) -> None:
        """Record that a run's task is over."""
        run.task = None  # four objects, and thousands of runs may wait to be settled
        self.free(run)

    def free(self, run: Run) -> None:
        """Free the slot once the connector's task and threads have ended."""
        if run.is_alive:
            return
        self._settle_stopped(run)
        if run.stopped is not None and not run.stopped.done():
            run.stopped.set_result(None)
        if run.has_slot and run.slots is not None:
            run.has_slot, run.slots.is_changed = False, True
            run.slots.taken -= 1
            if run.ended:  # else its job was lost
                run.slots.record_run(run.ended - run.began, _page_bytes(run))
            self._note_stopped(run)
        if run.is_settled:
            self._forget(run)
        self._claim_now.set()

    def settled(self, run: Run) -> None:
        """Record that nothing is left to write for a run."""
        run.is_settled = True
        self._note_stopped(run)
        self._unsettled -= 1
        if run.slots is not None and run.ended and not run.was_blocked:
            run.slots.record_settled(monotonic() - run.ended)
        if not run.is_alive:
            self._forget(run)
        if not self._unsettled:
            self._all_settled.set()
        self.look_for_room(run)

    def look_for_room(self, run: Run) -> None:
        """Wake the claim loop: there may be room for more runs like this one."""
        if run.slots is not None:
            run.slots.is_changed = True
        self.some_settled.set()
        self._claim_now.set()

    async def wait_until_settled(self) -> None:
        await self._all_settled.wait()

    def stop(self, run: Run, ending: Ending, patience_seconds: float = STOP_SECONDS) -> None:
        """Tell a run to stop; it is settled once its connector has stopped.

        The next attempt must not overlap it at the provider. A thread cannot be stopped, and some
        connectors ignore a cancellation. After `patience_seconds` such a run is settled anyway:
        its job must go on.
        """
        if run.end(ending):
            run.is_stopping = True
            if run.is_alive:
                asyncio.get_running_loop().call_later(patience_seconds, self._settle_stopped, run)
            else:
                self._settle_stopped(run)
        run.cancel()

    def _settle_stopped(self, run: Run) -> None:
        if run.is_stopping:
            run.is_stopping = False
            self.settle_queue.put(run)

    async def wait_until_stopped(self, run: Run) -> None:
        """Cancel a lost run and wait for it, up to a limit."""
        run.cancel()
        if run.is_alive:
            run.stopped = asyncio.get_running_loop().create_future()
            await asyncio.wait((run.stopped,), timeout=STOP_SECONDS)

    def stop_overdue(self, *, max_run_seconds: float, safe_seconds: float) -> None:
        """Stop the runs that took too long, and those whose lease could not be renewed.

        While the database is away, a lease is counted by this process's own clock. Another worker
        may soon have the job, and the provider must not be called twice at once.
        """
        now = monotonic()
        for run in self.unsettled():
            if run.ending is not None or run.is_committing:
                continue
            if run.task and now - (run.page_began or run.began) >= max_run_seconds:
                timeout = TimeoutError(f"ran longer than max_run_seconds ({max_run_seconds:g})")
                self.stop(run, Raised(timeout), patience_seconds=max_run_seconds)
            elif now - run.lease_confirmed >= safe_seconds:
                self.stop(run, Interrupted())

    def lose(self, job_ids: Iterable[UUID]) -> list[Run]:
        """Stop the runs whose jobs are no longer ours, and return them."""
        lost = []
        for job_id in job_ids:
            run = self._runs.get(job_id)
            if run is not None and run.ending is None:
                self.abandon(run)
                lost.append(run)
                run.cancel()
        return lost

    def abandon(self, run: Run) -> None:
        """Record that a run's job is no longer ours; nothing will be written for it."""
        run.ending, run.is_lost = Interrupted(), True
        self.settled(run)

    def drain(self) -> None:
        """Let streams end after their current page, until `resume`."""
        self.is_draining = True

    def resume(self) -> None:
        self.is_draining = False

    def _forget(self, run: Run) -> None:
        if self._runs.get(run.claim.id) is run:  # else it was lost, and the job claimed here again
            del self._runs[run.claim.id]
            self.poison_jobs -= run.is_poison

    def _note_stopped(self, run: Run) -> None:
        if run.is_lost and run.is_settled and not run.is_alive:
            self.stopped.append((run.claim.id, run.claim.lease_token))
            self._renew_now.set()


def _page_bytes(run: Run) -> int:
    """Return the size of the largest page that a run returned or streamed."""
    ending = run.ending
    if ending is NOTHING_NEW or not isinstance(ending, Page):
        return run.largest_page
    return max(run.largest_page, ending.payload_bytes)
