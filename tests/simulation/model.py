"""What must hold of one connection, as small as it can be said: no tables, no leases, no SQL."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

DEFAULT, TICK, LEASE = timedelta(seconds=900), timedelta(seconds=60), timedelta(seconds=30)
MOST_JITTER = 0.2
FIRST_BACKOFF, BACKOFF_JITTER = timedelta(seconds=5), 0.1
LAPSES_TO_FAIL = 5
Row = dict[str, Any]


@dataclass
class Run:
    """A pending run; `slot_at` where the scheduler made it, `lapses_at` where its worker died."""

    scheduled_at: datetime
    slot_at: datetime | None = None
    attempts: int = 0
    lapses: int = 0
    retry_after: datetime | None = None
    lapses_at: datetime | None = None

    def is_due(self, now: datetime) -> bool:
        waits_until = max(self.scheduled_at, self.retry_after or self.scheduled_at)
        return self.lapses_at is None and waits_until <= now


@dataclass
class Model:
    id: UUID
    created_at: datetime
    status: str = "active"
    interval: Any = None  # whatever is written there
    planned: timedelta | None = None
    last: datetime | None = None
    run: Run | None = None
    notes: dict[str, int] = field(default_factory=dict)
    emitted: int = 0
    stored: int = 0
    fails_next: bool = False
    has_failed: bool = False

    @property
    def base(self) -> timedelta:
        is_good = type(self.interval) is int and 60 <= self.interval <= 86400
        return timedelta(seconds=self.interval) if is_good else DEFAULT

    def leave(self, now: datetime) -> None:
        """S11, S4: a queued run is cancelled; only one that had started counts as completed."""
        self.status = "paused"
        if self.run is not None and self.run.lapses_at is None:
            self.last = now if self.run.attempts else self.last
            self.run = None

    def trigger(self, now: datetime) -> None:
        """E10: a queued run is pulled forward; one that runs is followed at once by one more."""
        if self.run is None:
            self.run = Run(now)
        elif self.run.lapses_at is None:
            self.run.scheduled_at = min(self.run.scheduled_at, now)
            self.run.retry_after = None

    def tick(self, job: Row | None, sync: Row, now: datetime) -> None:
        """S2, S3, S5, S6: a run for the slot that is due, or none; an interval counts at once."""
        if self.status != "active":
            return
        if self.run is None and self._slot(now) <= now + TICK:
            assert job is not None, "nothing was scheduled"
            self._plan(job, sync, now)
        elif self.run is not None and self.planned != self.base:
            self._pull_forward(now)
        self.planned = self.base

    def reap(self, job: Row | None, now: datetime) -> None:
        """E6, E7: a lapsed lease counts once; the next in a row waits, the fifth ends the job."""
        run = self.run
        if run is None or run.lapses_at is None or run.lapses_at > now:
            return
        run.lapses_at, run.attempts, run.lapses = None, run.attempts + 1, run.lapses + 1
        if run.lapses == LAPSES_TO_FAIL:
            self.run, self.last = None, now
            self.status = "error" if self.status == "active" else self.status
        elif self.status != "active":
            self.run, self.last = None, now
        elif run.lapses > 1:
            assert job is not None
            run.retry_after = _backoff(job, run.attempts, now)

    def execute(self, job: Row | None, now: datetime) -> None:
        """E4, E5: a run ends with every page stored, or waits for its next attempt."""
        run = self.run
        if run is None or not run.is_due(now):
            return
        if self.has_failed:
            assert job is not None, "a failure was not requeued"
            self.has_failed = False
            run.attempts, run.lapses = run.attempts + 1, 0
            run.retry_after = _backoff(job, run.attempts, now)
        else:
            self.run, self.last, self.stored = None, now, self.emitted

    def compare(self, row: Row) -> None:
        """Compare what is stored with what must be."""
        sync = row["metadata"]["sync"]
        assert row["status"] == self.status
        assert row["numbers"] == list(range(1, self.stored + 1))
        assert (sync.get("cursor") or 0) == self.stored
        assert sync.get("interval_seconds") == self.interval
        assert type(sync.get("interval_seconds")) is type(self.interval)
        for key, number in self.notes.items():
            holder = sync if key.startswith("sync,") else row["metadata"]
            assert holder[key.removeprefix("sync,")] == number
        assert row["jobs"] == ([] if self.run is None else [row["job"]])
        if self.run is not None:
            self._compare_run(self.run, row["job"])

    def _compare_run(self, run: Run, job: Row) -> None:
        assert _instant(job["scheduled_at"]) == run.scheduled_at
        assert _instant(job["slot_at"]) == run.slot_at
        assert _instant(job["retry_after"]) == run.retry_after
        assert _instant(job["lease_expires_at"]) == run.lapses_at
        assert job["status"] == ("queued" if run.lapses_at is None else "running")
        assert job["attempts"] == run.attempts

    def _slot(self, now: datetime) -> datetime:
        if self.last is None:
            return now
        return self.last + max(1, (now - self.last) // self.base) * self.base

    def _plan(self, job: Row, sync: Row, now: datetime) -> None:
        slot, jitter = self._slot(now), timedelta(seconds=sync["last_jitter_seconds"])
        assert timedelta() <= jitter <= self.base * MOST_JITTER
        if self.last is None:
            next_run_at, scheduled_at = self.created_at + self.base + jitter, now
        else:
            next_run_at, scheduled_at = slot + self.base, slot + jitter
        assert _instant(sync["next_run_at"]) == next_run_at
        self.run = Run(scheduled_at, slot)
        if self.interval is not None:
            self.interval = int(self.base.total_seconds())  # a bad one is replaced

    def _pull_forward(self, now: datetime) -> None:
        run = self.run
        assert run is not None
        if run.slot_at is not None and run.lapses_at is None and self.last is not None:
            run.scheduled_at = min(run.scheduled_at, max(now, self.last + self.base))


def _backoff(job: Row, attempts: int, now: datetime) -> datetime:
    """Return when the job may run again, which must be within the bounds of E5."""
    wait = min(FIRST_BACKOFF * 2 ** (attempts - 1), timedelta(seconds=900))
    retry_after = _instant(job["retry_after"])
    assert retry_after is not None
    assert now + wait <= retry_after <= now + wait * (1 + BACKOFF_JITTER)
    return retry_after


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
