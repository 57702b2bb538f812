"""What pausing and resuming make of a connection's status, so that neither loses a trouble."""

from dataclasses import dataclass
from typing import Any

from syncline.model import Connection, ConnectionStatus

TROUBLES = (ConnectionStatus.NEEDS_REAUTH, ConnectionStatus.ERROR)


@dataclass(frozen=True, slots=True)
class StoredStatus:
    """A connection's status and its reason, which people may have written by SQL."""

    status: str
    reason: Any = None


def stored_status(connection: Connection) -> StoredStatus:
    return StoredStatus(connection.status, connection.status_reason)


ACTIVE = StoredStatus(ConnectionStatus.ACTIVE)


def pause(present: StoredStatus, *, why: str, since: str, by: str | None = None) -> StoredStatus:
    """Return a pause that remembers the trouble which the connection was in."""
    reason: dict[str, Any] = {"why": why, "since": since, "evidence": None}
    if by is not None:
        reason["by"] = by
    before = present if present.status in TROUBLES else trouble_before(present)
    if before is not None:
        reason["before"] = {"status": before.status, "reason": before.reason}
    return StoredStatus(ConnectionStatus.PAUSED, reason)


def resume(present: StoredStatus) -> StoredStatus:
    """Return the trouble from before the pause if there was one, otherwise active."""
    return trouble_before(present) or ACTIVE


def reauthorise(present: StoredStatus) -> StoredStatus:
    """Return what new credentials make of a status: they end `needs_reauth`, also under a pause."""
    if present.status == ConnectionStatus.NEEDS_REAUTH:
        return ACTIVE
    before = trouble_before(present)
    if before is None or before.status != ConnectionStatus.NEEDS_REAUTH:
        return present
    kept = {key: value for key, value in present.reason.items() if key != "before"}
    return StoredStatus(present.status, kept)


def trouble_before(present: StoredStatus) -> StoredStatus | None:
    """Return the trouble that a paused connection was in before."""
    if present.status != ConnectionStatus.PAUSED or not isinstance(present.reason, dict):
        return None
    before = present.reason.get("before")
    if not isinstance(before, dict) or before.get("status") not in TROUBLES:
        return None
    return StoredStatus(before["status"], before.get("reason"))
