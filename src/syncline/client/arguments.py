"""The arguments of calls: filters of listings, and fields of what is added."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, Required, TypedDict
from uuid import UUID

Json = dict[str, Any]


class Paged(TypedDict, total=False):
    """How many items each request asks for: 1 to 500."""

    page_size: int


class ConnectionFilters(Paged, total=False):
    tenant: str | None
    provider: str | None
    status: str | Sequence[str] | None
    prefix: str | None
    order: Literal["id", "external_id", "staleness"]


class TenantFilters(Paged, total=False):
    only_set: bool


class JobFilters(Paged, total=False):
    tenant: str | None
    connection: UUID | str | None
    provider: str | None
    status: str | Sequence[str] | None
    type: str | None
    since: datetime | None
    until: datetime | None
    started_after: datetime | None
    started_before: datetime | None
    finished_after: datetime | None
    finished_before: datetime | None
    error_class: str | None
    min_duration_seconds: float | None
    max_duration_seconds: float | None
    order: Literal["newest", "slowest"]


class JobsAction(TypedDict, total=False):
    """What to do to all jobs that match; `expected` is the count of the preview."""

    action: Required[str]
    filter: Required[Json]
    expected: int | None
    preview: bool


class ConnectionsAction(JobsAction, total=False):
    interval_seconds: int | None
    reason: str | None


class FollowFilters(Paged, total=False):
    tenant: str | None
    connection: UUID | str | None
    provider: str | None
    kind: str | None
    job_id: UUID | str | None


class SignalFilters(FollowFilters, total=False):
    since: datetime | None
    until: datetime | None
    occurred_since: datetime | None
    occurred_until: datetime | None
    payload: bool
    order: Literal["newest", "oldest"]


class AuditFilters(Paged, total=False):
    tenant: str | None
    provider: str | None
    connection: UUID | str | None
    actor: str | None
    action: str | None
    since: datetime | None
    until: datetime | None


class NewConnection(TypedDict, total=False):
    """A connection to add. With a tenant's own key, leave `tenant_id` out."""

    tenant_id: str | None
    provider_slug: Required[str]
    external_id: Required[str]
    config: Json | None
    interval_seconds: int | None


class OneConnection(NewConnection, total=False):
    """A connection to add alone. `force` accepts an unknown provider and any config."""

    credentials: Json | None
    force: bool


class Changes(TypedDict, total=False):
    """What to change; what is left out stays. None is the default interval, or no cursor."""

    interval_seconds: int | None
    config: Json | None
    cursor: Any
    expected: str | None
    force: bool


class NewKeyFields(TypedDict, total=False):
    name: Required[str]
    tenant_id: str | None
    scope: Literal["read", "operate", "admin"]
    expires_in_days: int | None
    never_expires: bool


class PauseFields(TypedDict, total=False):
    """Whom a switch stops: a tenant or a provider."""

    tenant_id: str | None
    provider_slug: str | None
    reason: str | None


class BudgetFields(TypedDict, total=False):
    calls: Required[int | Literal["unlimited"]]
    per: str | float
    burst: int | None
    providers: list[str]
