"""Starts per second begin at the usual rate and double every five seconds."""

from datetime import timedelta

import pytest

from support.world import at
from syncline.policy.ramp import History, allowed_starts, backlog_after_absence


def test_the_rate_begins_with_the_usual_one() -> None:
    first = allowed_starts(20, timedelta(seconds=0.1))

    assert first == pytest.approx(2, rel=0.02)


def test_the_rate_doubles_every_five_seconds() -> None:
    def rate(second: float) -> float:
        after = allowed_starts(20, timedelta(seconds=second + 0.01))
        return (after - allowed_starts(20, timedelta(seconds=second))) / 0.01

    assert [round(rate(second)) for second in (0, 5, 10, 15)] == [20, 40, 80, 160]


def test_nothing_starts_before_the_ramp() -> None:
    assert allowed_starts(20, timedelta(seconds=-3)) == 0


@pytest.mark.parametrize(
    ("starts", "since", "until", "rate"),
    [
        (36_000, "11:00", "12:00", 10),
        (600, "11:50", "12:00", 1),
        (600, "11:51", "12:00", None),  # nine minutes say too little
        (0, "11:00", "12:00", None),
    ],
)
def test_the_usual_rate_is_the_mean_of_what_is_known(
    starts: int, since: str, until: str, rate: float | None
) -> None:
    assert History(starts, at(since), at(until)).usual_rate == rate


@pytest.mark.parametrize(
    ("starts", "now", "backlog"),
    [
        (3600, "12:01:59", None),  # it was hardly away
        (3600, "12:02", 61),
        (3600, "18:00", 61),
        (0, "18:00", None),
    ],
)
def test_a_fleet_that_was_away_may_have_a_minute_of_starts_to_catch_up(
    starts: int, now: str, backlog: int | None
) -> None:
    history = History(starts, at("11:00"), at("12:00"))

    assert backlog_after_absence(history, at(now)) == backlog
