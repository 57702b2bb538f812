"""How old synced data is: the age of each connection's last good sync, sorted into bands."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

BANDS = (
    (timedelta(minutes=5), "5 min"),
    (timedelta(minutes=15), "15 min"),
    (timedelta(hours=1), "1 h"),
    (timedelta(hours=6), "6 h"),
    (timedelta(days=1), "1 d"),
    (timedelta(days=7), "7 d"),
)
LIMITS = [limit for limit, _ in BANDS]


@dataclass(frozen=True, slots=True)
class LastSync:
    """An active connection and its last good sync; None if none is among its recent jobs."""

    provider_slug: str
    last_good_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Sample:
    """The active connections that were read; each stands for `weight` of them."""

    connections: Sequence[LastSync]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Band:
    """How many connections have an age within this limit and above the one before."""

    label: str
    count: int


@dataclass(frozen=True, slots=True)
class Freshness:
    """The sampled connections by age; `is_sample` says that there are others."""

    bands: Sequence[Band]
    sampled: int
    is_sample: bool


def judge_freshness(sample: Sample, now: datetime) -> Freshness:
    """Return the connections by age; one without a good sync is in the band `never`."""
    labels = [f"≤ {name}" for _, name in BANDS] + ["older", "never"]
    counts = [0] * len(labels)
    for one in sample.connections:
        good_at = one.last_good_at
        counts[-1 if good_at is None else bisect_left(LIMITS, now - good_at)] += 1
    bands = [Band(label, count) for label, count in zip(labels, counts, strict=True)]
    return Freshness(bands, len(sample.connections), sample.weight > 1)


def ages_by_provider(sample: Sample, now: datetime) -> dict[str, list[float]]:
    """Return ages in seconds; without a successful sync, the age counts from the creation."""
    ages: dict[str, list[float]] = defaultdict(list)
    for one in sample.connections:
        age = now - (one.last_good_at or one.created_at)
        ages[one.provider_slug].append(max(age.total_seconds(), 0))
    return ages
