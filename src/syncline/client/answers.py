"""The answers of the API. Fields that a newer server adds are ignored."""

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")
Json = dict[str, Any]


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class Page(Answer, Generic[T]):
    """Some items of a listing, and how to get the next ones."""

    items: list[T]
    next_page: str | None = None


class Connection(Answer):
    id: UUID
    tenant_id: str
    provider_slug: str
    external_id: str
    status: str
    status_reason: Any
    config: Any
    metadata: Any
    created_at: datetime | None
    updated_at: datetime | None
    last_finished_at: datetime | None
    version: str
    """Changes with every edit; pass it as `expected` to change only what you read."""


class Added(Answer):
    id: UUID
    is_new: bool


class AddedMany(Answer):
    created: int
    existing: int
    items: list[Added]
    """In the order of the request."""


class Explanation(Answer):
    reason: str
    summary: str
    due_at: datetime | None
    waits_until: datetime | None
    waits_for_job: UUID | None
    evidence: Json


class Brought(Answer):
    """What the run of a job brought that succeeded; of a long cursor only the digest."""

    calls: int
    milliseconds: int
    signals: int
    cursor_before: Any
    cursor_after: Any


class Job(Answer):
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
    brought: Brought | None


class ProviderCall(Answer):
    """A call to the provider that an attempt made."""

    method: str
    url: str
    status: int | None
    milliseconds: int
    failure: str | None = None


class Attempt(Answer):
    """A failed attempt of a job."""

    id: UUID
    job_id: UUID
    ended_at: datetime
    milliseconds: int | None
    worker: str | None
    error: Any
    trace: str | None
    calls: list[ProviderCall]
    call_count: int
    signals: int


class Act(Answer):
    """What somebody did: a row of the audit."""

    id: UUID
    acted_at: datetime
    actor_kind: str
    actor: str
    key_id: UUID | None
    address: str | None
    action: str
    tenant_id: str | None
    provider_slug: str | None
    subject: str | None
    connection_ids: list[UUID]
    count: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Signal(Answer):
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


class Batch(Answer):
    """Signals of a follower. Store `position` together with what you made of `items`."""

    items: list[Signal]
    position: str
    is_caught_up: bool
    server_changed: bool


class Provider(Answer):
    provider_slug: str
    health: str
    workers: int
    connections: dict[str, int]
    running: int
    due: int
    later: int
    backoff: int
    rate_limited: int
    oldest_due_at: datetime | None
    outcomes: dict[str, int]
    within_seconds: float
    failing_since: datetime | None
    limited_since: datetime | None
    troubled_since: datetime | None
    trouble: str | None
    affected_connections: int | None
    affected_tenants: int | None
    inexact: dict[str, str]


class Flood(Answer):
    tenant_id: str
    since: datetime | None
    due: int
    others: int
    trouble: str


class ProviderPage(Page[Provider]):
    floods: list[Flood]


class Declaration(Answer):
    provider_slug: str
    title: str
    auth: list[str] | None
    config_schema: Json | None


class Band(Answer):
    label: str
    count: int


class Freshness(Answer):
    bands: list[Band]
    sampled: int
    is_sample: bool


class Trouble(Answer):
    tenant_id: str
    provider_slug: str
    external_id: str
    connection_id: UUID
    status: str
    reason: Any
    since: datetime
    attempts: int | None
    retry_after: datetime | None


class Stats(Answer):
    now: datetime
    connections: dict[str, int]
    running_jobs: int
    due_jobs: int
    later_jobs: int
    backoff_jobs: int
    oldest_due_at: datetime | None
    recent_outcomes: dict[str, int]
    signals: int
    workers_alive: int
    freshness: Freshness
    troubles: list[Trouble]
    inexact: dict[str, str]


class Point(Answer):
    at: datetime
    outcomes: dict[str, int]
    signals: int
    backlog: int
    duration_p50: float | None
    duration_p95: float | None
    delay_p50: float | None
    delay_p95: float | None


class History(Answer):
    now: datetime
    period: str
    points: list[Point]


class Worker(Answer):
    id: UUID
    host: str
    pid: int
    version: str
    roles: list[str]
    providers: list[str]
    slots: int
    busy: int
    status: str
    started_at: datetime
    beat_at: datetime


class Budget(Answer):
    scope: str
    calls: int | None
    per_seconds: float
    burst: int | None
    providers: list[str]
    source: str
    is_in_force: bool
    room: float | None
    room_at: datetime | None
    used: int | None
    used_since: datetime | None


class Cap(Answer):
    tenant_id: str | None
    provider_slug: str | None
    max_running: int
    running: int


class Tenant(Answer):
    tenant_id: str
    connections: dict[str, int] | None = None
    inexact: dict[str, str] = {}
    weight: float
    over_share: bool
    over_share_since: datetime | None = None
    due: int | None
    caps: list[Cap]
    paused_at: datetime | None = None
    paused_because: str | None = None


class Refused(Answer):
    id: UUID
    reason: str


class Action(Answer):
    """An action on many rows, or the preview of one, which has no id."""

    id: UUID | None
    target: Literal["connections", "jobs"]
    action: str
    filter: dict[str, Any]
    state: Literal["preview", "running", "done", "cancelled"]
    count: int
    is_exact: bool
    done: int = 0
    refused: int = 0
    refusals: dict[str, int] = {}
    refused_first: list[Refused] = []
    first_connections: list[Connection] = []
    first_jobs: list[Job] = []
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Pause(Answer):
    """A tenant or a provider whose jobs do not start."""

    tenant_id: str | None = None
    provider_slug: str | None = None
    paused_at: datetime
    reason: str | None = None


class Key(Answer):
    id: UUID
    name: str
    tenant_id: str | None
    scope: str
    status: str
    begins_with: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class NewKey(Key):
    key: str = Field(repr=False)
    """The key itself. No later answer contains it."""
