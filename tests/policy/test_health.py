"""Health of a provider: one definition for the API, the dashboard and the command line."""

from dataclasses import replace

import pytest

from syncline.policy.health import Health, ProviderCounts, judge_health

WELL = ProviderCounts(workers=1, connections=100, rate_limited=0, succeeded=10, failed=0)


@pytest.mark.parametrize(
    ("counts", "health"),
    [
        pytest.param(WELL, Health.OK, id="nothing is wrong"),
        pytest.param(replace(WELL, failed=10), Health.OK, id="half of the jobs failed"),
        pytest.param(replace(WELL, failed=11), Health.FAILING, id="most jobs failed"),
        pytest.param(replace(WELL, rate_limited=1), Health.OK, id="1 in 100 waits"),
        pytest.param(replace(WELL, rate_limited=2), Health.RATE_LIMITED, id="1 in 50 waits"),
        pytest.param(
            replace(WELL, rate_limited=2, failed=99), Health.RATE_LIMITED, id="waits and fails"
        ),
        pytest.param(replace(WELL, workers=0, rate_limited=99), Health.UNKNOWN, id="no worker"),
        pytest.param(ProviderCounts(1, 0, 0, 0, 0), Health.OK, id="not used yet"),
    ],
)
def test_health_follows_from_counts(counts: ProviderCounts, health: Health) -> None:
    assert judge_health(counts) == health
