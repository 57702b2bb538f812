"""What the audit holds: who acted, what they did, and what changed, without secrets."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from syncline.errors import Invalid
from syncline.model import ApiKey, Connection
from syncline.policy.schedule import sync_of
from syncline.redaction import MASK, mask_secrets

LONGEST_NAME = 255  # characters of an actor
LONGEST_TEXT = 500  # characters of a value
MOST_BYTES = 4000  # of what was there before, and of what is there now
DEEPEST = 8
OPERATOR = "operator"  # what a tenant sees of everybody else who acts
SECRET_NAME = re.compile(
    r"passw|secret|token|credential|authorization|cookie|api[_-]?key|private[_-]?key|signature",
    re.IGNORECASE,
)


class ActorKind(StrEnum):
    """What somebody is. Tenants see the names of their own keys only."""

    APPLICATION = "application"  # the program that uses the library, or whom it names
    COMMAND = "command"  # a user of this machine, on the command line
    KEY = "key"  # an operator's key, or the session that began with it
    TENANT_KEY = "tenant_key"
    LOCAL = "local"  # a request without a key, while none is required
    UNKNOWN = "unknown"  # somebody whose key was not valid


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: a kind, a name, and for requests the key and the address."""

    kind: ActorKind = ActorKind.APPLICATION
    name: str = "application"
    key_id: UUID | None = None
    address: str | None = None

    @property
    def is_application(self) -> bool:
        """Return whether it is the program itself, which names nobody it acts for."""
        return self.kind is ActorKind.APPLICATION and self.name == APPLICATION.name

    @classmethod
    def of_key(cls, key: ApiKey, address: str | None = None) -> "Actor":
        """Return the actor that a key stands for."""
        kind = ActorKind.KEY if key.tenant_id is None else ActorKind.TENANT_KEY
        return cls(kind, key.name, key.id, address)

    def as_json(self) -> dict[str, Any]:
        """Return the actor in a form that work can carry to another process."""
        key_id = None if self.key_id is None else str(self.key_id)
        return {"kind": self.kind, "name": self.name, "key_id": key_id, "address": self.address}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Actor":
        key_id = stored.get("key_id")
        return cls(
            ActorKind(stored["kind"]),
            stored["name"],
            None if key_id is None else UUID(key_id),
            stored.get("address"),
        )


APPLICATION = Actor()
NOBODY = Actor(ActorKind.UNKNOWN, "unknown")


def named_actor(name: str) -> Actor:
    """Return the actor that an application names, such as the user it acts for."""
    if not name or len(name) > LONGEST_NAME or "\0" in name:
        raise Invalid("actor", f"must be a text of 1 to {LONGEST_NAME} characters without NUL")
    return Actor(name=name)


