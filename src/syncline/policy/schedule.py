"""When a connection runs next: its interval, slot and jitter."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

MINIMUM_INTERVAL_SECONDS = 60
# Beyond these, adding an interval could exceed what a datetime can hold.
EARLIEST, LATEST = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 1, 1, tzinfo=UTC)
INTEGER = re.compile(r"\d{1,9}")
# As JSON text: between quotes, and without escapes.
UTC_TIME = re.compile(r'"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|\+00:00)"')


@dataclass(frozen=True, slots=True)
class ScheduleRules:
    """The scheduler's settings, as the policy needs them."""

    default_interval: timedelta
    maximum_interval: timedelta
    jitter_pct_min: Decimal
    jitter_pct_max: Decimal


# A tick makes these for every connection. A named tuple costs a third of a frozen dataclass.
class StoredSync(NamedTuple):
    """`connections.metadata` before parsing: kinds of JSON, and values as JSON text."""

    metadata_kind: str | None
    sync_kind: str | None
    interval_seconds: str | None
    next_run_at: str | None
    last_jitter_seconds: str | None
    first_activated_at: str | None
    cadence: str | None = None  # what an adaptive cadence depends on; None without one


@dataclass(frozen=True, slots=True)
class Complaint:
    """A bad value that counts as absent."""

    key: str
    reason: str


class SyncOptions(NamedTuple):
    """`metadata.sync` after parsing; bad values are left out, with a complaint each."""

    interval: timedelta
    interval_is_bad: bool
    first_activated_at: datetime | None
    complaints: tuple[Complaint, ...]
    shortest: timedelta | None = None  # of an adaptive cadence: the next interval may be this

    @property
    def check_after(self) -> timedelta:
        """How long after a run its next slot may come, at the earliest."""
        return self.interval if self.shortest is None else self.shortest


class Slot(NamedTuple):
    due_at: datetime
    next_run_at: datetime


class Candidate(NamedTuple):
    """A connection that may be due, as the tick has locked and read it."""

    connection_id: UUID
    tenant_id: str
    provider_slug: str
    created_at: datetime | None  # only if nothing has finished: the first run counts from it
    last_finished_at: datetime | None
    has_pending_job: bool
    stored: StoredSync
    interval_planned: str | None = None
    next_check_at: datetime | None = None  # only if the last run ended after it


class RunPlan(NamedTuple):
    """The decision of a tick for one connection."""

    connection_id: UUID
    tenant_id: str
    provider_slug: str
    interval: timedelta
    slot_at: datetime
    next_due_at: datetime
    jitter_seconds: int
    scheduled_at: datetime
    next_run_at: datetime
    next_check_at: datetime
    last_finished_at: datetime | None
    check_after: timedelta
    repairs_interval: bool = False
    is_adaptive: bool = False


class Pull(NamedTuple):
    """When a queued interval job must run at the latest, after its interval was changed."""

    connection_id: UUID
    scheduled_at: datetime
    next_run_at: datetime


def next_slot_at(candidate: Candidate, options: SyncOptions, now: datetime) -> datetime:
    """Return when the connection's next run is due, without jitter."""
    if candidate.last_finished_at is None:
        return now
    if _is_ahead(candidate, options, now):
        return _slot_beside_ahead(candidate, now)
    return plan_slot(candidate.last_finished_at, options.interval, now).due_at


def interval_has_changed(candidate: Candidate, options: SyncOptions, rules: ScheduleRules) -> bool:
    """Return whether the pending job was planned with another interval."""
    planned = _read_interval(candidate.interval_planned, rules, []) or rules.default_interval
    return planned != options.interval


