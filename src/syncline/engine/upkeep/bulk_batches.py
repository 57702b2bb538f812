"""One batch of an action on many rows: lock, decide, write."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from syncline.clock import new_id
from syncline.model import JobStatus, JobType
from syncline.policy import status
from syncline.policy.audit import Action, Entry
from syncline.policy.bulk import BulkAction, BulkVerb, Tally, refusal_of
from syncline.store.data import connections
from syncline.store.data.connections import LockedConnection
from syncline.store.pool import Transaction
from syncline.store.queue import bulk_changes, jobs
from syncline.store.queue.bulk_changes import FoundJob, NewRun
from syncline.text import rfc3339

HELD = "is held by another transaction"
CHANGED = "changed meanwhile, and no longer matches"
PRIORITY = 0  # of the runs, like that of interval jobs: many must not push everybody else aside
RECORDED = {
    BulkVerb.PAUSE: Action.CONNECTIONS_PAUSE,
    BulkVerb.RESUME: Action.CONNECTIONS_RESUME,
    BulkVerb.SYNC: Action.CONNECTIONS_SYNC,
    BulkVerb.SET_INTERVAL: Action.CONNECTIONS_EDIT,
    BulkVerb.RETRY: Action.JOBS_RETRY,
    BulkVerb.CANCEL: Action.JOBS_CANCEL,
}


@dataclass(frozen=True, slots=True)
class Batch:
    """The next rows of an action, and whether to leave out what another transaction holds."""

    action: BulkAction
    ids: Sequence[UUID]
    now: datetime
    skips_held: bool


@dataclass(slots=True)
class Outcome:
    """What a batch did, and what the audit is told."""

    tally: Tally = field(default_factory=Tally)
    entries: list[Entry] = field(default_factory=list)
    makes_due: bool = False

    def note(self, action: BulkAction, changed: Iterable[LockedConnection]) -> None:
        """Tell the audit, by tenant, which connections were changed."""
        by_tenant: dict[str, list[UUID]] = defaultdict(list)
        for connection in changed:
            by_tenant[connection.tenant_id].append(connection.id)
        self.entries = [
            Entry(
                RECORDED[action.action],
                tenant_id=tenant,
                connection_ids=tuple(ids),
                count=len(ids),
                after={"bulk_action": str(action.id), **action.options},
            )
            for tenant, ids in sorted(by_tenant.items())
        ]


async def change_connections(tx: Transaction, batch: Batch) -> Outcome:
    """Change the connections of a batch, but those whose status forbids it."""
    outcome, action = Outcome(), batch.action
    locked, held = await _lock(tx, batch.ids, batch)
    for id_ in sorted(held):
        outcome.tally.refuse(id_, HELD)
    wanted = action.wanted.status
    fitting = []
    for connection in locked.values():
        refusal = refusal_of(action.action, connection.status)
        if wanted is not None and connection.status != wanted:
            refusal = CHANGED
        if refusal is not None:
            outcome.tally.refuse(connection.id, refusal)
        else:
            fitting.append(connection)
    if fitting:
        await _change(tx, batch, [connection.id for connection in fitting])
    outcome.tally.done = len(fitting)
    outcome.makes_due = action.action is BulkVerb.SYNC and bool(fitting)
    outcome.note(action, fitting)
    return outcome


async def _lock(
    tx: Transaction, ids: Sequence[UUID], batch: Batch
) -> tuple[dict[UUID, LockedConnection], set[UUID]]:
    """Lock connections in the order of their ids; also return the ids of those that are held."""
    if batch.skips_held:
        return await connections.lock_free(tx, ids)
    return await connections.lock(tx, ids), set()


async def _change(tx: Transaction, batch: Batch, ids: Sequence[UUID]) -> None:
    action, now = batch.action, batch.now
    match action.action:
        case BulkVerb.PAUSE:
            why = action.options.get("reason") or "paused"
            by = action.options.get("by")
            found = await connections.read_statuses(tx, ids)
            paused = {
                id_: status.pause(present, why=why, since=rfc3339(now), by=by)
                for id_, present in found.items()
            }
            await connections.set_statuses(tx, paused, now=now)
            await jobs.cancel_queued(tx, ids, now=now)
        case BulkVerb.RESUME:
            found = await connections.read_statuses(tx, ids)
            resumed = {id_: status.resume(present) for id_, present in found.items()}
            await connections.set_statuses(tx, resumed, now=now)
        case BulkVerb.SYNC:
            runs = [NewRun(new_id(), id_, JobType.INCREMENTAL) for id_ in ids]
            await bulk_changes.trigger(tx, runs, priority=PRIORITY, now=now)
        case _:
            seconds = action.options.get("interval_seconds")
            await bulk_changes.set_interval(tx, ids, seconds, now=now)


async def change_jobs(tx: Transaction, batch: Batch) -> Outcome:
    """Retry or cancel the jobs of a batch; their connections are locked first."""
    outcome, action = Outcome(), batch.action
    of_jobs = sorted(await bulk_changes.connections_of(tx, batch.ids))
    locked, held = await _lock(tx, of_jobs, batch)
    free = []
    for job in await bulk_changes.read_jobs(tx, batch.ids):
        if job.connection_id in held:
            outcome.tally.refuse(job.id, HELD)
        elif job.connection_id in locked:
            free.append(job)
    change = _cancel if action.action is BulkVerb.CANCEL else _retry
    changed = await change(tx, batch, free, outcome.tally)
    outcome.tally.done = len(changed)
    outcome.makes_due = action.action is BulkVerb.RETRY and bool(changed)
    outcome.note(action, {job.connection_id: locked[job.connection_id] for job in changed}.values())
    return outcome


async def _cancel(
    tx: Transaction, batch: Batch, found: Sequence[FoundJob], tally: Tally
) -> list[FoundJob]:
    cancelled = await bulk_changes.cancel(tx, [job.id for job in found], now=batch.now)
    for job in found:
        if job.id not in cancelled:
            tally.refuse(job.id, f"is {job.status} already")
    changed = [job for job in found if job.id in cancelled]
    await connections.check_now(tx, sorted({job.connection_id for job in changed}))
    return changed


async def _retry(
    tx: Transaction, batch: Batch, found: Sequence[FoundJob], tally: Tally
) -> list[FoundJob]:
    """Make queued jobs due, and make a new job like each one that ended, the last of its kind."""
    queued = [job for job in found if job.status == JobStatus.QUEUED]
    changed = {job.id for job in queued}
    if queued:
        changed = await bulk_changes.make_due(tx, sorted(changed), now=batch.now)
    begun: dict[tuple[UUID, str], FoundJob] = {}
    for job in found:
        if job.id in changed:
            continue
        key = job.connection_id, job.job_type
        if job.status not in (JobStatus.FAILED, JobStatus.CANCELLED):
            tally.refuse(job.id, f"is {job.status}; there is nothing to retry")
        elif job.connection_status != "active":
            tally.refuse(job.id, f"its connection is {job.connection_status}, not active")
        elif job.is_followed or key in begun:
            tally.refuse(job.id, "a later job of its connection follows it")
        else:
            begun[key] = job
    runs = [NewRun(new_id(), job.connection_id, job.job_type, job.cursor) for job in begun.values()]
    if runs:
        await bulk_changes.trigger(tx, runs, priority=PRIORITY, now=batch.now)
    started = {job.id for job in begun.values()}
    return [job for job in found if job.id in changed | started]
