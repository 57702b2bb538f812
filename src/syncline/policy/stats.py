"""The nouns of the read side: figures, queues, providers, troubles and activity.

The store fills them. The API, the dashboard and the command line render the same ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.model import Worker, WorkerStatus
from syncline.policy.budgets import BudgetUse
from syncline.policy.caps import CapUse
from syncline.policy.figures import Point
from syncline.policy.gates import Gate
from syncline.policy.health import Health, Recent
from syncline.policy.shares import Flood
from syncline.text import rfc3339

BACKOFF = "backoff"
TOLD = {
    Health.PAUSED: "paused by a person",
    Health.DOWN: "does not answer",
    Health.RATE_LIMITED: "limits us",
}
FLOODS_SHOWN = 5  # of each list; they are sorted by jobs due
UNWELL = {Health.FAILING, Health.RATE_LIMITED, Health.DOWN, Health.PAUSED}


@dataclass(frozen=True, slots=True)
class Figure:
    """A count that is `exact`, an `estimate`, or `at_least` the true one."""

    count: int
    kind: str = "exact"


@dataclass(frozen=True, slots=True)
class Counts:
    """Connections in all and by status, and signals."""

    connections: Figure
    by_status: Mapping[str, Figure]
    signals: Figure


@dataclass(frozen=True, slots=True)
class BackoffGroup:
    """A provider's jobs in backoff after the same class of error.

    `is_hinted`: the provider asked for the pause. `due` jobs have waited long enough.
    """

    error_class: str
    is_hinted: bool
    count: int
    due: int
    first_at: datetime
    last_at: datetime

    @property
    def waiting(self) -> int:
        return self.count - self.due


@dataclass(slots=True)
class QueueStats:
    """What is due, scheduled for later, running and in backoff.

    Counts end at a bound, and `is_bounded` says so.
    """

    provider_slug: str
    due: int = 0
    later: int = 0
    oldest_due_at: datetime | None = None
    running: int = 0
    backoffs: list[BackoffGroup] = field(default_factory=list)
    is_bounded: bool = False
    is_backoff_bounded: bool = False

    @property
    def backoff(self) -> int:
        """Return the jobs whose `retry_after` lies ahead."""
        return sum(group.waiting for group in self.backoffs)

    @property
    def rate_limited(self) -> int:
        """Return the jobs that wait because the provider asked for it."""
        return sum(group.waiting for group in self.backoffs if group.is_hinted)

    def add_due(self, count: int, oldest_at: datetime) -> None:
        self.due += count
        if count and (self.oldest_due_at is None or oldest_at < self.oldest_due_at):
            self.oldest_due_at = oldest_at


@dataclass(frozen=True, slots=True)
class ProviderStats:
    """One provider, and the attempts of it that ended lately.

    `failures` counts by error class what failed for good within the last hour, or is in backoff.
    """

    provider_slug: str
    health: Health
    workers: int
    connections: Mapping[str, int]
    queue: QueueStats
    recent: Recent
    failures: Mapping[str, int]
    gate: Gate | None = None  # why its jobs may not start, if that is so
    caps: Sequence[CapUse] = ()  # at this provider; only operators see them
    budgets: tuple[BudgetUse, ...] = ()  # that its calls count in; only operators see them
    affected: "Affected | None" = None  # who waits, if it is not well

    @property
    def is_unwell(self) -> bool:
        return self.health in UNWELL

    @property
    def failed(self) -> dict[str, int]:
        """Return by error class what failed for good within the last hour."""
        found = dict(self.failures)
        for group in self.queue.backoffs:
            found[group.error_class] = found.get(group.error_class, 0) - group.count
        return {name: count for name, count in found.items() if count > 0}


def troubled_since(one: ProviderStats) -> datetime | None:
    """Return since when a provider is not well, as far as that is known."""
    match one.health:
        case Health.PAUSED:
            return one.gate.paused_at if one.gate else None
        case Health.DOWN:
            return one.gate.opened_at if one.gate else None
        case Health.RATE_LIMITED:
            return one.recent.limited_since
        case Health.FAILING:
            return one.recent.failing_since
    return None


def provider_trouble(one: ProviderStats) -> str:
    """Return what is wrong with a provider, since when, and whom it affects."""
    recent, since = one.recent, troubled_since(one)
    told = TOLD.get(one.health) or f"{recent.failing_share:.0%} of its attempts fail"
    parts = [told + _since(since)]
    if recent.commonest_error is not None and one.health in (Health.DOWN, Health.FAILING):
        parts.append(f"mostly {recent.commonest_error}")
    if one.affected is not None and one.affected.connections:
        least = "at least " if one.affected.is_bounded else ""
        connections = _counted(one.affected.connections, "connection")
        tenants = _counted(one.affected.tenants, "tenant")
        parts.append(f"{least}{connections} of {least}{tenants} wait")
    return "; ".join(parts) + "."


def flood_trouble(one: Flood) -> str:
    """Return since when a tenant asks for more than its share, for how much, and beside whom."""
    parts = [f"asks for more than its share{_since(one.since)}"]
    if one.due:
        parts.append(f"{_counted(one.due, 'job')} of it {'is' if one.due == 1 else 'are'} due")
    if one.others:
        have = "has" if one.others == 1 else "have"
        parts.append(f"{_counted(one.others, 'other tenant')} {have} jobs due and come first")
    return "; ".join(parts) + "."


def _since(at: datetime | None) -> str:
    return f" since {rfc3339(at.replace(microsecond=0))}" if at is not None else ""


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class TenantLine:
    """A tenant with its connections by status; at least so many if `is_bounded`."""

    tenant_id: str
    by_status: Mapping[str, int]
    is_bounded: bool = False

    @property
    def connections(self) -> int:
        return sum(self.by_status.values())


@dataclass(frozen=True, slots=True)
class Affected:
    """How many connections of how many tenants wait; at least so many if `is_bounded`."""

    connections: int
    tenants: int
    is_bounded: bool = False


@dataclass(frozen=True, slots=True)
class Providers:
    """The providers in use; `kind` says how exact their counts of connections are."""

    now: datetime
    items: Sequence[ProviderStats]
    kind: str = "exact"
    floods: Sequence[Flood] = ()  # tenants over their share; only operators see them


@dataclass(frozen=True, slots=True)
class ConnectionRef:
    """Which connection a line is about."""

    tenant_id: str
    provider_slug: str
    external_id: str
    connection_id: UUID


@dataclass(frozen=True, slots=True)
class Trouble(ConnectionRef):
    """A connection in `needs_reauth` or `error`, or one whose job is in `backoff`."""

    status: str
    reason: Any
    since: datetime
    attempts: int | None
    retry_after: datetime | None

    @property
    def waits_for_person(self) -> bool:
        return self.status != BACKOFF


@dataclass(frozen=True, slots=True)
class Overview:
    """The answer to "how is everything?", for all tenants or for one."""

    now: datetime
    counts: Counts
    queues: Mapping[str, QueueStats]
    recent: Mapping[str, Recent]
    failed: Mapping[str, Mapping[str, int]]
    troubles: Sequence[Trouble]
    workers: Sequence[Worker]

    @property
    def outcomes(self) -> dict[str, Mapping[str, int]]:
        """Return how the attempts of each provider ended that ended lately."""
        return {slug: one.outcomes for slug, one in self.recent.items()}

    @property
    def queue(self) -> QueueStats:
        """Return the queues of all providers as one."""
        return sum_queues(self.queues.values())

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.status == WorkerStatus.ALIVE]

    @property
    def dead(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.status == WorkerStatus.DEAD]


def sum_queues(queues: Iterable[QueueStats]) -> QueueStats:
    total = QueueStats("")
    for queue in queues:
        if queue.oldest_due_at is not None:
            total.add_due(queue.due, queue.oldest_due_at)
        total.later += queue.later
        total.running += queue.running
        total.backoffs += queue.backoffs
        total.is_bounded |= queue.is_bounded
        total.is_backoff_bounded |= queue.is_backoff_bounded
    return total


def failures_by_class(queue: QueueStats, failed: Mapping[str, int]) -> dict[str, int]:
    """Return failures by error class: jobs that failed for good, and jobs in backoff."""
    found = dict(failed)
    for group in queue.backoffs:
        found[group.error_class] = found.get(group.error_class, 0) + group.count
    return found


@dataclass(frozen=True, slots=True)
class FailureLine:
    """A class of error: jobs that failed for good lately, and jobs that wait for a retry."""

    error_class: str
    failed: int
    waiting: int


def list_failures(queue: QueueStats, failed: Mapping[str, int]) -> list[FailureLine]:
    """Return the failures by error class, the most frequent first."""
    waiting: dict[str, int] = {}
    for group in queue.backoffs:
        waiting[group.error_class] = waiting.get(group.error_class, 0) + group.waiting
    lines = [
        FailureLine(name, failed.get(name, 0), waiting.get(name, 0))
        for name in sorted({*failed, *waiting})
    ]
    found = [line for line in lines if line.failed or line.waiting]
    return sorted(found, key=lambda line: -line.failed - line.waiting)


def sum_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return total


@dataclass(frozen=True, slots=True)
class Attempt(ConnectionRef):
    job_id: UUID
    job_type: str
    status: str
    attempts: int
    started_at: datetime
    finished_at: datetime | None
    error: Any


@dataclass(frozen=True, slots=True)
class NextRun(ConnectionRef):
    due_at: datetime
    attempts: int


@dataclass(frozen=True, slots=True)
class LatestSignal(ConnectionRef):
    kind: str
    occurred_at: datetime
    preview: str


@dataclass(frozen=True, slots=True)
class RunningJob(ConnectionRef):
    job_type: str
    started_at: datetime
    attempts: int


@dataclass(frozen=True, slots=True)
class Activity:
    """What happens now. `jobs_made` and `signals_stored` only grow; two readings give a rate."""

    now: datetime
    pending_jobs: Mapping[str, Figure]
    jobs_made: int
    signals_stored: int
    recent: Sequence[Attempt]
    next_runs: Sequence[NextRun]
    signals: Sequence[LatestSignal]
    slowest: Sequence[RunningJob]


@dataclass(frozen=True, slots=True)
class History:
    """What happened over a period, the oldest point first."""

    now: datetime
    period: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class SignalsOfJobs:
    """Signals by job; if the count reached its bound, jobs before `counted_from` are missing."""

    by_job: Mapping[UUID, int]
    counted_from: datetime | None = None

    def of(self, job_id: UUID, started_at: datetime | None) -> int | None:
        """Return how many signals a job stored; None if they were not counted."""
        if self.counted_from and (started_at is None or started_at <= self.counted_from):
            return None
        return self.by_job.get(job_id, 0)