def plan_run(
    candidate: Candidate, options: SyncOptions, rules: ScheduleRules, now: datetime, roll: float
) -> RunPlan:
    """Return the run of a connection that is due."""
    interval = options.interval
    jitter_seconds = sample_jitter(interval, rules, roll)
    jitter = timedelta(0, jitter_seconds)
    if candidate.last_finished_at is None:
        reference = options.first_activated_at or candidate.created_at or now
        slot_at, scheduled_at, next_check_at = now, now, now + options.check_after
        next_run_at = reference + interval + jitter
    elif _is_ahead(candidate, options, now):
        slot_at = _slot_beside_ahead(candidate, now)
        scheduled_at, next_check_at = slot_at + jitter, slot_at + interval
        next_run_at = next_check_at
    else:
        slot_at, next_run_at = plan_slot(candidate.last_finished_at, interval, now)
        scheduled_at, next_check_at = slot_at + jitter, slot_at + options.check_after
    return RunPlan(
        candidate.connection_id,
        candidate.tenant_id,
        candidate.provider_slug,
        interval,
        slot_at,
        slot_at + interval if slot_at < now else slot_at,
        jitter_seconds,
        scheduled_at,
        next_run_at,
        next_check_at,
        candidate.last_finished_at,
        options.check_after,
        options.interval_is_bad,
        options.shortest is not None,
    )


def _is_ahead(candidate: Candidate, options: SyncOptions, now: datetime) -> bool:
    """Return whether the last run ended in the future, because the clock was ahead."""
    last = candidate.last_finished_at
    return last is not None and last > now + options.interval


def _slot_beside_ahead(candidate: Candidate, now: datetime) -> datetime:
    """Return the next slot of a connection whose last run ended in the future.

    Until that time has passed, the next check stands for the slot: each plan puts it off by one
    interval. A tick finds the connection earlier, by its lookahead.
    """
    return max(now, candidate.next_check_at or now)


def plan_slot(last_finished_at: datetime, interval: timedelta, now: datetime) -> Slot:
    """Return the latest slot that has come due, or the first one if none has."""
    elapsed_slots = (now - last_finished_at) // interval
    # Few connections have missed a slot; multiplying would double the cost of this function.
    elapsed = interval if elapsed_slots <= 1 else elapsed_slots * interval
    due_at = last_finished_at + elapsed
    return Slot(due_at, due_at + interval)


def pull_to_new_interval(
    candidate: Candidate, options: SyncOptions, rules: ScheduleRules, now: datetime
) -> Pull | None:
    """Return when the pending job must run, if its interval has changed since it was planned."""
    last, interval = candidate.last_finished_at, options.interval
    if last is None or options.shortest or not interval_has_changed(candidate, options, rules):
        return None
    next_run_at = plan_slot(last, interval, now).next_run_at
    return Pull(candidate.connection_id, max(now, last + interval), next_run_at)


def sample_jitter(interval: timedelta, rules: ScheduleRules, roll: float) -> int:
    """Return whole seconds, uniformly distributed within the bounds."""
    lowest, highest = _jitter_bounds(interval, rules.jitter_pct_min, rules.jitter_pct_max)
    if lowest > highest:
        return highest
    return min(lowest + int(roll * (highest - lowest + 1)), highest)


@lru_cache(maxsize=1024)  # few intervals serve a million connections
def _jitter_bounds(interval: timedelta, pct_min: Decimal, pct_max: Decimal) -> tuple[int, int]:
    seconds = Decimal(int(interval.total_seconds()))
    lowest = int((pct_min * seconds).to_integral_value(ROUND_CEILING))
    highest = int((pct_max * seconds).to_integral_value(ROUND_FLOOR))
    return lowest, highest


def sync_of(metadata: Any) -> dict[str, Any]:
    """Return `metadata.sync` as it is; whatever is no object counts as an empty one."""
    sync = metadata.get("sync") if isinstance(metadata, dict) else None
    return sync if isinstance(sync, dict) else {}


def read_sync(stored: StoredSync, rules: ScheduleRules) -> SyncOptions:
    """Parse `metadata.sync`, and complain about bad values."""
    complaints: list[Complaint] = []
    if stored.metadata_kind != "object":
        kind = stored.metadata_kind or "null"
        complaints.append(Complaint("metadata", f"is {kind}, not an object"))
    elif stored.sync_kind not in (None, "object"):
        complaints.append(Complaint("sync", f"is {stored.sync_kind}, not an object"))
    interval = _read_interval(stored.interval_seconds, rules, complaints)
    first_activated_at = _read_time("first_activated_at", stored.first_activated_at, complaints)
    _read_time("next_run_at", stored.next_run_at, complaints)
    jitter = stored.last_jitter_seconds
    if not _is_absent(jitter) and not INTEGER.fullmatch(jitter or ""):
        complaints.append(Complaint("sync.last_jitter_seconds", "is not an integer of 0 or more"))
    cadence = None
    if stored.cadence is not None:
        cadence = _read_cadence(stored.cadence, rules, complaints)
    return SyncOptions(
        cadence.effective if cadence else interval or rules.default_interval,
        interval is None and not _is_absent(stored.interval_seconds),
        first_activated_at,
        tuple(complaints),
        cadence.shortest if cadence else None,
    )


