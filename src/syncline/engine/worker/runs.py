"""What runs in this process: slots, deadlines, and the leases that the runs depend on."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from syncline.clock import monotonic
from syncline.engine.worker.attempt import Threads
from syncline.policy.outcome import Ending, Interrupted, Raised
from syncline.sdk.page import Page
from syncline.store.queue.claims import POISON_LAPSES, Claim
from syncline.store.queue.jobs import Progress

STOP_SECONDS = 2.0  # what a connector is given to stop in, once it was told to


def safe_seconds(lease_seconds: float) -> float:
    """Return how long after its last renewal a run may go on.

    What is left of the lease is for its connector to stop in, before anybody else has the job.
    """
    return lease_seconds - min(STOP_SECONDS, lease_seconds / 6)


class Run:
    """A claimed job in this process: it holds a slot from when its connector is called until that
    is done, and its lease until it is settled."""

    task: "asyncio.Task[None] | None" = None
    ending: Ending | None = None
    ended: float = 0
    is_settled = False
    is_poison = False
    has_slot = False
    is_over = False  # its task is, but perhaps not a thread of it
    is_stopping = False  # it was told to, and is settled once it has
    stopped: "asyncio.Future[None] | None" = None  # for who waits for that
    before: "Run | None" = None  # the run of the same job that this process lost, still alive
    is_lost = False  # its job is no longer ours
    page_began: float | None = None  # when its connector was asked for a page, if later than begun
    is_committing = False  # a page of it is; the connector waits, so no deadline counts
    committed_pages = 0  # of a stream
    held_bytes: int | None = None  # of its page, once somebody else was found to hold its rows
    _threads: Threads | None = None

    def __init__(
        self, claim: Claim, lease_confirmed: float, on_idle: "Callable[[Run], None]"
    ) -> None:
        self.claim = claim
        self.lease_confirmed = self.began = lease_confirmed
        self._on_idle = on_idle

    @property
    def threads(self) -> Threads:
        """The threads of this run; most have none."""
        if self._threads is None:
            self._threads = Threads(on_idle=lambda: self._on_idle(self))
        return self._threads

    @property
    def is_alive(self) -> bool:
        is_running = self.task is not None and not self.is_over
        return is_running or self.has_threads

    @property
    def has_threads(self) -> bool:
        return self._threads is not None and self._threads.alive > 0

    def take_note(self, progress: Progress, cursor: str | None) -> None:
        """Take note of a page that was committed, and of its cursor where it brought one."""
        self.committed_pages = progress.committed_pages
        self.claim.attempts, self.claim.lapses = progress.attempts, progress.lapses
        if cursor is not None:
            self.claim.stored_cursor = cursor

    def cancel(self) -> None:
        """Ask the connector to stop; a thread of its own goes on unheard."""
        if self.task is not None:
            self.task.cancel()


class Runs:
    """The runs of one process, by job."""

    def __init__(self, on_ended: Callable[[Run], None], on_room: Callable[[], None]) -> None:
        self._runs: dict[UUID, Run] = {}
        self._on_ended = on_ended
        self._on_room = on_room
        self._unsettled = 0
        self.slots_taken = 0
        self.poison_jobs = 0
        self.on_stopped: Callable[[], None] = lambda: None
        self.stopped: list[tuple[UUID, UUID]] = []  # lost ones, of which nothing is left
        self.held = self.held_bytes = 0  # runs that ended, whose rows somebody else holds
        self.is_draining = False  # a stream ends after the page in hand
        self.some_settled = asyncio.Event()
        self._all_settled = asyncio.Event()
        self._all_settled.set()

    def __len__(self) -> int:
        return len(self._runs)

    def unsettled(self) -> list[Run]:
        return [run for run in self._runs.values() if not run.is_settled]

    def provider_of(self, task: "asyncio.Task[Any] | None") -> str:
        """Return whose run a task is; without one, the only provider that has a thread at work."""
        runs = list(self._runs.values())
        if task is not None:
            return next((run.claim.provider_slug for run in runs if run.task is task), "")
        threaded = {run.claim.provider_slug for run in runs if run.has_threads}
        return threaded.pop() if len(threaded) == 1 else ""

    def add(self, claim: Claim, leased_since: float) -> Run:
        run = Run(claim, leased_since, self._free)
        if lost := self._runs.get(claim.id):
            self._forget(lost)
            run.before = lost
        self._runs[claim.id] = run
        if claim.lapses >= POISON_LAPSES:
            run.is_poison = True
            self.poison_jobs += 1
        self._unsettled += 1
        self._all_settled.clear()
        return run

    def begin(self, run: Run, task: "asyncio.Task[None]") -> None:
        """Give a run its slot."""
        run.task, run.began, run.has_slot = task, monotonic(), True
        self.slots_taken += 1

    def leave(self, run: Run) -> None:
        """Take note that a run's task is over."""
        run.is_over = True
        self._free(run)

    def end(self, run: Run, ending: Ending) -> None:
        """Take an ending; only the first counts."""
        if run.ending is None:
            run.ending = ending
            run.ended = monotonic()
            self._on_ended(run)

    def stop(self, run: Run, ending: Ending, patience_seconds: float = STOP_SECONDS) -> None:
        """Tell a run to stop; it is settled once its connector has, so that the next attempt does
        not meet it at the provider.

        A thread cannot be stopped, and some connectors do not listen. Beyond the patience such a
        run is settled all the same: its job must go on.
        """
        if run.ending is None:
            run.ending = ending
            run.ended = monotonic()
            run.is_stopping = True
            if run.is_alive:
                asyncio.get_running_loop().call_later(patience_seconds, self._stopped, run)
            else:
                self._stopped(run)
        run.cancel()

    def _stopped(self, run: Run) -> None:
        if run.is_stopping:
            run.is_stopping = False
            self._on_ended(run)

    async def wait_until_stopped(self, run: Run) -> None:
        """Wait for a lost run to stop, but not for ever."""
        run.cancel()
        if run.is_alive:
            run.stopped = asyncio.get_running_loop().create_future()
            await asyncio.wait((run.stopped,), timeout=STOP_SECONDS)

    def settled(self, runs: Iterable[Run]) -> None:
        for run in runs:
            run.is_settled = True
            self._note_stopped(run)
            self._unsettled -= 1
            if run.held_bytes is not None:
                self.held -= 1
                self.held_bytes -= run.held_bytes
            if not run.is_alive:
                self._forget(run)
        self.some_settled.set()
        if not self._unsettled:
            self._all_settled.set()
        self._on_room()

    def _free(self, run: Run) -> None:
        """Give the slot back once nothing of the connector is left; forget what is settled too."""
        if run.is_alive:
            return
        self._stopped(run)
        if run.stopped is not None and not run.stopped.done():
            run.stopped.set_result(None)
        if run.has_slot:
            run.has_slot = False
            self.slots_taken -= 1
            self._note_stopped(run)
        if run.is_settled:
            self._forget(run)
        self._on_room()

    def _forget(self, run: Run) -> None:
        if self._runs.get(run.claim.id) is run:  # else it was lost, and claimed here once more
            del self._runs[run.claim.id]
            self.poison_jobs -= run.is_poison

    def _note_stopped(self, run: Run) -> None:
        if run.is_lost and run.is_settled and not run.is_alive:
            self.stopped.append((run.claim.id, run.claim.lease_token))
            self.on_stopped()

    def hold(self, run: Run) -> None:
        """Take note that a run has to wait for somebody else's lock to be settled."""
        if run.held_bytes is None:
            run.held_bytes = run.ending.payload_bytes if isinstance(run.ending, Page) else 0
            self.held += 1
            self.held_bytes += run.held_bytes
            self._on_room()

    def lose(self, job_ids: Iterable[UUID]) -> list[Run]:
        """Stop the runs whose jobs are no longer ours; nothing will be written for them."""
        lost = []
        for job_id in job_ids:
            run = self._runs.get(job_id)
            if run is not None and run.ending is None:
                self.abandon(run)
                lost.append(run)
                run.cancel()
        return lost

    def abandon(self, run: Run) -> None:
        """Take note that a run's job is no longer ours; nothing will be written for it."""
        run.ending, run.is_lost = Interrupted(), True
        self.settled([run])

    def stop_overdue(self, *, max_run_seconds: float, safe_seconds: float) -> None:
        """Stop the runs that took too long, and those whose lease could not be kept.

        Where the database cannot be reached, a lease is counted by this process's own clock:
        another worker may soon have the job, and the provider must not be called twice at once.
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

    async def wait_until_settled(self) -> None:
        await self._all_settled.wait()
