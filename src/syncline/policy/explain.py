"""Why a connection runs, or does not run, at this moment: decided from evidence alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never
from uuid import UUID

from syncline.model import ConnectionStatus, JobStatus, Worker, WorkerStatus
from syncline.policy.evidence import (
    Evidence,
    Explanation,
    PendingJob,
    Reason,
    StoppingJob,
    describe,
)
from syncline.policy.gates import TenantPause
from syncline.policy.sentences import error_line, instant_text, line_of, moment, reason_line
from syncline.policy.status import StoredStatus, trouble_before
from syncline.text import span


@dataclass(frozen=True, slots=True)
class Cause:
    reason: Reason
    summary: str
    due_at: datetime | None = None
    waits_until: datetime | None = None
    waits_for_job: UUID | None = None


def explain(evidence: Evidence) -> Explanation:
    """Return why the connection is, or is not, running at this moment."""
    cause = _judge(evidence)
    sentences = [cause.summary, *_since_last_success(evidence), *_complaints(evidence)]
    return Explanation(
        reason=cause.reason,
        summary=" ".join(sentences),
        due_at=cause.due_at,
        waits_until=cause.waits_until,
        waits_for_job=cause.waits_for_job,
        evidence=describe(evidence),
    )


def _judge(evidence: Evidence) -> Cause:
    line = reason_line(evidence.status_reason)
    why = f" ({line})" if line else ""
    match evidence.status:
        case ConnectionStatus.ACTIVE:
            return _judge_active(evidence)
        case ConnectionStatus.PAUSED:
            reason = Reason.PAUSED
            summary = f"It was paused{why} and is not scheduled until it is resumed."
            summary += _describe_before(evidence)
        case ConnectionStatus.NEEDS_REAUTH:
            reason = Reason.NEEDS_REAUTH
            summary = f"The provider no longer accepts its credentials{why}. "
            summary += "Have it authorised again, then resume it."
        case ConnectionStatus.ERROR:
            reason = Reason.ERROR
            summary = f"It stopped because of an error that no retry can fix{why}. "
            summary += "Fix the cause, then resume it."
        case ConnectionStatus.REVOKED:
            reason = Reason.REVOKED
            summary = f"It was revoked{why}; it will not run again."
        case _:
            assert_never(evidence.status)
    if running := _pending(evidence, JobStatus.RUNNING):
        summary += f" Job {running[0].id}, which started before, is still running."
    return Cause(reason, summary)


def _describe_before(evidence: Evidence) -> str:
    """Return the trouble that the pause left as it was."""
    before = trouble_before(StoredStatus(evidence.status, evidence.status_reason))
    if before is None:
        return ""
    line = reason_line(before.reason)
    why = f" ({line})" if line else ""
    return f" Before the pause it was in {before.status}{why}; resuming it restores that."


def _judge_active(evidence: Evidence) -> Cause:
    running = _pending(evidence, JobStatus.RUNNING)
    queued = _pending(evidence, JobStatus.QUEUED)
    if evidence.tenant_pause is not None and not running:
        return _judge_tenant_pause(evidence, evidence.tenant_pause, queued)
    if not queued:
        return _judge_running(evidence, running[0]) if running else _judge_unplanned(evidence)
    first = min(queued, key=lambda job: (job.due_at > evidence.now, job.due_at, job.id))
    blocking = [job for job in running if not evidence.flight_by_type]
    if running and (first.due_at > evidence.now or not blocking):
        return _judge_running(evidence, running[0])
    return _judge_queued(evidence, first, blocking)


def _judge_tenant_pause(
    evidence: Evidence, pause: TenantPause, queued: Sequence[PendingJob]
) -> Cause:
    why = f" ({line_of(pause.paused_because)})" if pause.paused_because else ""
    waiting = " Its queued job stays in the queue until then." if queued else ""
    return Cause(
        Reason.TENANT_PAUSED,
        f"Its tenant was paused {moment(pause.paused_at, evidence.now)}{why}.{waiting} "
        "`syncline tenants resume` with the tenant's name lets its jobs start again.",
        queued[0].due_at if queued else None,
    )


def _pending(evidence: Evidence, status: JobStatus) -> list[PendingJob]:
    return [job for job in evidence.pending if job.status == status]


def _judge_running(evidence: Evidence, job: PendingJob) -> Cause:
    began = job.started_at or job.scheduled_at
    took = span(evidence.now - began)
    if job.lease_expires_at is not None and job.lease_expires_at <= evidence.now:
        return Cause(
            Reason.LEASE_LAPSED,
            f"Job {job.id} was running, but its worker stopped renewing its lease, which ended "
            f"{moment(job.lease_expires_at, evidence.now)}. A live worker takes the job over "
            "within seconds.",
            job.due_at,
            waits_for_job=job.id,
        )
    return Cause(
        Reason.RUNNING,
        f"It is running: {job.job_type} job {job.id} began {took} ago"
        + (f", after {job.attempts} failures." if job.attempts else "."),
        job.due_at,
        waits_for_job=job.id,
    )


def _judge_unplanned(evidence: Evidence) -> Cause:
    now, slot = evidence.now, evidence.next_slot_at
    queued_at = slot - evidence.lookahead
    missing = _is_scheduler_missing(evidence)
    if missing and queued_at <= now:
        last = evidence.last_tick_at
        seen = f"the last tick was {moment(last, now)}" if last else "none has ever ticked"
        return Cause(
            Reason.NO_SCHEDULER,
            f"It is due, but no scheduler is running ({seen}): start one with `syncline run`.",
            slot,
        )
    if queued_at <= now:
        return Cause(
            Reason.NEXT_TICK,
            f"It is due, and the next tick queues its job, within {span(evidence.tick_interval)}.",
            slot,
            waits_until=now + evidence.tick_interval,
        )
    return Cause(
        Reason.NOT_DUE,
        f"It is not due yet: it runs every {span(evidence.interval)} and its next slot is "
        f"{moment(slot, now)}. Its job is queued shortly before that."
        + (" But no scheduler is running now." if missing else ""),
        slot,
        waits_until=slot,
    )


def _judge_queued(evidence: Evidence, job: PendingJob, blocking: Sequence[PendingJob]) -> Cause:
    now = evidence.now
    if (cause := _judge_gate(evidence, job) or _judge_budget(evidence, job)) is not None:
        return cause
    if job.retry_after is not None and job.retry_after > now:
        return _judge_backoff(evidence, job, job.retry_after)
    if job.scheduled_at > now:
        return _judge_ahead(evidence, job)
    if blocking:
        other = blocking[0]
        return Cause(
            Reason.SINGLE_FLIGHT,
            f"Its {job.job_type} job {job.id} is due, but a connection runs one job at a time and "
            f"{other.job_type} job {other.id} has been running since "
            f"{instant_text(other.started_at or other.scheduled_at, now)}.",
            job.due_at,
            waits_for_job=other.id,
        )
    for stopping in evidence.stopping:
        if not evidence.flight_by_type or stopping.job_type == job.job_type:
            return _judge_stopping(evidence, job, stopping)
    if (cause := _judge_share(evidence, job)) is not None:
        return cause
    return _judge_workers(evidence, job)


def _judge_gate(evidence: Evidence, job: PendingJob) -> Cause | None:
    """Return why nobody may call the provider, if that is so."""
    gate, now = evidence.gate, evidence.now
    provider = evidence.provider_slug
    if gate is None or not gate.is_shut(now):
        return None
    if gate.paused_at is not None:
        why = f" ({line_of(gate.paused_because)})" if gate.paused_because else ""
        reason, until = Reason.PROVIDER_PAUSED, None
        shown = (
            f"{provider} was paused {moment(gate.paused_at, now)}{why}. "
            f"`syncline providers resume {provider}` lets its jobs start again."
        )
    elif gate.opened_at is not None:
        reason, until = Reason.PROVIDER_OPEN, gate.probe_at
        probe = f"The next probe comes {moment(until, now)}." if until else ""
        shown = (
            f"{provider} has been taken for down since {instant_text(gate.opened_at, now)}: "
            f"{line_of(gate.opened_because or 'its attempts failed')}. {probe} "
            "Its jobs wait without losing attempts."
        )
    else:
        reason, until = Reason.BUDGET, gate.closed_until
        assert until is not None
        shown = (
            f"{provider} limits this application. All of its connections wait, and may call it "
            f"again {moment(until, now)}."
        )
    waits = f"Job {job.id} waits: {shown}"
    return Cause(reason, waits, job.due_at, waits_until=until, waits_for_job=job.id)


def _judge_share(evidence: Evidence, job: PendingJob) -> Cause | None:
    """Return which cap is full, or that the tenant asks for more than its share, if so."""
    since = f"Job {job.id} has been due since {instant_text(job.due_at, evidence.now)}"
    if evidence.full_caps:
        shown = f"{since}, but no more jobs may run at once: {evidence.full_caps[0]}."
        return Cause(Reason.CAP, shown, job.due_at, waits_for_job=job.id)
    if evidence.share is not None:
        shown = (
            f"{since}. Its tenant asks for more than its share ({evidence.share.heavy_due:,} jobs "
            "are due), so its jobs start after those of tenants within theirs."
        )
        return Cause(Reason.FAIR_SHARE, shown, job.due_at, waits_for_job=job.id)
    return None


def _judge_budget(evidence: Evidence, job: PendingJob) -> Cause | None:
    """Return which budget has no room for the job's calls, if that keeps it from starting."""
    now, short = evidence.now, evidence.shortage
    is_put_off = job.retry_after is not None and job.retry_after == job.deferred_until
    if job.scheduled_at > now or not (is_put_off or job.due_at <= now):
        return None
    waits = job.retry_after if is_put_off and job.due_at > now else None
    if short is None and waits is None:
        return None
    if short is None:
        shown, until = "its provider could not be called", waits
    else:
        shown = f"the budget {short.scope!r} ({short.calls} calls in {span(short.per)}) is used up"
        until = max(short.room_at, waits or short.room_at)
    assert until is not None
    return Cause(
        Reason.BUDGET,
        f"Job {job.id} waits, because {shown}. There is room {moment(until, now)}. It has lost no "
        "attempt.",
        job.due_at,
        waits_until=until,
        waits_for_job=job.id,
    )


