"""Figures by what happened (R1, R2)."""

import itertools
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.policy.figures import (
    DELAY_SECONDS,
    DURATION_SECONDS,
    PERIODS,
    SUCCEEDED,
    Figures,
    Histogram,
    Span,
    Tally,
    chart,
    start_of,
)

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
HISTOGRAMS = st.dictionaries(st.integers(0, 20), st.integers(1, 10**6)).map(Histogram)


@pytest.mark.parametrize(
    ("span", "start"),
    [
        (Span.MINUTE, datetime(2026, 3, 4, 5, 6, tzinfo=UTC)),
        (Span.HOUR, datetime(2026, 3, 4, 5, tzinfo=UTC)),
        (Span.DAY, datetime(2026, 3, 4, tzinfo=UTC)),
    ],
)
def test_a_span_begins_at_a_round_time(span: Span, start: datetime) -> None:
    assert start_of(span, NOW) == start


@given(HISTOGRAMS)
def test_a_histogram_is_the_same_once_it_was_stored(histogram: Histogram) -> None:
    assert Histogram.from_list(histogram.to_list()) == histogram


@given(HISTOGRAMS, st.floats(0.01, 1), st.sampled_from([DURATION_SECONDS, DELAY_SECONDS]))
def test_a_percentile_lies_in_the_bucket_that_has_it(
    histogram: Histogram, share: float, bounds: tuple[float, ...]
) -> None:
    found = histogram.percentile(share, bounds)
    if not histogram:
        assert found is None
        return
    assert found is not None
    below = sum(count for place, count in histogram.items() if place < _place(found, bounds))
    assert below <= share * histogram.total() + 1e-6


def _place(seconds: float, bounds: tuple[float, ...]) -> int:
    return sum(bound < seconds * (1 - 1e-9) for bound in bounds)


def test_percentiles_of_known_times() -> None:
    times = Histogram({4: 90, 6: 10})  # 90 within 0.05 to 0.1 s, 10 within 0.25 to 0.5 s
    assert times.percentile(0.5, DURATION_SECONDS) == pytest.approx(0.05 + 0.05 * 50 / 90)
    assert times.percentile(0.95, DURATION_SECONDS) == pytest.approx(0.375)
    assert Histogram({17: 1}).percentile(0.5, DURATION_SECONDS) == 3600  # longer than any bound


def test_what_is_added_up_is_complete() -> None:
    one = Tally(Counter({SUCCEEDED: 1}), 2, Histogram({1: 3}), Histogram({2: 4}), backlog=9)
    one.add(Tally(Counter({SUCCEEDED: 1, "Timeout": 1}), 1, Histogram({1: 1}), backlog=5))
    assert (one.outcomes, one.signals) == ({SUCCEEDED: 2, "Timeout": 1}, 3)
    assert (one.durations, one.delays, one.backlog) == ({1: 4}, {2: 4}, 9)  # the most at once
    assert (one.attempts, one.failures) == (3, 1)


@pytest.mark.parametrize(("name", "points"), [("1h", 60), ("24h", 24), ("7d", 168), ("90d", 90)])
def test_a_chart_has_a_point_for_every_time(name: str, points: int) -> None:
    period = PERIODS[name]
    seen = [
        Figures(NOW, "github", Tally(signals=1)),
        Figures(NOW, "slack", Tally(signals=2)),
        Figures(NOW - period.length * 2, "github", Tally(signals=99)),
    ]
    drawn = chart(seen, period, NOW)
    assert (len(drawn), drawn[-1].at, drawn[-1].signals) == (points, start_of(period.span, NOW), 3)
    assert sum(point.signals for point in drawn) == 3
    steps = {later.at - sooner.at for sooner, later in itertools.pairwise(drawn)}
    assert len(steps) == 1
    assert steps < {timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)}
