"""Connections that do not exist yet: what they are made from, and the checks they must pass."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.errors import Conflict, Invalid
from syncline.model import Connection, ConnectionStatus
from syncline.policy.audit import Entry, additions_of
from syncline.services.credentials import CredentialWriter
from syncline.services.validation import check_config, check_credentials, check_interval, check_text
from syncline.store.data import connections, tenants
from syncline.store.data.connections import Key
from syncline.store.pool import Transaction
from syncline.text import rfc3339


@dataclass(frozen=True, slots=True)
class NewConnection:
    """What a connection is made from."""

    tenant_id: str
    provider_slug: str
    external_id: str
    config: dict[str, Any] | None = None
    interval_seconds: int | None = None
    credentials: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies a connection: no two have the same."""
        return self.tenant_id, self.provider_slug, self.external_id


@dataclass(frozen=True, slots=True)
class Added:
    """What became of a new connection: its id and whether it is new, or why it was refused."""

    id: UUID | None = None
    is_new: bool = False
    problem: Invalid | None = None


def find_problem(new: NewConnection, longest_interval: int) -> Invalid | None:
    """Return the rule that a new connection breaks, if any."""
    try:
        check_new(new, longest_interval)
    except Invalid as error:
        return error
    return None


def check_new(new: NewConnection, longest_interval: int) -> None:
    """Raise Invalid unless a connection can be made from this."""
    check_text("tenant_id", new.tenant_id, characters=255)
    check_text("provider_slug", new.provider_slug, characters=100)
    check_text("external_id", new.external_id, octets=1024)
    check_config(new.config)
    if new.interval_seconds is not None:
        check_interval(new.interval_seconds, longest_interval)
    if new.credentials is not None:
        check_credentials(new.credentials)


async def check_tenant_limit(
    tx: Transaction, tenant_ids: Iterable[str], at_most: int | None
) -> None:
    """Raise Conflict if a tenant has too many connections, the new ones included."""
    if at_most is None:
        return
    for tenant_id in sorted(tenant_ids):
        if await tenants.has_more_connections(tx, tenant_id, at_most):
            limit = f"{at_most:,} connections (api.max_connections_per_tenant)"
            reason = f"may have {limit}: remove some, or ask an operator"
            raise Conflict(None, f"tenant {tenant_id}", reason)


@dataclass(frozen=True, slots=True)
class Inserted:
    """The connections that are new, what the audit says of them, and the ids of all by key."""

    connections: Sequence[Connection]
    entries: Sequence[Entry]
    ids: Mapping[Key, UUID]


async def insert_new(
    tx: Transaction, wanted: Mapping[UUID, NewConnection], writer: CredentialWriter, now: datetime
) -> Inserted:
    """Insert those whose key does not exist, with their credentials."""
    built = [build_connection(new, id_, now) for id_, new in wanted.items()]
    ids = await connections.insert_many(tx, built, now=now)
    added = [one for one in built if ids.get(wanted[one.id].key) == one.id]
    for one in added:
        credentials = wanted[one.id].credentials
        if credentials is not None:
            await writer.save(tx, one.tenant_id, one.id, credentials, now)
    entries = additions_of((one, wanted[one.id].credentials) for one in added)
    return Inserted(added, entries, ids)


def build_connection(new: NewConnection, id_: UUID, now: datetime) -> Connection:
    """Return the connection as it is stored at first: active, and due at the next tick."""
    sync: dict[str, Any] = {"first_activated_at": rfc3339(now)}
    if new.interval_seconds is not None:
        sync["interval_seconds"] = new.interval_seconds
    return Connection(
        id=id_,
        tenant_id=new.tenant_id,
        provider_slug=new.provider_slug,
        external_id=new.external_id,
        status=ConnectionStatus.ACTIVE,
        config=new.config or {},
        metadata={"sync": sync},
        created_at=now,
        updated_at=now,
    )
