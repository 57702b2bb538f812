"""The fields of every query, body and header, and the rules they must keep."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

from fastapi import Header
from pydantic import BaseModel, ConfigDict, Field

from syncline.model import (
    ConnectionOrder,
    ConnectionStatus,
    JobOrder,
    JobStatus,
    JobType,
    QueueState,
    Scope,
)
from syncline.policy.audit import Action

LARGEST_PAGE = 500
LARGEST_BATCH = 10_000

Page = Annotated[
    str | None,
    Field(description="The `next_page` of the previous answer.", min_length=1, max_length=4096),
]
Limit = Annotated[int, Field(ge=1, le=LARGEST_PAGE, description="Maximum number of items.")]
Text = Annotated[str, Field(min_length=1, max_length=255)]
Interval = Annotated[int, Field(ge=60, le=31_536_000, strict=True)]
Json = dict[str, Any]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="A repetition with the same key within a day changes nothing more.",
    ),
]
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=100,
        description="An `ETag` you read before. If it has changed since, nothing is done.",
    ),
]


def expected_version(if_match: str | None) -> str | None:
    """Return the version that the header requires; None means any."""
    if if_match is None or if_match.strip() == "*":
        return None
    # What follows the dot says how the whole answer looked, which runs change too.
    return if_match.strip().removeprefix("W/").strip('"').partition(".")[0]


class Strict(BaseModel):
    """Refuses unknown fields, so that a misspelt one does not pass in silence."""

    model_config = ConfigDict(extra="forbid")


S = TypeVar("S", bound=StrEnum)
Statuses = Annotated[
    list[S],
    Field(
        default_factory=list, max_length=10, description="Repeat it for any of several statuses."
    ),
]
Duration = Annotated[float, Field(ge=0, le=315_000_000)] | None


class ConnectionQuery(Strict):
    tenant: Text | None = Field(None, description="Only this tenant. For operators.")
    provider: Text | None = None
    status: Statuses[ConnectionStatus]
    prefix: Annotated[str, Field(min_length=1, max_length=1024)] | None = Field(
        None, description="Only external ids that begin with this."
    )
    order: ConnectionOrder = ConnectionOrder.ID
    page: Page = None
    limit: Limit = 100


class TenantQuery(Strict):
    only_set: bool = Field(
        False,
        description="Only tenants with a weight, a cap or a pause, and those over their share now.",
    )
    page: Page = None
    limit: Limit = 100


class JobQuery(Strict):
    tenant: Text | None = Field(None, description="Only this tenant. For operators.")
    connection: UUID | None = None
    provider: Text | None = None
    status: Statuses[JobStatus | QueueState]
    type: JobType | None = None
    since: datetime | None = Field(None, description="Created at this time or later.")
    until: datetime | None = Field(None, description="Created before this time.")
    started_after: datetime | None = Field(None, description="Started then or later.")
    started_before: datetime | None = None
    finished_after: datetime | None = Field(None, description="Ended then or later.")
    finished_before: datetime | None = None
    error_class: Text | None = Field(None, description="Of the last error, such as `Transient`.")
    min_duration_seconds: Duration = Field(None, description="Ran so long or longer.")
    max_duration_seconds: Duration = Field(None, description="Ran for less.")
    order: JobOrder = Field(
        JobOrder.NEWEST, description="`slowest` is one page, of the newest 50,000."
    )
    page: Page = None
    limit: Limit = 100


class AuditQuery(Strict):
    tenant: Text | None = Field(None, description="Only this tenant. For operators.")
    provider: Text | None = None
    connection: UUID | None = None
    actor: Text | None = Field(None, description="Only what this key, user or program did.")
    action: Action | None = None
    since: datetime | None = Field(None, description="Done at this time or later.")
    until: datetime | None = Field(None, description="Done before this time.")
    page: Page = None
    limit: Limit = 100


class SignalFilters(Strict):
    tenant: Text | None = Field(None, description="Only this tenant. For operators.")
    connection: UUID | None = None
    provider: Text | None = None
    kind: Text | None = None
    job_id: UUID | None = Field(None, description="Only what this job stored.")


class SignalExport(SignalFilters):
    since: datetime | None = Field(None, description="Stored at this time or later.")
    until: datetime | None = Field(None, description="Stored before this time.")
    occurred_since: datetime | None = Field(None, description="Happened at this time or later.")
    occurred_until: datetime | None = Field(None, description="Happened before this time.")
    payload: bool = Field(True, description="If false, each payload is null, and none is read.")


class SignalQuery(SignalExport):
    order: Literal["newest", "oldest"] = "newest"
    page: Page = None
    limit: Limit = 100


class FollowQuery(SignalFilters):
    position: Annotated[str, Field(max_length=80)] = Field(
        "start", description="`start`, `now`, or the `position` of the previous answer."
    )
    limit: Limit = 100
    wait: int = Field(0, ge=0, le=25, description="Seconds to wait if there is nothing new.")


class TailQuery(SignalFilters):
    position: Annotated[str, Field(max_length=80)] = "now"


class NewConnectionBody(Strict):
    tenant_id: Text | None = Field(None, description="Required with an operator's key.")
    provider_slug: Annotated[str, Field(min_length=1, max_length=100)]
    external_id: Annotated[str, Field(min_length=1, max_length=1024)]
    config: Json | None = None
    interval_seconds: Interval | None = None


class OneConnectionBody(NewConnectionBody):
    credentials: Json | None = Field(
        None, description="Stored encrypted and never returned.", repr=False
    )


class CredentialsBody(Strict):
    credentials: Json = Field(description="Replaces the connection's credentials.", repr=False)


class BulkBody(Strict):
    connections: Annotated[list[NewConnectionBody], Field(min_length=1, max_length=LARGEST_BATCH)]


class EditBody(Strict):
    """Omitted fields stay as they are. A null interval is the default, a null cursor is none."""

    interval_seconds: Interval | None = None
    config: Json | None = Field(None, description="Replaces the whole config.")
    cursor: Any = None


class PauseBody(Strict):
    reason: Annotated[str, Field(min_length=1, max_length=500)] | None = None


class NewKeyBody(Strict):
    name: Annotated[str, Field(min_length=1, max_length=100)] = Field(
        description="Who uses the key."
    )
    tenant_id: Text | None = Field(
        None, description="The only tenant it may see. Without it, an operator's key."
    )
    scope: Scope = Scope.ADMIN
    expires_in_days: Annotated[int, Field(ge=1, le=3650, strict=True)] | None = Field(
        None, description="Days until it expires. Default: `api.key_days`."
    )
    never_expires: bool = False


class WeightBody(Strict):
    tenant_id: Text
    weight: Annotated[float, Field(ge=0.01, le=1000)] = Field(
        description="Its share as a multiple of the usual one; 1 is usual."
    )


class SwitchBody(Strict):
    tenant_id: Text | None = Field(None, description="The tenant. Name it or a provider.")
    provider_slug: Text | None = Field(None, description="The provider. Name it or a tenant.")
    paused: bool = Field(description="Whether it is to be paused; false resumes it.")
    reason: Annotated[str, Field(max_length=1000)] | None = Field(
        None, description="Why, for those who wonder."
    )


class CapBody(Strict):
    tenant_id: Text | None = Field(None, description="The tenant. Without it, all of them.")
    provider_slug: Text | None = Field(None, description="The provider. Without it, all of them.")
    max_running: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] | None = Field(
        description="The most jobs that run at once; null removes the cap."
    )


class BudgetBody(Strict):
    calls: Annotated[int, Field(strict=True)] | Literal["unlimited"] = Field(
        description="Most calls in any such span."
    )
    per: Annotated[str, Field(max_length=20)] | float = Field(
        "1h", description="The span: `1h`, `15m`, `60s` or a number of seconds."
    )
    burst: Annotated[int, Field(strict=True)] | None = Field(
        None, description="Most calls at once. Default: a hundredth of the calls."
    )
    providers: Annotated[list[Text], Field(max_length=100)] = Field(
        default_factory=list,
        description="Whose calls count. Default: the provider that the scope names.",
    )


class SyncBody(Strict):
    job_type: Literal["incremental", "full"] = "incremental"
    priority: Annotated[int, Field(ge=-32_767, le=32_767, strict=True)] | None = None
