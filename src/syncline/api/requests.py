"""What goes in over HTTP: every field of a query or a body, and the rule it must keep."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from syncline.model import ConnectionOrder, ConnectionStatus, JobStatus, JobType, Scope

LARGEST_PAGE = 500
LARGEST_BATCH = 10_000

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
    order: ConnectionOrder = ConnectionOrder.ID
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
    position: Annotated[str, Field(max_length=80)] = Field(
        "start", description="`start`, `now`, or the `position` of the answer before."
    )
    limit: Limit = 100
    wait: int = Field(0, ge=0, le=25, description="Seconds to wait while nothing is new.")


class TailQuery(SignalFilters):
    position: Annotated[str, Field(max_length=80)] = "now"


class NewConnectionBody(Strict):
    tenant_id: Text | None = Field(None, description="Operators must name it; others need not.")
    provider_slug: Annotated[str, Field(min_length=1, max_length=100)]
    external_id: Annotated[str, Field(min_length=1, max_length=1024)]
    config: Json | None = None
    interval_seconds: Interval | None = None


class OneConnectionBody(NewConnectionBody):
    credentials: Json | None = Field(
        None, description="Stored encrypted; no answer ever holds them.", repr=False
    )


class CredentialsBody(Strict):
    credentials: Json = Field(description="Replaces what the connection signs in with.", repr=False)


class BulkBody(Strict):
    connections: Annotated[list[NewConnectionBody], Field(min_length=1, max_length=LARGEST_BATCH)]


class EditBody(Strict):
    """What is left out stays; an interval of null is the default, a cursor of null none."""

    interval_seconds: Interval | None = None
    config: Json | None = Field(None, description="Replaces the settings whole.")
    cursor: Any = None


class PauseBody(Strict):
    reason: Annotated[str, Field(min_length=1, max_length=500)] | None = None


class NewKeyBody(Strict):
    name: Annotated[str, Field(min_length=1, max_length=100)] = Field(
        description="Whose key it is."
    )
    tenant_id: Text | None = Field(None, description="The one tenant it sees; none: an operator's.")
    scope: Scope = Scope.ADMIN
    expires_in_days: Annotated[int, Field(ge=1, le=3650, strict=True)] | None = Field(
        None, description="When it ends by itself; left out, after `api.key_days`."
    )
    never_expires: bool = False


class SyncBody(Strict):
    job_type: Literal["incremental", "full"] = "incremental"
    priority: Annotated[int, Field(ge=-32_767, le=32_767, strict=True)] | None = None
