"""Jitter: whole seconds, uniform over those within the bounds, in decimal arithmetic."""

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.policy.schedule import ScheduleRules, sample_jitter

LAST_ROLL = 1 - 2**-53  # the largest number below 1

intervals = st.integers(60, 31_536_000)
rolls = st.floats(0, 1, exclude_max=True)
shares = st.decimals(0, 1, places=4).filter(lambda share: share < 1)
bounds = st.tuples(shares, shares).map(lambda pair: (min(pair), max(pair)))


@pytest.mark.parametrize(
    ("interval", "lowest_share", "highest_share", "lowest", "highest"),
    [
        pytest.param(900, "0", "0.2", 0, 180, id="the defaults"),
        pytest.param(900, "0.07", "0.2", 63, 180, id="0.07 of 900 is 63, not 64"),
        pytest.param(900, "0", "0.07", 0, 63, id="and not 62"),
        pytest.param(100, "0.29", "0.29", 29, 29, id="0.29 of 100 is 29"),
        pytest.param(900, "0", "0", 0, 0, id="no jitter"),
        pytest.param(61, "0.1", "0.2", 7, 12, id="bounds between seconds round inwards"),
        pytest.param(60, "0.11", "0.11", 6, 6, id="no second between: the one below"),
        pytest.param(60, "0.001", "0.01", 0, 0, id="no second between, near zero"),
        pytest.param(86_400, "0", "0.9999", 0, 86_391, id="nearly the whole interval"),
    ],
)
def test_jitter_stays_within_bounds_and_reaches_them(
    interval: int, lowest_share: str, highest_share: str, lowest: int, highest: int
) -> None:
    rules = _rules(Decimal(lowest_share), Decimal(highest_share))

    assert _sample(interval, rules, 0.0) == lowest
    assert _sample(interval, rules, LAST_ROLL) == highest


@given(intervals, bounds, rolls)
def test_jitter_is_a_whole_second_within_the_exact_bounds(
    interval: int, bounds: tuple[Decimal, Decimal], roll: float
) -> None:
    lowest = ceil(Fraction(bounds[0]) * interval)
    highest = floor(Fraction(bounds[1]) * interval)

    jitter = _sample(interval, _rules(*bounds), roll)

    assert type(jitter) is int
    assert lowest <= jitter <= highest or (lowest > highest and jitter == highest)


@given(intervals, bounds, rolls, rolls)
def test_a_higher_roll_never_gives_less(
    interval: int, bounds: tuple[Decimal, Decimal], one: float, other: float
) -> None:
    rules = _rules(*bounds)

    assert _sample(interval, rules, min(one, other)) <= _sample(interval, rules, max(one, other))


@given(st.integers(60, 900), bounds)
def test_every_second_is_equally_likely(interval: int, bounds: tuple[Decimal, Decimal]) -> None:
    """Cut the rolls into as many equal parts as there are values: each part gives one of them."""
    rules = _rules(*bounds)
    lowest, highest = _sample(interval, rules, 0.0), _sample(interval, rules, LAST_ROLL)
    parts = highest - lowest + 1

    for part in range(parts):
        begins, ends = part / parts + 1e-9, (part + 1) / parts - 1e-9
        assert {_sample(interval, rules, roll) for roll in (begins, ends)} == {lowest + part}


def _rules(lowest: Decimal, highest: Decimal) -> ScheduleRules:
    return ScheduleRules(timedelta(minutes=15), timedelta(days=1), lowest, highest)


def _sample(interval: int, rules: ScheduleRules, roll: float) -> int:
    return sample_jitter(timedelta(seconds=interval), rules, roll)
