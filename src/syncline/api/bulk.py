"""Bodies and answers of actions on everything that a filter matches."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from syncline.api.auth import Principal
from syncline.api.requests import Strict, Text
from syncline.api.responses import ConnectionOut, JobOut
from syncline.model import (
    Connection,
    ConnectionFilter,
    ConnectionStatus,
    Job,
    JobFilter,
    JobType,
    QueueState,
)
from syncline.policy.bulk import BulkAction, filter_as_json
from syncline.services.bulk import BulkRequest, Preview

JobChoice = Literal["failed", "cancelled", "queued", "running"] | QueueState


class ConnectionChoice(Strict):
    """Which connections; what is left out stands for any."""

    tenant: Text | None = Field(None, description="Only this tenant. For operators.")
    provider: Text | None = None
    status: ConnectionStatus | None = None
    prefix: Annotated[str, Field(min_length=1, max_length=1024)] | None = Field(
        None, description="Only external ids that begin with this."
    )


class JobsChoice(Strict):
    """Which jobs; what is left out stands for any."""

    tenant: Text | None = Field(None, description="Only this tenant. For operators.")
    connection: UUID | None = None
    provider: Text | None = None
    status: JobChoice
    type: JobType | None = None
    error_class: Text | None = None
    since: datetime | None = Field(None, description="Created at this time or later.")
    until: datetime | None = Field(None, description="Created before this time.")


class BulkStart(Strict):
    expected: Annotated[int, Field(ge=0, strict=True)] | None = Field(
        None,
        description="The count of the preview. If many more match by now, the answer is 409.",
    )
    preview: bool = Field(False, description="Only count, and show the first ten.")


class ConnectionsActionBody(BulkStart):
    action: Literal["pause", "resume", "sync", "set_interval"]
    filter: ConnectionChoice = Field(description="{} stands for all of them.")
    interval_seconds: Annotated[int, Field(strict=True)] | None = Field(
        None, description="For set_interval; null goes back to the default."
    )
    reason: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        None, description="For pause: why."
    )

    def request(self, principal: Principal) -> BulkRequest:
        wanted = ConnectionFilter(
            tenant_id=principal.sees(self.filter.tenant),
            provider_slug=self.filter.provider,
            status=self.filter.status,
            external_id_prefix=self.filter.prefix,
        )
        return BulkRequest(self.action, wanted, self.interval_seconds, self.reason)


class JobsActionBody(BulkStart):
    action: Literal["retry", "cancel"]
    filter: JobsChoice

    def request(self, principal: Principal) -> BulkRequest:
        wanted = JobFilter(
            tenant_id=principal.sees(self.filter.tenant),
            connection_id=self.filter.connection,
            provider_slug=self.filter.provider,
            status=self.filter.status,
            job_type=self.filter.type,
            error_class=self.filter.error_class,
            since=self.filter.since,
            until=self.filter.until,
        )
        return BulkRequest(self.action, wanted)


class RefusedOut(BaseModel):
    id: UUID
    reason: str


class ActionOut(BaseModel):
    """An action on many, or the preview of one, which has no id."""

    id: UUID | None
    target: Literal["connections", "jobs"]
    action: str
    filter: dict[str, Any]
    state: Literal["preview", "running", "done", "cancelled"]
    count: int = Field(description="How many match, at its start.")
    is_exact: bool = Field(description="Whether the count is exact; else there are more.")
    done: int = 0
    refused: int = 0
    refusals: dict[str, int] = Field({}, description="How many, by reason.")
    refused_first: list[RefusedOut] = []
    first_connections: list[ConnectionOut] = Field([], description="Of a preview.")
    first_jobs: list[JobOut] = Field([], description="Of a preview.")
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @classmethod
    def of(cls, action: BulkAction) -> "ActionOut":
        return cls(
            id=action.id,
            target=action.target.value,
            action=action.action,
            filter=filter_as_json(action.wanted),
            state=action.state.value,
            count=action.expected,
            is_exact=action.is_exact,
            done=action.done,
            refused=action.refused,
            refusals=dict(action.refusals),
            refused_first=[RefusedOut.model_validate(one) for one in action.refused_first],
            started_at=action.started_at,
            finished_at=action.finished_at,
        )

    @classmethod
    def of_preview(cls, preview: Preview) -> "ActionOut":
        request = preview.request
        return cls(
            id=None,
            target=request.target.value,
            action=request.action,
            filter=filter_as_json(request.wanted),
            state="preview",
            count=preview.count,
            is_exact=preview.is_exact,
            first_connections=[
                ConnectionOut.of(one) for one in preview.first if isinstance(one, Connection)
            ],
            first_jobs=[JobOut.of(one) for one in preview.first if isinstance(one, Job)],
        )


class ActionPage(BaseModel):
    items: list[ActionOut]
    next_page: str | None = None