def _judge_stopping(evidence: Evidence, job: PendingJob, stopping: StoppingJob) -> Cause:
    return Cause(
        Reason.STOPPING,
        f"Its {job.job_type} job {job.id} is due, but job {stopping.id}, which was cancelled, may "
        "still call the provider. It starts once the worker confirms that the cancelled run has "
        f"stopped, or {moment(stopping.stops_by, evidence.now)}.",
        job.due_at,
        waits_until=stopping.stops_by,
        waits_for_job=stopping.id,
    )


def _judge_backoff(evidence: Evidence, job: PendingJob, until: datetime) -> Cause:
    is_hinted = isinstance(job.error, dict) and job.error.get("hinted") is True
    failed = f"{job.attempts} time{'s' if job.attempts != 1 else ''}"
    error = f": {line}" if (line := error_line(job.error)) else ""
    asked = "The provider asked for this pause." if is_hinted else "`sync now` ends the wait."
    return Cause(
        Reason.RATE_LIMITED if is_hinted else Reason.BACKOFF,
        f"Job {job.id} has failed {failed}{error}. It is tried again "
        f"{moment(until, evidence.now)}. {asked}",
        job.due_at,
        waits_until=until,
        waits_for_job=job.id,
    )


def _judge_ahead(evidence: Evidence, job: PendingJob) -> Cause:
    now, start = evidence.now, moment(job.scheduled_at, evidence.now)
    if job.slot_at is not None and job.slot_at <= now:
        return Cause(
            Reason.JITTER,
            f"Its slot came {moment(job.slot_at, now)}. Job {job.id} starts {start}: jitter keeps "
            "connections from running all at once.",
            job.due_at,
            waits_until=job.scheduled_at,
            waits_for_job=job.id,
        )
    return Cause(
        Reason.SCHEDULED,
        f"Job {job.id} is queued for later and starts {start}.",
        job.due_at,
        waits_until=job.scheduled_at,
        waits_for_job=job.id,
    )


