"""What people may change about a connection, and how concurrent changes are detected."""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

from syncline.errors import Changed
from syncline.model import Connection
from syncline.policy.schedule import sync_of
from syncline.sdk.json_text import same_json
from syncline.services.validation import check_config, check_interval, storable_json
from syncline.store.data import connections
from syncline.store.pool import Transaction
from syncline.store.queue import jobs


class Unset(Enum):
    """The type of `UNSET`: a value that stays as it is, where None means something else."""

    UNSET = "unset"


UNSET = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Target:
    """Which connection to change: the tenant's, if one is named, at the version that was read."""

    id: UUID
    tenant_id: str | None = None
    expected: str | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """Changes to a connection. None removes an interval or a cursor, and keeps the config."""

    interval_seconds: int | Unset | None = UNSET
    cursor: Any | Unset = UNSET
    config: dict[str, Any] | None = None

    def check(self, longest_interval: int, cursor_bytes: int) -> "CheckedEdit":
        """Return the edit as it is written, or raise Invalid."""
        check_config(self.config)
        sync: dict[str, str | None] = {}
        if not isinstance(self.interval_seconds, Unset):
            if self.interval_seconds is not None:
                check_interval(self.interval_seconds, longest_interval)
            text = None if self.interval_seconds is None else str(self.interval_seconds)
            sync["interval_seconds"] = text
        if not isinstance(self.cursor, Unset):
            sync["cursor"] = None
            if self.cursor is not None:
                sync["cursor"] = storable_json("cursor", self.cursor, limit=cursor_bytes)
        return CheckedEdit(sync, None if self.config is None else json.dumps(self.config))


@dataclass(frozen=True, slots=True)
class CheckedEdit:
    """An edit that can be written: JSON texts of keys of `metadata.sync`, and of the config.

    A key without a text is removed; a config without one stays.
    """

    sync: dict[str, str | None]
    config: str | None

    async def write(self, tx: Transaction, connection_id: UUID, now: datetime) -> None:
        """Change a connection that is locked."""
        for key, text in self.sync.items():
            await connections.set_sync_key(tx, connection_id, key, text, now=now)
        if "cursor" in self.sync:
            await jobs.forget_cursors(tx, connection_id)
        if self.config is not None:
            await connections.set_config(tx, connection_id, self.config, now=now)


def edit_towards(
    present: Connection, config: dict[str, Any] | None, interval_seconds: int | None
) -> Edit:
    """Return the changes that give a connection this config and interval; None keeps a value."""
    interval: int | Unset = UNSET
    if interval_seconds is not None and _interval_of(present) != interval_seconds:
        interval = interval_seconds
    is_same = config is None or same_json(present.config, config)
    return Edit(interval_seconds=interval, config=None if is_same else config)


def check_unchanged(present: Connection, expected: str | None) -> None:
    """Raise Changed if a locked connection is not at the version that the caller read."""
    if expected is not None and (version := version_of(present)) != expected:
        raise Changed(present.id, version)


def version_of(connection: Connection) -> str:
    """Return a digest of what people edit; runs do not change it."""
    interval = _interval_of(connection)
    edited = [connection.status, connection.status_reason, connection.config, interval]
    text = json.dumps(edited, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:20]


def _interval_of(connection: Connection) -> Any:
    return sync_of(connection.metadata).get("interval_seconds")