class Cadence(NamedTuple):
    """The bounds of an adaptive interval, the one of the last plan, and how that run ended."""

    shortest: timedelta
    longest: timedelta
    planned: timedelta | None = None
    last_status: str | None = None  # None if the job is gone
    was_empty: bool | None = None

    @property
    def effective(self) -> timedelta:
        """Return the interval to the next run.

        An empty run doubles it; one that brought something begins at the shortest again. A run
        that failed says nothing about what there is to sync. A job that is gone counts as empty,
        because empty ones are the first to go.
        """
        if self.planned is None or not self.shortest <= self.planned <= self.longest:
            return self.shortest
        if self.last_status in ("failed", "cancelled"):
            return self.planned
        if self.was_empty or self.last_status is None:
            return min(2 * self.planned, self.longest)
        return self.shortest


def _read_cadence(text: str, rules: ScheduleRules, complaints: list[Complaint]) -> Cadence | None:
    """Return the adaptive cadence; None if its bounds are bad."""
    bounds_text, planned_text, last_status, was_empty = json.loads(text)
    if _is_absent(bounds_text):
        return None
    bounds = _read_bounds(bounds_text, rules)
    if bounds is None:
        longest = int(rules.maximum_interval.total_seconds())
        complaints.append(
            Complaint(
                "sync.adaptive",
                f"{bounds_text[:60]} is not {{min_seconds, max_seconds}}, integers from "
                f"{MINIMUM_INTERVAL_SECONDS} to {longest}, the least first; it is ignored",
            )
        )
        return None
    is_integer = INTEGER.fullmatch(planned_text or "")
    planned = timedelta(seconds=int(planned_text)) if is_integer else None
    return Cadence(*bounds, planned, last_status, was_empty)


def _read_bounds(text: str, rules: ScheduleRules) -> tuple[timedelta, timedelta] | None:
    try:
        stored = json.loads(text)
    except ValueError:  # it is long, and was cut
        return None
    if not isinstance(stored, dict):
        return None
    shortest, longest = stored.get("min_seconds"), stored.get("max_seconds")
    if type(shortest) is not int or type(longest) is not int:  # `True` is an int as well
        return None
    highest = int(rules.maximum_interval.total_seconds())
    if not MINIMUM_INTERVAL_SECONDS <= shortest <= longest <= highest:
        return None
    return timedelta(seconds=shortest), timedelta(seconds=longest)


def _read_interval(
    text: str | None, rules: ScheduleRules, complaints: list[Complaint]
) -> timedelta | None:
    if _is_absent(text):
        return None
    maximum = int(rules.maximum_interval.total_seconds())
    if INTEGER.fullmatch(text or "") and MINIMUM_INTERVAL_SECONDS <= int(text or "") <= maximum:
        return timedelta(seconds=int(text or ""))
    complaints.append(
        Complaint(
            "sync.interval_seconds",
            f"{(text or '')[:40]} is not an integer from {MINIMUM_INTERVAL_SECONDS} to {maximum}; "
            f"{int(rules.default_interval.total_seconds())} is used instead",
        )
    )
    return None


def _read_time(key: str, text: str | None, complaints: list[Complaint]) -> datetime | None:
    """Return the instant in a JSON text, if it is RFC 3339 in UTC."""
    if _is_absent(text):
        return None
    instant = _parse_utc(text or "")
    if instant is None:
        complaints.append(Complaint(f"sync.{key}", f"{(text or '')[:40]} is not RFC 3339 in UTC"))
    return instant


def _parse_utc(text: str) -> datetime | None:
    if not UTC_TIME.fullmatch(text):
        return None
    try:
        instant = datetime.fromisoformat(text[1:-1].upper())
    except ValueError:
        return None
    return instant if EARLIEST <= instant <= LATEST else None


def _is_absent(text: str | None) -> bool:
    return text is None or text == "null"
