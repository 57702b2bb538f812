"""What happened: attempts that ended, signals, durations and delays, added up by time (R1, R2)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

SUCCEEDED = "succeeded"
# The bounds of the buckets of durations and of delays. Stored figures count by the place of a
# bucket, so these tuples may grow at their end and must not change otherwise.
DURATION_SECONDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
    *(10, 30, 60, 120, 300, 900, 3600),
)
DELAY_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 21_600)


class Span(StrEnum):
    """How long the time is that a figure covers."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"


LENGTHS = {
    Span.MINUTE: timedelta(minutes=1),
    Span.HOUR: timedelta(hours=1),
    Span.DAY: timedelta(days=1),
}
KEPT = {
    Span.MINUTE: timedelta(hours=48),
    Span.HOUR: timedelta(days=30),
    Span.DAY: timedelta(days=731),
}
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def start_of(span: Span, at: datetime) -> datetime:
    """Return when the minute, hour or day began."""
    length = LENGTHS[span]
    return EPOCH + (at - EPOCH) // length * length


class Histogram(Counter[int]):
    """How many times fell into each bucket, by the bucket's place."""

    def percentile(self, share: float, bounds: Sequence[float]) -> float | None:
        """Return the seconds that this share of the times did not exceed.

        Within a bucket the times are taken to be spread evenly.
        """
        wanted, seen = share * self.total(), 0
        for place in sorted(self):
            if self[place] and seen + self[place] >= wanted:
                low = bounds[min(place, len(bounds)) - 1] if place else 0.0
                high = bounds[place] if place < len(bounds) else low  # beyond all bounds
                return low + (high - low) * (wanted - seen) / self[place]
            seen += self[place]
        return None

    def to_list(self) -> list[int]:
        """Return the place of the first bucket in use, and the counts from there on."""
        used = [place for place, count in self.items() if count]
        if not used:
            return []
        return [min(used), *(self[place] for place in range(min(used), max(used) + 1))]

    @classmethod
    def from_list(cls, stored: Sequence[int]) -> "Histogram":
        first, counts = (stored[0], stored[1:]) if stored else (0, ())
        return cls({first + place: count for place, count in enumerate(counts) if count})


@dataclass(slots=True)
class Tally:
    """What happened at one provider. `outcomes` counts `succeeded`, and failures by class."""

    outcomes: Counter[str] = field(default_factory=Counter)
    signals: int = 0
    durations: Histogram = field(default_factory=Histogram)
    delays: Histogram = field(default_factory=Histogram)  # from due to start
    backlog: int = 0  # the most jobs that were due at once

    def add(self, other: "Tally") -> None:
        self.outcomes.update(other.outcomes)
        self.signals += other.signals
        self.durations.update(other.durations)
        self.delays.update(other.delays)
        self.backlog = max(self.backlog, other.backlog)

    @property
    def attempts(self) -> int:
        return self.outcomes.total()

    @property
    def failures(self) -> int:
        return self.attempts - self.outcomes[SUCCEEDED]

    @property
    def is_empty(self) -> bool:
        return not (self.outcomes or self.signals or self.delays or self.backlog)


@dataclass(frozen=True, slots=True)
class Figures:
    """What happened at one provider in a minute, an hour or a day."""

    starts_at: datetime
    provider_slug: str
    tally: Tally


def sum_by_provider(figures: Iterable[Figures]) -> dict[str, Tally]:
    found: dict[str, Tally] = {}
    for one in figures:
        found.setdefault(one.provider_slug, Tally()).add(one.tally)
    return found


def sum_by_time(figures: Iterable[Figures], span: Span) -> dict[datetime, Tally]:
    """Return what happened at all of the providers, by when it did."""
    found: dict[datetime, Tally] = {}
    for one in figures:
        found.setdefault(start_of(span, one.starts_at), Tally()).add(one.tally)
    return found


@dataclass(frozen=True, slots=True)
class Period:
    """A time that a chart shows: its name, its length and the span of each point."""

    name: str
    length: timedelta
    span: Span


PERIODS: Mapping[str, Period] = {
    one.name: one
    for one in (
        Period("1h", timedelta(hours=1), Span.MINUTE),
        Period("24h", timedelta(hours=24), Span.HOUR),
        Period("7d", timedelta(days=7), Span.HOUR),
        Period("90d", timedelta(days=90), Span.DAY),
    )
}


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a chart."""

    at: datetime
    outcomes: Mapping[str, int]
    signals: int
    backlog: int
    duration_p50: float | None
    duration_p95: float | None
    delay_p50: float | None
    delay_p95: float | None


def chart(figures: Iterable[Figures], period: Period, now: datetime) -> list[Point]:
    """Return every point of a period, the oldest first; times without figures have empty points."""
    by_time = sum_by_time(figures, period.span)
    length = LENGTHS[period.span]
    last = start_of(period.span, now)
    places = range(period.length // length - 1, -1, -1)
    return [_point(last - place * length, by_time.get(last - place * length)) for place in places]


def _point(at: datetime, tally: Tally | None) -> Point:
    found = tally or Tally()
    return Point(
        at,
        dict(found.outcomes),
        found.signals,
        found.backlog,
        found.durations.percentile(0.5, DURATION_SECONDS),
        found.durations.percentile(0.95, DURATION_SECONDS),
        found.delays.percentile(0.5, DELAY_SECONDS),
        found.delays.percentile(0.95, DELAY_SECONDS),
    )
