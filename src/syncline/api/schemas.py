"""What goes in and comes out over HTTP: every field, and the rule it must keep."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from syncline.engine.edits import version_of
from syncline.model import Connection, ConnectionStatus, Job, JobStatus, JobType
from syncline.store.connection_pages import Order

LARGEST_PAGE = 500
LARGEST_BATCH = 10_000
EXAMPLE_ID = "01993f8e-5c1e-7d3a-9c55-0f4be16bd1a0"

Page = Annotated[
    str | None, Field(description="`next_page` of the page before.", min_length=1, max_length=4096)
]
Limit = Annotated[int, Field(ge=1, le=LARGEST_PAGE, description="How many at most.")]
Text = Annotated[str, Field(min_length=1, max_length=255)]
Interval = Annotated[int, Field(ge=60, le=31_536_000, strict=True)]
Json = dict[str, Any]


class Strict(BaseModel):
    """Refuses fields that it does not know: a typing error would else pass in silence."""

    model_config = ConfigDict(extra="forbid")


class ConnectionQuery(Strict):
    tenant: Text | None = Field(None, description="Operators only: one tenant's.")
    provider: Text | None = None
    status: ConnectionStatus | None = None
    prefix: Annotated[str, Field(min_length=1, max_length=1024)] | None = Field(
        None, description="How the external id begins."
    )
    order: Order = Order.ID
    page: Page = None
    limit: Limit = 100


class JobQuery(Strict):
    tenant: Text | None = Field(None, description="Operators only: one tenant's.")
    connection: UUID | None = None
    provider: Text | None = None
    status: JobStatus | None = None
    type: JobType | None = None
    since: datetime | None = Field(None, description="Made at this time or later.")
    until: datetime | None = Field(None, description="Made before this time.")
    page: Page = None
    limit: Limit = 100


class SignalFilters(Strict):
    tenant: Text | None = Field(None, description="Operators only: one tenant's.")
    connection: UUID | None = None
    provider: Text | None = None
    kind: Text | None = None


class SignalExport(SignalFilters):
    since: datetime | None = Field(None, description="Stored at this time or later.")
    until: datetime | None = Field(None, description="Stored before this time.")


class SignalQuery(SignalExport):
    order: Literal["newest", "oldest"] = "newest"
    page: Page = None
    limit: Limit = 100


class FollowQuery(SignalFilters):
    position: Annotated[str, Field(max_length=64)] = Field(
        "start", description="`start`, `now`, or the `position` of the answer before."
    )
    limit: Limit = 100
    wait: int = Field(0, ge=0, le=25, description="Seconds to wait while nothing is new.")


class TailQuery(SignalFilters):
    position: Annotated[str, Field(max_length=64)] = "now"


class NewConnectionBody(Strict):
    tenant_id: Text | None = Field(None, description="Operators must name it; others need not.")
    provider_slug: Annotated[str, Field(min_length=1, max_length=100)]
    external_id: Annotated[str, Field(min_length=1, max_length=1024)]
    config: Json | None = None
    interval_seconds: Interval | None = None


class BulkBody(Strict):
    connections: Annotated[list[NewConnectionBody], Field(min_length=1, max_length=LARGEST_BATCH)]


class EditBody(Strict):
    """What is left out stays; an interval of null is the default, a cursor of null none."""

    interval_seconds: Interval | None = None
    config: Json | None = Field(None, description="Replaces the settings whole.")
    cursor: Any = None


class PauseBody(Strict):
    reason: Annotated[str, Field(min_length=1, max_length=500)] | None = None


class SyncBody(Strict):
    job_type: Literal["incremental", "full"] = "incremental"
    priority: Annotated[int, Field(ge=-32_767, le=32_767, strict=True)] | None = None


class ConnectionOut(BaseModel):
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
    version: str = Field(description="Changes with what people edit; also the `ETag`.")

    @classmethod
    def of(cls, connection: Connection) -> "ConnectionOut":
        shown = {name: getattr(connection, name) for name in cls.model_fields if name != "version"}
        return cls(**shown, version=version_of(connection))


class JobOut(BaseModel):
    id: UUID
    tenant_id: str
    provider_slug: str
    connection_id: UUID
    job_type: str
    status: str
    priority: int
    attempts: int = Field(description="How often it has failed so far.")
    scheduled_at: datetime
    retry_after: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    cursor: Any
    error: Any = Field(description="What last went wrong: class, message, attempt, time.")
    slot_at: datetime | None
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, job: Job) -> "JobOut":
        return cls(**{name: getattr(job, name) for name in cls.model_fields})


class SignalOut(BaseModel):
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


class ConnectionPage(BaseModel):
    items: list[ConnectionOut]
    next_page: str | None


class JobPage(BaseModel):
    items: list[JobOut]
    next_page: str | None


class SignalPage(BaseModel):
    items: list[SignalOut]
    next_page: str | None


class FollowedOut(BaseModel):
    items: list[SignalOut]
    position: str
    is_caught_up: bool


class AddedOut(BaseModel):
    id: UUID
    is_new: bool


class BulkOut(BaseModel):
    created: int
    existing: int
    items: list[AddedOut] = Field(description="In the order of the request.")


class ExplanationOut(BaseModel):
    reason: str
    summary: str
    due_at: datetime | None
    waits_until: datetime | None
    waits_for_job: UUID | None
    evidence: Json


class ProviderOut(BaseModel):
    provider_slug: str
    health: str = Field(description="`ok`, `failing`, `rate_limited` or `unknown` to all workers.")
    workers: int
    connections: dict[str, int]
    running: int
    due: int
    backoff: int
    rate_limited: int
    oldest_due_at: datetime | None
    outcomes: dict[str, int] = Field(description="Of the jobs made last; failures by class.")


class ProvidersOut(BaseModel):
    items: list[ProviderOut]


class StatsOut(BaseModel):
    now: datetime
    connections: dict[str, int]
    running_jobs: int
    due_jobs: int
    backoff_jobs: int
    oldest_due_at: datetime | None
    recent_outcomes: dict[str, int]
    signals: int
    workers_alive: int


class WorkerOut(BaseModel):
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


class WorkersOut(BaseModel):
    items: list[WorkerOut]


class FieldError(BaseModel):
    field: str
    rule: str


class ProblemOut(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldError] | None = None