class Action(StrEnum):
    """What was done: the noun, and what was done to it."""

    CONNECTIONS_CREATE = "connections.create"
    CONNECTIONS_EDIT = "connections.edit"
    CONNECTIONS_PAUSE = "connections.pause"
    CONNECTIONS_RESUME = "connections.resume"
    CONNECTIONS_SYNC = "connections.sync"
    CONNECTIONS_DELETE = "connections.delete"
    CREDENTIALS_SET = "credentials.set"
    CREDENTIALS_CLEAR = "credentials.clear"
    JOBS_RETRY = "jobs.retry"
    JOBS_CANCEL = "jobs.cancel"
    BULK_START = "bulk.start"
    BULK_CANCEL = "bulk.cancel"
    KEYS_CREATE = "keys.create"
    KEYS_REVOKE = "keys.revoke"
    SESSIONS_BEGIN = "sessions.begin"
    SESSIONS_END = "sessions.end"
    SESSIONS_REFUSE = "sessions.refuse"
    BUDGETS_SET = "budgets.set"
    BUDGETS_CLEAR = "budgets.clear"
    PROVIDERS_PAUSE = "providers.pause"
    PROVIDERS_RESUME = "providers.resume"
    TENANTS_PAUSE = "tenants.pause"
    TENANTS_RESUME = "tenants.resume"
    TENANTS_WEIGH = "tenants.set_weight"
    TENANTS_DELETE = "tenants.delete"
    CAPS_SET = "caps.set"
    CAPS_CLEAR = "caps.clear"
    SECRETS_ROTATE = "secrets.rotate"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that somebody did. A batch of a bulk action is one, with all of its ids."""

    action: Action
    tenant_id: str | None = None
    provider_slug: str | None = None
    subject: str | None = None  # what it was done to, as people call it
    connection_ids: tuple[UUID, ...] = ()
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    count: int = 1


def about(connection: Connection, action: Action, **more: Any) -> Entry:
    """Return an entry about one connection."""
    return Entry(
        action,
        connection.tenant_id,
        connection.provider_slug,
        connection.external_id,
        (connection.id,),
        **more,
    )


def changes_of(
    action: Action,
    before: Connection,
    after: Connection,
    credentials: Mapping[str, Any] | None = None,
) -> tuple[Entry, ...]:
    """Return an entry with what changed about a connection; none if nothing did.

    Of new credentials the names are kept.
    """
    was, is_now = difference(_edited(before), _edited(after))
    is_now |= _names_of(credentials)
    if not was and not is_now and action is not Action.CREDENTIALS_CLEAR:
        return ()
    return (about(after, action, before=was, after=is_now),)


def additions_of(
    added: Iterable[tuple[Connection, Mapping[str, Any] | None]],
) -> tuple[Entry, ...]:
    """Return an entry for each tenant with its new connections, which may have credentials.

    A single one tells how it began. Of many, each tells that when it is changed or deleted.
    """
    by_tenant: dict[str, list[tuple[Connection, Mapping[str, Any] | None]]] = {}
    for one in added:
        by_tenant.setdefault(one[0].tenant_id, []).append(one)
    return tuple(map(_addition, by_tenant.values()))


def _addition(added: list[tuple[Connection, Mapping[str, Any] | None]]) -> Entry:
    first, credentials = added[0]
    if len(added) == 1:
        after = _edited(first) | _names_of(credentials)
        return about(first, Action.CONNECTIONS_CREATE, after=after)
    providers = {one.provider_slug for one, _ in added}
    return Entry(
        Action.CONNECTIONS_CREATE,
        first.tenant_id,
        first.provider_slug if len(providers) == 1 else None,
        connection_ids=tuple(one.id for one, _ in added),
        after={"connections": len(added)},
    )


def about_key(key: ApiKey, action: Action, **more: Any) -> Entry:
    """Return an entry about a key, which says by what people recognise it."""
    return Entry(action, key.tenant_id, None, key.name, **more)


def deletion_of(connection: Connection) -> Entry:
    return about(connection, Action.CONNECTIONS_DELETE, before=_edited(connection))


def _names_of(credentials: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if credentials is None else {"signs_in_with": sorted(map(str, credentials))}


def _edited(connection: Connection) -> dict[str, Any]:
    """Return what people change about a connection. People may have written anything there."""
    sync, reason = sync_of(connection.metadata), connection.status_reason
    parts = {
        "status": connection.status,
        "why": reason.get("why") if isinstance(reason, Mapping) else None,
        "interval_seconds": sync.get("interval_seconds"),
        "cursor": sync.get("cursor"),
        "config": connection.config,
    }
    return {name: value for name, value in parts.items() if value is not None}


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A row of the audit."""

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
    connection_ids: Sequence[UUID]
    count: int
    before: Any
    after: Any

    def for_tenant(self) -> "AuditRecord":
        """Return what a tenant may see: who acts is named only if it was the tenant itself."""
        if self.actor_kind == ActorKind.TENANT_KEY:
            return self
        return replace(self, actor_kind=OPERATOR, actor=OPERATOR, key_id=None, address=None)


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which rows of the audit; None means any."""

    tenant_id: str | None = None
    provider_slug: str | None = None
    connection_id: UUID | None = None
    actor: str | None = None
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None


Changes = tuple[dict[str, Any], dict[str, Any]]


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Changes:
    """Return what differs, as it was and as it is; objects are compared key by key."""
    was: dict[str, Any] = {}
    now: dict[str, Any] = {}
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            parts = difference(old, new)
            was |= {key: parts[0]} if parts[0] else {}
            now |= {key: parts[1]} if parts[1] else {}
        elif not _is_same(old, new):
            was |= {key: old} if key in before else {}
            now |= {key: new} if key in after else {}
    return was, now


def shown(values: Mapping[str, Any] | None) -> str | None:
    """Return the JSON that is stored: secrets masked, and large values as a digest."""
    if not values:
        return None
    masked = _masked(values)
    text = json.dumps(masked, ensure_ascii=False)
    if len(text.encode(errors="replace")) <= MOST_BYTES:
        return text
    digests = json.dumps({key: _digest(value) for key, value in masked.items()})
    return digests if len(digests) <= MOST_BYTES else json.dumps(_digest(masked))


def change_text(before: Any, after: Any) -> str:
    """Return what changed in a line, for a table."""
    was, is_now = (side if isinstance(side, Mapping) else {} for side in (before, after))
    parts = []
    for key in dict.fromkeys((*was, *is_now)):
        old, new = _value_text(was.get(key)), _value_text(is_now.get(key))
        if key not in was:
            parts.append(f"{key}: {new}")
        else:
            parts.append(f"{key}: {old} → {new if key in is_now else 'none'}")
    return ", ".join(parts)


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_same(old: Any, new: Any) -> bool:
    return type(old) is type(new) and old == new  # True is not 1


def _masked(value: Any, depth: int = 0) -> Any:
    if depth > DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return {
            key: MASK if SECRET_NAME.search(key) and item else _masked(item, depth + 1)
            for key, item in ((str(key), item) for key, item in value.items())
        }
    if isinstance(value, list | tuple):
        return [_masked(item, depth + 1) for item in value]
    if isinstance(value, str):
        masked = mask_secrets(value, LONGEST_TEXT + 1)
        return masked if len(masked) <= LONGEST_TEXT else masked[:LONGEST_TEXT] + "…"
    is_plain = value is None or isinstance(value, bool | int)
    return value if is_plain or _is_finite(value) else _masked(str(value))


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _digest(value: Any) -> Any:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= 100:
        return value
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
    return {"characters": len(text), "sha256": digest}
