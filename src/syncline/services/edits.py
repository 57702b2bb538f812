"""What people may change about a connection, and how concurrent changes are detected."""

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import UUID

from syncline.errors import Changed
from syncline.model import Connection
from syncline.sdk.json_text import same_json
from syncline.services.validation import check_config, check_interval, get_connection, storable_json
from syncline.store.pool import Transaction


class Unset(Enum):
    """The type of `UNSET`: a value that stays as it is, where None means something else."""

    UNSET = "unset"


UNSET = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Edit:
    """Changes to a connection. None removes an interval or a cursor, and keeps the config."""

    interval_seconds: int | Unset | None = UNSET
    cursor: Any | Unset = UNSET
    config: dict[str, Any] | None = None

    def texts(self, longest_interval: int, cursor_bytes: int) -> dict[str, str | None]:
        """Return the keys of `metadata.sync` to set, as JSON; None removes a key."""
        check_config(self.config)
        found: dict[str, str | None] = {}
        if not isinstance(self.interval_seconds, Unset):
            if self.interval_seconds is not None:
                check_interval(self.interval_seconds, longest_interval)
            text = None if self.interval_seconds is None else str(self.interval_seconds)
            found["interval_seconds"] = text
        if not isinstance(self.cursor, Unset):
            found["cursor"] = None
            if self.cursor is not None:
                found["cursor"] = storable_json("cursor", self.cursor, limit=cursor_bytes)
        return found


def edit_towards(
    present: Connection, config: dict[str, Any] | None, interval_seconds: int | None
) -> Edit:
    """Return the changes that give a connection this config and interval; None keeps a value."""
    interval: int | Unset = UNSET
    if interval_seconds is not None and _interval_of(present) != interval_seconds:
        interval = interval_seconds
    is_same = config is None or same_json(present.config, config)
    return Edit(interval_seconds=interval, config=None if is_same else config)


async def check_unchanged(tx: Transaction, connection_id: UUID, expected: str | None) -> None:
    """Raise Changed if a locked connection is not at the version that the caller read."""
    if expected is None:
        return
    present = version_of(await get_connection(tx, connection_id, None))
    if present != expected:
        raise Changed(connection_id, present)


def version_of(connection: Connection) -> str:
    """Return a digest of what people edit; runs do not change it."""
    interval = _interval_of(connection)
    edited = [connection.status, connection.status_reason, connection.config, interval]
    text = json.dumps(edited, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:20]


def _interval_of(connection: Connection) -> Any:
    metadata = connection.metadata
    sync = metadata.get("sync") if isinstance(metadata, dict) else None
    return sync.get("interval_seconds") if isinstance(sync, dict) else None
