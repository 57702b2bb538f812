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
from syncline.policy.gates import Gate
from syncline.policy.health import Health

BACKOFF = "backoff"
SUCCEEDED = "succeeded"


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
    """What is due, running and in backoff; counts end at a bound, and `is_bounded` says so."""

    provider_slug: str
    due: int = 0
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
    """One provider. `outcomes` counts recent jobs: `succeeded`, and failures by error class.

    `failures` counts by error class what failed for good within the last hour, or is in backoff.
    """

    provider_slug: str
    health: Health
    workers: int
    connections: Mapping[str, int]
    queue: QueueStats
    outcomes: Mapping[str, int]
    failures: Mapping[str, int]
    gate: Gate | None = None  # why its jobs may not start, if that is so
    budgets: tuple[BudgetUse, ...] = ()  # that its calls count in; only operators see them

    @property
    def succeeded(self) -> int:
        return self.outcomes.get(SUCCEEDED, 0)

    @property
    def failed(self) -> int:
        return sum(self.outcomes.values()) - self.succeeded


@dataclass(frozen=True, slots=True)
class Providers:
    """The providers in use; `kind` says how exact their counts of connections are."""

    now: datetime
    items: Sequence[ProviderStats]
    kind: str = "exact"


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
    outcomes: Mapping[str, Mapping[str, int]]
    failed: Mapping[str, Mapping[str, int]]
    troubles: Sequence[Trouble]
    workers: Sequence[Worker]

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
class Minute:
    """Jobs made, by outcome, and signals stored in one minute; each count may end at a bound."""

    at: datetime
    jobs: Mapping[str, int]
    signals: int


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
