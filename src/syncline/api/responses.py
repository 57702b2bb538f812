"""The fields of every answer."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from syncline.api.problems import MEDIA_TYPE
from syncline.model import ApiKey, Attempt, Connection, Job
from syncline.services.edits import version_of

Json = dict[str, Any]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the problems that a route may answer with, for the OpenAPI document."""
    schema = {"schema": {"$ref": "#/components/schemas/ProblemOut"}}
    return {
        status: {"description": "Refused", "content": {MEDIA_TYPE: schema}, "model": ProblemOut}
        for status in (400, 401, 403, 422, 429, 503, *statuses)
    }


def etag(version: str) -> str:
    return f'"{version}"'


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
    version: str = Field(description="Changes with every edit. Also the `ETag`.")

    @classmethod
    def of(cls, connection: Connection) -> "ConnectionOut":
        shown = {name: getattr(connection, name) for name in cls.model_fields if name != "version"}
        return cls(**shown, version=version_of(connection))


class BroughtOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    calls: int = Field(description="How many HTTP calls its last attempt made.")
    milliseconds: int = Field(description="How long the connector took.")
    signals: int
    cursor_before: Any = Field(description="Above 2 kB only its `sha256` and `bytes`.")
    cursor_after: Any


class JobOut(BaseModel):
    id: UUID
    tenant_id: str
    provider_slug: str
    connection_id: UUID
    job_type: str
    status: str
    priority: int
    attempts: int = Field(description="How many attempts have failed.")
    scheduled_at: datetime
    retry_after: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    cursor: Any
    error: Any = Field(description="The last error: class, message, attempt, time.")
    slot_at: datetime | None
    created_at: datetime
    updated_at: datetime
    brought: BroughtOut | None = Field(
        description="What its run brought. Null if it brought nothing, or has not succeeded."
    )

    @classmethod
    def of(cls, job: Job) -> "JobOut":
        return cls(**{name: getattr(job, name) for name in cls.model_fields})


class CallOut(BaseModel):
    method: str
    url: str = Field(description="Without values of the query and without secrets.")
    status: int | None
    milliseconds: int
    failure: str | None = Field(None, description="Why there was no answer.")


class AttemptOut(BaseModel):
    id: UUID
    job_id: UUID
    ended_at: datetime
    milliseconds: int | None = Field(description="Null if its lease lapsed.")
    worker: str | None = Field(description="Host and process. For operators.")
    error: Any
    trace: str | None = Field(description="Where the connector raised it. For operators.")
    calls: list[CallOut] = Field(description="The first 20 and the last 5 of `call_count`.")
    call_count: int
    signals: int = Field(description="How many it stored before it failed.")

    @classmethod
    def of(cls, attempt: Attempt) -> "AttemptOut":
        shown = {name: getattr(attempt, name) for name in cls.model_fields if name != "calls"}
        return cls(**shown, calls=[CallOut(**call) for call in attempt.calls])


class AttemptsOut(BaseModel):
    items: list[AttemptOut]


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
    searched_to: datetime | None = Field(
        description="Made at this time is the last job that was searched, if the page is not full."
    )


class SignalPage(BaseModel):
    items: list[SignalOut]
    next_page: str | None


class FollowedOut(BaseModel):
    items: list[SignalOut]
    position: str = Field(description="Where to continue, even if there are no items.")
    is_caught_up: bool = Field(description="If false, there may be more: ask again at once.")
    server_changed: bool = Field(
        description="The database server was restarted, promoted or restored since the position. "
        "If that lost commits, signals returned before may no longer be stored."
    )


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


class BudgetOut(BaseModel):
    scope: str
    calls: int | None = Field(description="Most calls in any such span; null: no limit.")
    per_seconds: float
    burst: int | None
    providers: list[str] = Field(description="Whose calls count.")
    source: str = Field(description="`operator`, `settings` or `connector`.")
    is_in_force: bool = Field(description="False if another source counts instead.")
    room: float | None = Field(description="Calls that may be made now, if all share one bucket.")
    room_at: datetime | None = Field(description="When there is room again, if there is none.")
    used: int | None = Field(description="Calls that were taken since `used_since`.")
    used_since: datetime | None


class BudgetsOut(BaseModel):
    items: list[BudgetOut]


class KeyOut(BaseModel):
    id: UUID
    name: str
    tenant_id: str | None = Field(
        description="The only tenant it may see; null for an operator's key."
    )
    scope: str
    status: str = Field(description="`active`, `expiring`, `expired` or `revoked`.")
    begins_with: str = Field(description="The part of the key that is not secret.")
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="May be a minute behind.")

    @classmethod
    def of(cls, key: ApiKey) -> "KeyOut":
        return cls(**{name: getattr(key, name) for name in cls.model_fields})


class KeysOut(BaseModel):
    items: list[KeyOut]


class CapOut(BaseModel):
    tenant_id: str | None = Field(description="Null for all tenants.")
    provider_slug: str | None = Field(description="Null for all providers.")
    max_running: int
    running: int


class CapsOut(BaseModel):
    items: list[CapOut]


class TenantOut(BaseModel):
    tenant_id: str
    connections: dict[str, int] | None = Field(
        None, description="By status, up to 2,000 of each tenant. Null if they were not counted."
    )
    inexact: dict[str, str] = Field(
        default_factory=dict, description="`connections` is `at_least` if there are more."
    )
    weight: float
    over_share: bool = Field(description="Whether it asks for more than its share now.")
    over_share_since: datetime | None = None
    due: int | None = Field(description="How many jobs it has due, if it is over its share.")
    caps: list[CapOut]
    paused_at: datetime | None = Field(None, description="Since when none of its jobs start.")
    paused_because: str | None = None


class PauseOut(BaseModel):
    tenant_id: str | None = None
    provider_slug: str | None = None
    paused_at: datetime
    reason: str | None = None


class PausesOut(BaseModel):
    items: list[PauseOut]


class TenantsOut(BaseModel):
    items: list[TenantOut]
    next_page: str | None = None


class NewKeyOut(KeyOut):
    key: str = Field(description="The key itself. It is shown only once.", repr=False)


class FieldError(BaseModel):
    field: str
    rule: str


class ProblemOut(BaseModel):
    """RFC 9457."""

    type: str = Field(description="Where `/docs` describes the code.")
    title: str
    status: int
    code: str = Field(description="What went wrong, in a word that does not change.")
    detail: str
    trace_id: str = Field(
        description="Names the request in the server's log. A `traceparent` that you send is kept."
    )
    errors: list[FieldError] | None = None
    existing_id: UUID | None = None
