"""The fields of the answers about how everything is doing: providers, sums, history, workers."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field

INEXACT = "Fields that are not exact counts: each is an `estimate`, or `at_least` the true count."


class ProviderOut(BaseModel):
    provider_slug: str
    health: str = Field(
        description="`ok`, `failing`, `rate_limited`, `down`, `paused`, or `unknown` if no worker "
        "knows it."
    )
    workers: int
    connections: dict[str, int]
    running: int
    due: int
    later: int = Field(description="Queued for a time that has not come yet.")
    backoff: int
    rate_limited: int
    oldest_due_at: datetime | None
    outcomes: dict[str, int] = Field(
        description="Of the attempts that ended within `within_seconds`; failures by error class."
    )
    within_seconds: float
    failing_since: datetime | None = Field(description="Since when most of its attempts fail.")
    limited_since: datetime | None = Field(description="Since when it limits some of them.")
    troubled_since: datetime | None = Field(
        description="Since when it is not well: paused, down, rate_limited or failing."
    )
    trouble: str | None = Field(
        description="What is wrong and whom it affects; null if it is well."
    )
    affected_connections: int | None = Field(description="Whose jobs wait, if it is not well.")
    affected_tenants: int | None
    inexact: dict[str, str] = Field(description=INEXACT)


class PointOut(BaseModel):
    at: datetime
    outcomes: dict[str, int] = Field(description="Attempts that ended then; failures by class.")
    signals: int
    backlog: int = Field(description="The most jobs that were due at once.")
    duration_p50: float | None = Field(description="Seconds.")
    duration_p95: float | None
    delay_p50: float | None = Field(description="Seconds from due to start.")
    delay_p95: float | None


class HistoryOut(BaseModel):
    now: datetime
    period: str
    points: list[PointOut]


class FloodOut(BaseModel):
    tenant_id: str
    since: datetime | None = Field(description="Since when it asks for more than its share.")
    due: int = Field(description="How many jobs it has due.")
    others: int = Field(description="How many other tenants have jobs due.")
    trouble: str


class DeclarationOut(BaseModel):
    """What a provider's connector declares; null where it declares nothing."""

    provider_slug: str
    title: str
    auth: list[str] | None = Field(
        description="Kinds of credentials: `none`, `token`, `basic`, `oauth2`, `oauth2_grant`, "
        "`headers`, `query`, `ssh_key`, `any`."
    )
    config_schema: dict[str, Any] | None = Field(description="The JSON Schema of a config.")


class ProvidersOut(BaseModel):
    items: list[ProviderOut]
    floods: list[FloodOut] = Field(
        description="Tenants that ask for more than their share now; only operators see them."
    )


class BandOut(BaseModel):
    label: str
    count: int


class FreshnessOut(BaseModel):
    bands: list[BandOut] = Field(description="Active connections by age of their last good sync.")
    sampled: int = Field(description="How many connections were read.")
    is_sample: bool = Field(description="Whether there are more than were read.")


class TroubleOut(BaseModel):
    tenant_id: str
    provider_slug: str
    external_id: str
    connection_id: UUID
    status: str = Field(
        description="`needs_reauth`, `error`, or `backoff` while its job is retried."
    )
    reason: Any
    since: datetime
    attempts: int | None
    retry_after: datetime | None


class StatsOut(BaseModel):
    now: datetime
    connections: dict[str, int]
    running_jobs: int
    due_jobs: int
    later_jobs: int = Field(description="Queued for a time that has not come yet.")
    backoff_jobs: int
    oldest_due_at: datetime | None
    recent_outcomes: dict[str, int]
    signals: int
    workers_alive: int
    freshness: FreshnessOut
    troubles: list[TroubleOut] = Field(description="Connections that need attention, some of each.")
    inexact: dict[str, str] = Field(description=INEXACT)


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
