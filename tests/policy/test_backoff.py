"""Backoff: doubled per prior failure, capped, stretched by a hint, jittered."""

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.policy.backoff import LONGEST_HINT, Backoff, read_hint

DEFAULT = Backoff(base_seconds=5, max_seconds=900, jitter_factor=0.1)
DAY = 86_400
MICROSECOND = timedelta(microseconds=1)

backoffs = st.builds(
    Backoff,
    base_seconds=st.floats(1e-6, DAY),
    max_seconds=st.floats(1e-6, 7 * DAY),
    jitter_factor=st.floats(0, 10),
)
failures = st.integers(0, 10**6)
rolls = st.floats(0, 1, exclude_max=True)
hints = st.none() | st.floats(0.001, DAY).map(lambda seconds: timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("prior_failures", "hint", "roll", "seconds"),
    [
        pytest.param(0, None, 0, 5, id="the first failure waits the base"),
        pytest.param(1, None, 0, 10, id="the second twice as long"),
        pytest.param(7, None, 0, 640, id="the last below the cap"),
        pytest.param(8, None, 0, 900, id="the first at the cap"),
        pytest.param(5000, None, 0, 900, id="thousands of failures"),
        pytest.param(0, None, 0.5, 5.25, id="half of the jitter"),
        pytest.param(8, None, 0.5, 945, id="jitter comes on top of the cap"),
        pytest.param(0, 60, 0, 60, id="a longer hint replaces the wait"),
        pytest.param(0, 60, 0.5, 63, id="and is jittered too"),
        pytest.param(5, 60, 0, 160, id="a shorter hint does not"),
        pytest.param(0, 7200, 0, 7200, id="a hint may exceed the cap"),
    ],
)
def test_delay(prior_failures: int, hint: float | None, roll: float, seconds: float) -> None:
    asked = None if hint is None else timedelta(seconds=hint)

    assert DEFAULT.delay(prior_failures, roll, asked) == timedelta(seconds=seconds)


def test_a_factor_of_zero_adds_nothing() -> None:
    plain = Backoff(base_seconds=5, max_seconds=900, jitter_factor=0)

    assert {plain.delay(3, roll) for roll in (0, 0.5, 0.999)} == {timedelta(seconds=40)}


def test_a_base_above_the_cap_waits_the_cap() -> None:
    assert Backoff(60, 30, 0).delay(0, 0) == timedelta(seconds=30)


@given(backoffs, failures, rolls, hints)
def test_the_delay_lies_between_the_wait_and_the_most_jitter(
    backoff: Backoff, prior_failures: int, roll: float, hint: timedelta | None
) -> None:
    wait = max(backoff.curve(prior_failures), hint or timedelta())

    delay = backoff.delay(prior_failures, roll, hint)

    assert wait <= delay <= wait + wait * backoff.jitter_factor + MICROSECOND


@given(backoffs, failures)
def test_the_wait_is_doubled_until_the_cap(backoff: Backoff, prior_failures: int) -> None:
    now, after = (backoff.curve(count) for count in (prior_failures, prior_failures + 1))
    cap = timedelta(seconds=backoff.max_seconds)

    assert now <= after <= cap
    assert after == cap or abs(after - 2 * now) <= 2 * MICROSECOND


@given(backoffs, failures, rolls, rolls)
def test_a_higher_roll_never_waits_less(
    backoff: Backoff, prior_failures: int, one: float, other: float
) -> None:
    less, more = sorted((one, other))

    assert backoff.delay(prior_failures, less) <= backoff.delay(prior_failures, more)


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        pytest.param(30, 30, id="an integer"),
        pytest.param(0.25, 0.25, id="a float"),
        pytest.param(DAY, DAY, id="a day"),
        pytest.param(DAY + 1, DAY, id="more than a day"),
        pytest.param(float("inf"), DAY, id="for ever"),
        pytest.param(10**400, DAY, id="longer than a float can say"),
        pytest.param("30", 30, id="a header's text"),
        pytest.param(" 1.5\n", 1.5, id="text with space around it"),
        pytest.param("1e400", DAY, id="text longer than a float can say"),
        pytest.param(Decimal("2.5"), 2.5, id="a decimal"),
        pytest.param(Decimal("1e999999"), DAY, id="a decimal that no float can say"),
        pytest.param(Decimal("Infinity"), DAY, id="a decimal, for ever"),
        pytest.param(Fraction(10**400, 3), DAY, id="a fraction that no float can say"),
        pytest.param(timedelta(minutes=2), 120, id="a timedelta"),
        pytest.param(timedelta.max, DAY, id="the longest timedelta"),
    ],
)
def test_a_hint_is_heeded_up_to_a_day(asked: Any, seconds: float) -> None:
    assert read_hint(asked) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "nothing",
    [None, 0, -1, -0.5, float("-inf"), "0", "-3", Decimal("-1"), timedelta(), timedelta.min],
    ids=repr,
)
def test_no_wait_is_no_hint(nothing: Any) -> None:
    assert read_hint(nothing) is None


class Odd:
    """Something of a connector's own, which cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "garbage",
    [
        *(float("nan"), True, False, "soon", "", "nan", "9" * 41, b"30", [30], {}, ..., 1j),
        *(Decimal("NaN"), Decimal("sNaN"), Odd()),
    ],
    ids=lambda garbage: type(garbage).__name__,
)
def test_garbage_is_refused_as_a_hint(garbage: Any) -> None:
    with pytest.raises(ValueError, match="is not a number of seconds"):
        read_hint(garbage)


anything = st.one_of(
    *(st.floats(), st.integers(), st.text(), st.booleans(), st.binary(), st.none()),
    *(st.decimals(), st.fractions(), st.timedeltas(), st.text("0123456789.eE+-_ ")),
)


@given(anything)
def test_whatever_is_passed_as_a_hint_is_read_or_refused(asked: object) -> None:
    try:
        hint = read_hint(asked)
    except ValueError:
        return

    assert hint is None or timedelta() <= hint <= LONGEST_HINT
