"""How well a provider is doing (R1)."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from syncline.policy.figures import SUCCEEDED, Figures, Tally
from syncline.policy.gates import Gate
from syncline.policy.health import Health, ProviderCounts, Recent, judge_health, judge_recent

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
WELL = ProviderCounts(workers=1, connections=100, rate_limited=0)
HALF = Recent(outcomes={SUCCEEDED: 10, "Transient": 10})
MOST = Recent(outcomes={SUCCEEDED: 10, "Transient": 11})
PAUSED = Gate("github", paused_at=NOW)
DOWN = Gate("github", opened_at=NOW)
LIMITED = Gate("github", closed_until=NOW + timedelta(seconds=1))


@pytest.mark.parametrize(
    ("counts", "recent", "gate", "health"),
    [
        pytest.param(WELL, Recent(), None, Health.OK, id="not used yet"),
        pytest.param(WELL, HALF, None, Health.OK, id="half of the attempts failed"),
        pytest.param(WELL, MOST, None, Health.FAILING, id="most attempts failed"),
        pytest.param(replace(WELL, rate_limited=1), HALF, None, Health.OK, id="1 in 100 waits"),
        pytest.param(
            replace(WELL, rate_limited=2), MOST, None, Health.RATE_LIMITED, id="1 in 50 waits"
        ),
        pytest.param(WELL, HALF, LIMITED, Health.RATE_LIMITED, id="it limits the application"),
        pytest.param(WELL, MOST, DOWN, Health.DOWN, id="its breaker is open"),
        pytest.param(WELL, MOST, replace(DOWN, paused_at=NOW), Health.PAUSED, id="both"),
        pytest.param(replace(WELL, workers=0), MOST, PAUSED, Health.UNKNOWN, id="no worker"),
    ],
)
def test_health_is_judged_by_what_happened_lately(
    counts: ProviderCounts, recent: Recent, gate: Gate | None, health: Health
) -> None:
    assert judge_health(counts, recent, gate, NOW) == health


def at(ago: timedelta, *, good: int = 0, bad: int = 0, slug: str = "github") -> Figures:
    return Figures(NOW - ago, slug, Tally(+Counter({SUCCEEDED: good, "Transient": bad})))


def minutes(count: int) -> timedelta:
    return timedelta(minutes=count)


def test_the_last_ten_minutes_count_if_they_have_enough_attempts() -> None:
    recent = judge_recent([at(minutes(2), bad=5), at(minutes(30), good=99)], [], NOW)["github"]
    assert (recent.within, recent.failures, recent.attempts) == (minutes(10), 5, 5)


def test_a_longer_time_counts_if_there_were_few() -> None:
    few, more = at(minutes(2), bad=4), at(minutes(30), good=1)
    assert judge_recent([few, more], [], NOW)["github"].within == minutes(60)
    hours = [at(minutes(60), bad=4), at(minutes(300), good=10)]
    recent = judge_recent([few], hours, NOW)["github"]
    assert (recent.within, recent.attempts) == (timedelta(hours=24), 14)


def test_failing_since_names_the_first_of_the_latest_times_in_which_most_failed() -> None:
    seen = [
        at(minutes(1), bad=9, good=1),
        at(minutes(3), bad=9),
        at(minutes(4), good=9, bad=1),
        at(minutes(5), bad=9),
    ]
    assert judge_recent(seen, [], NOW)["github"].failing_since == NOW - minutes(3)


def test_failing_since_reaches_back_over_hours() -> None:
    seen = [at(minutes(ago), bad=9) for ago in range(60)]
    hours = [at(timedelta(hours=ago), bad=99) for ago in range(5)] + [at(minutes(300), good=99)]
    assert judge_recent(seen, hours, NOW)["github"].failing_since == NOW - timedelta(hours=4)


def test_the_commonest_error_is_named() -> None:
    recent = Recent(outcomes={SUCCEEDED: 9, "Timeout": 2, "Transient": 3})
    assert (recent.commonest_error, Recent().commonest_error) == ("Transient", None)


def limited(ago: int, *, good: int = 5, refused: int = 1) -> Figures:
    return Figures(
        NOW - minutes(ago), "github", Tally(+Counter({SUCCEEDED: good, "RateLimited": refused}))
    )


def test_limited_since_names_the_first_of_the_latest_times_with_a_refusal() -> None:
    seen = [limited(2), limited(4), limited(5, refused=0), limited(7)]
    recent = judge_recent(seen, [], NOW)["github"]
    assert (recent.limited_since, recent.failing_since) == (NOW - minutes(4), None)


def health_of(*seen: Figures) -> Health:
    return judge_health(WELL, judge_recent(seen, [], NOW)["github"], None, NOW)


def test_a_provider_goes_on_limiting_us_between_two_limits() -> None:
    """Its gate is open for moments: the page must not say that all is well in each of them."""
    assert health_of(limited(1, good=100, refused=3)) == Health.RATE_LIMITED
    assert health_of(limited(1, good=100, refused=2)) == Health.OK  # one connection's own limit
    assert health_of(limited(1, good=1000, refused=3)) == Health.OK
    assert health_of(limited(2, good=100, refused=30)) == Health.OK  # it is over


def test_since_when_a_long_limit_holds_is_known_although_nobody_tries() -> None:
    seen = [limited(40), *(limited(ago, refused=0) for ago in range(1, 10))]
    assert judge_recent(seen, [], NOW)["github"].limited_since == NOW - minutes(40)


def test_a_minute_that_has_just_begun_does_not_change_since_when() -> None:
    seen = [limited(0, refused=0), limited(1), limited(2)]
    assert judge_recent(seen, [], NOW)["github"].limited_since == NOW - minutes(2)
    failing = [at(minutes(0), good=1), at(minutes(1), bad=9), at(minutes(2), bad=9)]
    assert judge_recent(failing, [], NOW)["github"].failing_since == NOW - minutes(2)


def test_hours_before_a_good_minute_do_not_count() -> None:
    seen = [at(minutes(1), bad=9), at(minutes(2), good=9), at(minutes(3), bad=3)]
    hours = [at(timedelta(hours=ago), bad=99) for ago in range(5)]
    assert judge_recent(seen, hours, NOW)["github"].failing_since == NOW - minutes(1)
