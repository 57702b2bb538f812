"""The evidence for an explanation, and the explanation itself."""

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from syncline.model import ConnectionStatus, Worker
from syncline.policy.budgets import Shortage
from syncline.policy.caps import Cap
from syncline.policy.gates import Gate, TenantPause
from syncline.policy.shares import TenantShare
from syncline.text import rfc3339


class Reason(StrEnum):
    """What a connection waits for, in a word that programs can rely on."""

    RUNNING = "running"
    LEASE_LAPSED = "lease_lapsed"
    PAUSED = "paused"
    NEEDS_REAUTH = "needs_reauth"
    ERROR = "error"
    REVOKED = "revoked"
    NOT_DUE = "not_due"
    NEXT_TICK = "next_tick"
    NO_SCHEDULER = "no_scheduler"
    SCHEDULED = "scheduled"
    JITTER = "jitter"
    BACKOFF = "backoff"
    RATE_LIMITED = "rate_limited"
    TENANT_PAUSED = "tenant_paused"
    PROVIDER_PAUSED = "provider_paused"
    PROVIDER_OPEN = "provider_open"
    BUDGET = "budget"
    SINGLE_FLIGHT = "single_flight"
    STOPPING = "stopping"
    NO_WORKER = "no_worker"
    PROVIDER_UNKNOWN = "provider_unknown"
    WORKER_BUSY = "worker_busy"
    SUSPECT = "suspect"
    CAP = "cap"
    FAIR_SHARE = "fair_share"
    ABOUT_TO_START = "about_to_start"


@dataclass(frozen=True, slots=True)
class PendingJob:
    id: UUID
    job_type: str
    status: str
    priority: int
    attempts: int
    lapses: int
    scheduled_at: datetime
    retry_after: datetime | None
    started_at: datetime | None
    slot_at: datetime | None
    lease_expires_at: datetime | None
    error: Any
    deferred_until: datetime | None = None

    @property
    def due_at(self) -> datetime:
        return max(self.scheduled_at, self.retry_after or self.scheduled_at)


@dataclass(frozen=True, slots=True)
class StoppingJob:
    """A job cancelled while it ran; its worker has not confirmed yet that it stopped."""

    id: UUID
    job_type: str
    stops_by: datetime


@dataclass(frozen=True, slots=True)
class EndedJob:
    id: UUID
    job_type: str
    status: str
    finished_at: datetime
    error: Any


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that can keep a connection from running, read at `now`."""

    now: datetime
    connection_id: UUID
    tenant_id: str
    provider_slug: str
    status: ConnectionStatus
    status_reason: Any
    interval: timedelta
    complaints: tuple[str, ...]
    last_finished_at: datetime | None
    last_succeeded_at: datetime | None
    next_slot_at: datetime
    pending: tuple[PendingJob, ...]
    stopping: tuple[StoppingJob, ...]
    last_ended: EndedJob | None
    workers: tuple[Worker, ...]
    last_tick_at: datetime | None
    tick_interval: timedelta
    lookahead: timedelta
    flight_by_type: bool
    gate: Gate | None = None  # of the provider, if it is shut
    full_caps: tuple[Cap, ...] = ()  # that its jobs are under
    share: TenantShare | None = None  # if the tenant asks for more than its share
    tenant_pause: TenantPause | None = None
    shortage: Shortage | None = None  # of a budget that has no room for its calls


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reason for programs, the summary for people, and the evidence for both."""

    reason: Reason
    summary: str
    due_at: datetime | None
    waits_until: datetime | None
    waits_for_job: UUID | None
    evidence: dict[str, Any]


def describe(evidence: Evidence) -> dict[str, Any]:
    """Return the evidence as JSON values."""
    shown = {field.name: getattr(evidence, field.name) for field in fields(evidence)}
    workers = shown.pop("workers")
    for name in ("interval", "tick_interval", "lookahead"):
        shown[f"{name}_seconds"] = shown.pop(name).total_seconds()
    return {
        **{name: _as_json(value) for name, value in shown.items()},
        "workers": [
            {
                "host": worker.host,
                "pid": worker.pid,
                "status": worker.status,
                "roles": list(worker.roles),
                "knows_provider": evidence.provider_slug in worker.providers,
                "slots": worker.slots,
                "busy": worker.busy,
                "beat_at": _as_json(worker.beat_at),
            }
            for worker in workers
        ],
    }


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, tuple):
        return [_as_json(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: _as_json(getattr(value, field.name)) for field in fields(value)}
    return value
