"""Actions on many rows: what they may do to each, and when a count is no longer the one shown."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from syncline.model import ConnectionFilter, ConnectionStatus, JobFilter, JobStatus, QueueState
from syncline.text import rfc3339

NAMED = 20  # refused rows that are named
MOST_COUNTED = 100_000  # rows that a preview counts; more is "at least"


class Target(StrEnum):
    CONNECTIONS = "connections"
    JOBS = "jobs"


class BulkVerb(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    SYNC = "sync"
    SET_INTERVAL = "set_interval"
    RETRY = "retry"
    CANCEL = "cancel"


class BulkState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


VERBS: Mapping[Target, tuple[BulkVerb, ...]] = {
    Target.CONNECTIONS: (
        *(BulkVerb.PAUSE, BulkVerb.RESUME),
        *(BulkVerb.SYNC, BulkVerb.SET_INTERVAL),
    ),
    Target.JOBS: (BulkVerb.RETRY, BulkVerb.CANCEL),
}
QUEUED = (JobStatus.QUEUED, *QueueState)
# An action on jobs names one of these: an index has them, and nothing could be done to others.
ACTED_ON: Mapping[BulkVerb, tuple[str, ...]] = {
    BulkVerb.RETRY: (JobStatus.FAILED, JobStatus.CANCELLED, *QUEUED),
    BulkVerb.CANCEL: (*QUEUED, JobStatus.RUNNING),
}


def refusal_of(verb: BulkVerb, status: str) -> str | None:
    """Return why a connection in this status is left alone, or None if it is not."""
    if verb is BulkVerb.SET_INTERVAL:
        return None
    if status == ConnectionStatus.REVOKED:
        return "is revoked"
    if verb is BulkVerb.SYNC and status != ConnectionStatus.ACTIVE:
        return f"is {status}, not active"
    already = ConnectionStatus.PAUSED if verb is BulkVerb.PAUSE else ConnectionStatus.ACTIVE
    if verb is not BulkVerb.SYNC and status == already:
        return f"is {status} already"
    return None


def has_changed(expected: int, found: int) -> bool:
    """Return whether a filter matches much more than a person was shown."""
    return found > expected + max(5, expected // 10)


@dataclass(slots=True)
class Tally:
    """What became of the rows of an action, or of one batch of it."""

    done: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    first: list[dict[str, str]] = field(default_factory=list)

    @property
    def refused(self) -> int:
        return self.refusals.total()

    def refuse(self, name: UUID, reason: str) -> None:
        self.refusals[reason] += 1
        if len(self.first) < NAMED:
            self.first.append({"id": str(name), "reason": reason})


@dataclass(frozen=True, slots=True)
class BulkAction:
    """An action on everything that a filter matches, and how far it has come."""

    id: UUID
    tenant_id: str | None
    target: Target
    action: BulkVerb
    wanted: ConnectionFilter | JobFilter
    options: Mapping[str, Any]
    actor: Mapping[str, Any]
    expected: int
    state: BulkState
    started_at: datetime
    finished_at: datetime | None = None
    done: int = 0
    refused: int = 0
    refusals: Mapping[str, int] = field(default_factory=dict)
    refused_first: list[dict[str, str]] = field(default_factory=list)
    place: UUID | None = None

    @property
    def is_exact(self) -> bool:
        """Return whether it counted everything that matched."""
        return self.expected < MOST_COUNTED

    @property
    def is_running(self) -> bool:
        return self.state is BulkState.RUNNING


def filter_as_json(wanted: ConnectionFilter | JobFilter) -> dict[str, Any]:
    """Return the fields of a filter that are set."""
    values = {one.name: getattr(wanted, one.name) for one in fields(wanted)}
    return {name: _plain(value) for name, value in values.items() if value is not None}


def filter_from_json(target: str, stored: Mapping[str, Any]) -> ConnectionFilter | JobFilter:
    if target == Target.CONNECTIONS:
        return ConnectionFilter(**stored)
    return JobFilter(**{name: _parsed(name, value) for name, value in stored.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value) if isinstance(value, UUID) else value


def _parsed(name: str, value: Any) -> Any:
    if name == "connection_id":
        return UUID(value)
    if name.endswith("_duration"):
        return timedelta(seconds=value)
    if name in ("since", "until") or name.endswith(("_after", "_before")):
        return datetime.fromisoformat(value)
    return value
