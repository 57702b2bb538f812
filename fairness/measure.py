"""What the suite computes from times: the fullest window, a ramp's curve, percentiles."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from syncline.policy.ramp import allowed_starts


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, and the bound that it has to keep."""

    what: str
    value: float
    at_most: float | None = None
    at_least: float | None = None
    unit: str = ""

    @property
    def is_kept(self) -> bool:
        is_low_enough = self.at_most is None or self.value <= self.at_most
        return is_low_enough and (self.at_least is None or self.value >= self.at_least)

    @property
    def bound(self) -> str:
        bounds = (("≤", self.at_most), ("≥", self.at_least))
        return " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)

    def __str__(self) -> str:
        number = f"{self.value:,.0f}" if float(self.value).is_integer() else f"{self.value:.3g}"
        bound = f" ({self.bound})" if self.bound else ""
        return f"{self.what} {number}{' ' + self.unit if self.unit else ''}{bound}"


def fullest_window(times: Sequence[float], seconds: float) -> int:
    """Return the most events in any span of so many seconds."""
    ordered, most, first = sorted(times), 0, 0
    for last, at in enumerate(ordered):
        while ordered[first] <= at - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def excess_over_ramp(times: Sequence[float], began: float, rate: float) -> float:
    """Return by how many starts a ramp was exceeded at its worst moment; below 0 if never."""
    after = [at for at in sorted(times) if at >= began]
    return max(
        (
            number - allowed_starts(rate, timedelta(seconds=at - began))
            for number, at in enumerate(after, 1)
        ),
        default=0.0,
    )


def seconds_until_rate(
    times: Sequence[float], began: float, rate: float, *, over: float = 5.0
) -> float:
    """Return how long it took until so many events a second were seen over a while."""
    needed = max(1, round(rate * over))
    after = [at for at in sorted(times) if at >= began]
    for first, at in zip(after, after[needed - 1 :], strict=False):
        if at - first <= over:
            return at - began
    return float("inf")


def count_between(times: Sequence[float], since: float, until: float) -> int:
    return sum(since <= at < until for at in times)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