def _judge_workers(evidence: Evidence, job: PendingJob) -> Cause:
    """Return why a due job has not been claimed."""
    since = f"Job {job.id} has been due since {instant_text(job.due_at, evidence.now)}"
    alive = [
        worker
        for worker in evidence.workers
        if worker.status == WorkerStatus.ALIVE and "executor" in worker.roles
    ]
    able = [worker for worker in alive if evidence.provider_slug in worker.providers]
    if not alive:
        reason, shown = Reason.NO_WORKER, _describe_no_worker(evidence.workers)
    elif not able:
        known = ", ".join(sorted({slug for worker in alive for slug in worker.providers})) or "none"
        reason = Reason.PROVIDER_UNKNOWN
        shown = (
            f"no worker has a connector for {evidence.provider_slug!r}; those alive "
            f"({len(alive)}) know {known}. Install or name its connector for a worker, "
            "and restart that worker: it reads what is installed when it starts."
        )
    elif all(worker.busy >= worker.slots for worker in able):
        reason = Reason.WORKER_BUSY
        slots = sum(worker.slots for worker in able)
        shown = (
            f"all {slots} slots of the {len(able)} workers that can run it are taken. "
            "Add workers; if executor.concurrency is a number, raise it."
        )
    elif job.lapses > 1:
        reason = Reason.SUSPECT
        shown = (
            f"its lease lapsed {job.lapses} times in a row, so it may be what kills workers; each "
            "worker runs only one such job at a time."
        )
    else:
        return Cause(
            Reason.ABOUT_TO_START,
            f"{since}, and a worker with a free slot claims it within a moment.",
            job.due_at,
            waits_for_job=job.id,
        )
    return Cause(reason, f"{since}, but {shown}", job.due_at, waits_for_job=job.id)


def _describe_no_worker(workers: Iterable[Worker]) -> str:
    dead = sum(worker.status == WorkerStatus.DEAD for worker in workers)
    gone = f" ({dead} died within a day)" if dead else ""
    return f"no worker is alive{gone}: start one with `syncline run`."


def _is_scheduler_missing(evidence: Evidence) -> bool:
    """Return whether no scheduler ticked recently and no live worker has the role."""
    silent_since = evidence.now - 2 * evidence.tick_interval
    ticked = evidence.last_tick_at is not None and evidence.last_tick_at >= silent_since
    present = any(
        worker.status == WorkerStatus.ALIVE and "scheduler" in worker.roles
        for worker in evidence.workers
    )
    return not ticked and not present


def _since_last_success(evidence: Evidence) -> list[str]:
    if evidence.last_succeeded_at is None:
        return ["None of its kept jobs has succeeded yet."]
    return [f"Its last good sync ended {moment(evidence.last_succeeded_at, evidence.now)}."]


def _complaints(evidence: Evidence) -> list[str]:
    return [f"Its metadata holds a bad value: {complaint}." for complaint in evidence.complaints]
