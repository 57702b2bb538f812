"""A provider is taken for down when most of its attempts fail, of several connections."""

from datetime import timedelta

import pytest

from support.world import at
from syncline import Permanent, RateLimited, Transient, Unauthorized
from syncline.policy.breaker import (
    BreakerRules,
    Tally,
    counts,
    is_down,
    is_failure,
    is_own_network,
    next_probe,
)

RULES = BreakerRules()


@pytest.mark.parametrize(
    ("tally", "down"),
    [
        (Tally(20, 16, 5), True),
        (Tally(20, 15, 5), False),
        (Tally(19, 19, 5), False),
        (Tally(20, 20, 4), False),
        (Tally(1000, 800, 700), True),
        (Tally(0, 0, 0), False),
    ],
)
def test_four_fifths_of_twenty_attempts_of_five_connections(tally: Tally, down: bool) -> None:
    assert is_down(tally, RULES) is down


@pytest.mark.parametrize(
    ("error", "counted", "failed"),
    [
        (Transient("502"), True, True),
        (TimeoutError(), True, True),
        (RateLimited("429"), True, False),
        (KeyError("a fault of the connector"), True, False),
        (Unauthorized("401"), False, False),
        (Permanent("404"), False, False),
    ],
)
def test_what_an_error_says_about_the_provider(
    error: Exception, counted: bool, failed: bool
) -> None:
    assert (counts(error), is_failure(error)) == (counted, failed)


def test_probes_come_less_and_less_often() -> None:
    waits: list[timedelta] = []
    for _ in range(8):
        waits.append(next_probe(waits[-1] if waits else None, RULES, is_own_network=False))

    assert [wait.total_seconds() for wait in waits] == [30, 60, 120, 240, 480, 900, 900, 900]


def test_our_own_network_is_probed_every_half_minute() -> None:
    wait = next_probe(timedelta(minutes=4), RULES, is_own_network=True)

    assert wait == timedelta(seconds=30)


@pytest.mark.parametrize(
    ("opened", "own"),
    [
        ([], False),
        (["12:00"] * 2, False),
        (["12:00"] * 3, True),
        (["12:00", "12:00:30", "12:01"], True),
        (["12:00", "12:00:30", "12:01:01"], False),
        (["11:00", "12:01:01", "12:00:30", "12:01"], True),
    ],
)
def test_three_providers_within_a_minute_mean_our_own_network(opened: list[str], own: bool) -> None:
    assert is_own_network(map(at, opened)) is own
