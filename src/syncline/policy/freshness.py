"""How old what was synced is: ages, sorted into bands that people think in."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

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
class Band:
    """How many connections synced well within this age, and not within the one before."""

    label: str
    count: int


def distribute(ages: Iterable[timedelta | None]) -> list[Band]:
    """Return the ages by band; None stands for a connection without a good sync."""
    labels = [f"≤ {name}" for _, name in BANDS] + ["older", "never"]
    counts = [0] * len(labels)
    for age in ages:
        counts[-1 if age is None else bisect_left(LIMITS, age)] += 1
    return [Band(label, count) for label, count in zip(labels, counts, strict=True)]
