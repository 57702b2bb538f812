"""What people may change about a connection, and how a change in between is noticed."""

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from syncline.model import Connection
from syncline.sdk.json_text import same_json
from syncline.services.validation import check_config, check_interval, storable_json


class Unset(Enum):
    """The type of `UNSET`: a value that stays as it is, where None means something else."""

    UNSET = "unset"


UNSET = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to be changed; an interval or cursor of None goes back to the default, or nothing."""

    interval_seconds: int | Unset | None = UNSET
    cursor: Any | Unset = UNSET
    config: dict[str, Any] | None = None

    def texts(self, longest_interval: int, cursor_bytes: int) -> dict[str, str | None]:
        """Return the keys of `metadata.sync` to be set, as JSON; bad values raise Invalid."""
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
    """Return what has to be changed for a connection to be so; None leaves a value as it is."""
    interval: int | Unset = UNSET
    if interval_seconds is not None and _interval_of(present) != interval_seconds:
        interval = interval_seconds
    is_same = config is None or same_json(present.config, config)
    return Edit(interval_seconds=interval, config=None if is_same else config)


def version_of(connection: Connection) -> str:
    """Return a digest of what people edit; a run of the connection leaves it alone."""
    interval = _interval_of(connection)
    edited = [connection.status, connection.status_reason, connection.config, interval]
    text = json.dumps(edited, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:20]


def _interval_of(connection: Connection) -> Any:
    metadata = connection.metadata
    sync = metadata.get("sync") if isinstance(metadata, dict) else None
    return sync.get("interval_seconds") if isinstance(sync, dict) else None
