"""The nouns: connections, jobs, signals, workers, and the values of their columns."""

from collections.abc import Awaitable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID


class ConnectionStatus(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    NEEDS_REAUTH = "needs_reauth"
    ERROR = "error"
    REVOKED = "revoked"


class JobType(StrEnum):
    INCREMENTAL = "incremental"
    FULL = "full"
    WEBHOOK = "webhook"


class JobStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    COMPLETED = "completed"  # read as succeeded; the engine never writes it
    FAILED = "failed"
    CANCELLED = "cancelled"


class WorkerStatus(StrEnum):
    ALIVE = "alive"
    STOPPING = "stopping"
    DEAD = "dead"


class Scope(StrEnum):
    """What a key may do; each scope includes the ones before it."""

    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"

    def includes(self, other: "Scope") -> bool:
        order = list(Scope)
        return order.index(self) >= order.index(other)


class ConnectionOrder(StrEnum):
    """How a listing of connections is sorted; `staleness` puts the oldest last run first."""

    ID = "id"
    EXTERNAL_ID = "external_id"
    STALENESS = "staleness"


class KeyStatus(StrEnum):
    ACTIVE = "active"
    EXPIRING = "expiring"
    EXPIRED = "expired"
    REVOKED = "revoked"


PENDING = (JobStatus.QUEUED, JobStatus.RUNNING)


class QueueState(StrEnum):
    """What a queued job waits for: a slot, its time, or the end of its backoff."""

    DUE = "due"
    LATER = "later"
    BACKOFF = "backoff"


class JobOrder(StrEnum):
    """How a listing of jobs is sorted; `slowest` is one page of the jobs that took longest."""

    NEWEST = "newest"
    SLOWEST = "slowest"


class Spent:
    """Awaits nothing."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


SPENT = Spent()


@dataclass(frozen=True)
class Connection:
    """One tenant's authorised link to one provider; what gets scheduled."""

    id: UUID
    tenant_id: str
    provider_slug: str
    external_id: str
    status: str
    config: Any
    metadata: Any
    status_reason: Any = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    last_finished_at: datetime | None = None
    credentials: Any = field(default=None, repr=False)

    def spend(self, calls: int = 1) -> Awaitable[None]:
        """Say how many calls this run makes without `self.http`, so that its budget counts them.

        `await connection.spend(1)` before a call also waits for room, as a plain
        `connection.spend(1)` does in a thread. Outside of a run it does nothing.
        """
        if isinstance(calls, bool) or not isinstance(calls, int) or calls < 0:
            raise ValueError(f"spend() takes a whole number of calls, not {calls!r}")
        run = vars(self).get("_run")  # of the engine, while it runs
        spending: Awaitable[None] | None = run.budgets.spending(self, calls) if run else None
        return spending or SPENT


@dataclass(frozen=True, slots=True)
class Brought:
    """What the run of a job brought that succeeded; of a long cursor only the digest."""

    calls: int
    milliseconds: int
    signals: int
    cursor_before: Any
    cursor_after: Any


@dataclass(frozen=True, slots=True)
class Job:
    """One intended sync of one connection; `attempts` counts prior failures."""

    id: UUID
    tenant_id: str
    provider_slug: str
    connection_id: UUID
    job_type: str
    status: str
    priority: int
    attempts: int
    scheduled_at: datetime
    retry_after: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    cursor: Any
    error: Any
    slot_at: datetime | None
    created_at: datetime
    updated_at: datetime
    brought: Brought | None = None  # None if it brought nothing, or has not succeeded


@dataclass(frozen=True, slots=True)
class Attempt:
    """A failed attempt of a job. `calls` are the first and the last ones of `call_count`.

    The worker and the trace are for operators; others get None.
    """

    id: UUID
    job_id: UUID
    ended_at: datetime
    milliseconds: int | None  # None, like the worker, if its lease lapsed
    worker: str | None  # its host and process
    error: Any
    trace: str | None
    calls: Sequence[Mapping[str, Any]]  # method, url, status, milliseconds; failure, if it failed
    call_count: int
    signals: int  # that it stored before it failed


@dataclass(frozen=True, slots=True)
class StoredSignal:
    """A signal as it is stored."""

    id: UUID
    tenant_id: str
    provider_slug: str
    connection_id: UUID
    job_id: UUID | None
    kind: str
    occurred_at: datetime
    received_at: datetime
    payload: Any
    dedupe_key: str | None


@dataclass(frozen=True, slots=True)
class ConnectionFilter:
    """Which connections; None means any."""

    tenant_id: str | None = None
    provider_slug: str | None = None
    status: str | None = None
    external_id_prefix: str | None = None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs; None means any. `since` and `until` bound the time they were created.

    `status` may be a QueueState too. Each range holds its beginning and not its end.
    """

    tenant_id: str | None = None
    connection_id: UUID | None = None
    provider_slug: str | None = None
    status: str | None = None
    job_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    error_class: str | None = None
    started_after: datetime | None = None
    started_before: datetime | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None
    min_duration: timedelta | None = None
    max_duration: timedelta | None = None


@dataclass(frozen=True, slots=True)
class SignalFilter:
    """Which signals; None means any. `since` and `until` bound the time they were stored.

    A follower uses no times.
    """

    tenant_id: str | None = None
    connection_id: UUID | None = None
    provider_slug: str | None = None
    kind: str | None = None
    job_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None
    occurred_since: datetime | None = None
    occurred_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """How far a follower has read: up to this signal of this transaction of this server start.

    Positions from version 0.1 name no server start.
    """

    transaction: int
    signal_id: UUID
    server_start: datetime | None = None


START = Position(0, UUID(int=0))


@dataclass(frozen=True, slots=True)
class FollowBatch:
    """The signals after a position, the position to continue from, and whether that is all.

    `server_changed` means that these are the first signals of a later server start. If that was a
    promotion or a restore that lost commits, some signals returned before are no longer stored.
    """

    signals: Sequence[StoredSignal]
    position: Position
    is_caught_up: bool
    server_changed: bool = False


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """Who sends a request, the idempotency key they chose, and a digest of the request."""

    scope: str
    idempotency_key: str
    digest: bytes
    tenant_id: str | None  # None for an operator


@dataclass(frozen=True, slots=True)
class Worker:
    """A process of Syncline: `alive`, `stopping`, or `dead` after 20 s without a heartbeat."""

    id: UUID
    host: str
    pid: int
    version: str
    roles: Sequence[str]
    providers: Sequence[str]
    slots: int
    busy: int
    stopping: bool
    started_at: datetime
    beat_at: datetime
    not_for_tenants: Sequence[str] = ()
    status: str = WorkerStatus.ALIVE


@dataclass(frozen=True, slots=True)
class TableSize:
    """The size of a table with its indexes; `rows` and `dead_rows` are estimates."""

    name: str
    bytes: int
    rows: int
    dead_rows: int


@dataclass(frozen=True, slots=True)
class TenantSize:
    """How many rows and active keys a tenant has."""

    connections: int
    jobs: int
    signals: int
    keys: int

    @property
    def rows(self) -> int:
        return self.connections + self.jobs + self.signals


@dataclass(frozen=True, slots=True)
class SchemaVersions:
    """The newest migration applied to the database, and the newest that this version ships."""

    applied: int
    known: int


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one invariant: `ok`, `broken` with rows that show it, or `not judged`."""

    name: str
    sentence: str
    verdict: str
    rows: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Signal:
    """One normalised event from a provider."""

    kind: str
    occurred_at: datetime
    payload: Mapping[str, Any]
    dedupe_key: str | None = None


@dataclass(frozen=True, slots=True)
class SyncResult:
    """A page: what a connector's `sync` returns."""

    signals: Iterable[Signal] = ()
    next_cursor: Any = None
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class ApiRole:
    """The database role of requests; `statements` are still needed before it can be used."""

    name: str
    is_off: bool
    statements: tuple[str, ...]

    @property
    def is_ready(self) -> bool:
        return not self.is_off and not self.statements


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key without its secret: an operator's, or one tenant's."""

    id: UUID
    name: str
    tenant_id: str | None
    prefix: str
    scope: Scope
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    status: str = KeyStatus.ACTIVE

    @property
    def begins_with(self) -> str:
        """The public beginning of the key, by which people recognise it."""
        if self.prefix.startswith("syncline_"):
            return self.prefix
        return f"{'slop' if self.tenant_id is None else 'slte'}_{self.prefix}"
