"""The fields of answers about the audit."""

from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field

from syncline.policy.audit import AuditRecord


class ActOut(BaseModel):
    """What somebody did."""

    id: UUID
    acted_at: datetime
    actor_kind: str = Field(
        description="`key`, `tenant_key`, `command`, `application`, `local` or `unknown`;"
        " `operator` for a tenant's key, which sees no names but those of its own keys."
    )
    actor: str
    key_id: UUID | None
    address: str | None = Field(description="The network that the request came from.")
    action: str
    tenant_id: str | None
    provider_slug: str | None
    subject: str | None = Field(description="What it was done to, as people call it.")
    connection_ids: list[UUID]
    count: int
    before: dict[str, Any] | None = Field(description="What it was, of what changed.")
    after: dict[str, Any] | None = Field(description="What it is, of what changed.")

    @classmethod
    def of(cls, act: AuditRecord) -> "ActOut":
        return cls(**asdict(act))


class AuditPage(BaseModel):
    items: list[ActOut]
    next_page: str | None
