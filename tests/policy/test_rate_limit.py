"""The bucket of tokens, and whom an address stands for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.policy.rate_limit import Bucket, Rate, network_of, take

RATE = Rate(per_second=2, burst=3)


def test_a_burst_passes_and_then_the_rate_counts() -> None:
    bucket: Bucket | None = None
    waits = []
    for _ in range(5):
        bucket, wait = take(bucket, RATE, 100.0)
        waits.append(wait)

    assert waits == [0, 0, 0, 0.5, 0.5]
    bucket, wait = take(bucket, RATE, 100.5)
    assert wait == 0
    assert take(bucket, RATE, 100.5)[1] == 0.5


def test_a_bucket_never_holds_more_than_the_burst() -> None:
    bucket, _ = take(None, RATE, 0.0)

    assert take(bucket, RATE, 1e9)[0].tokens == RATE.burst - 1


@given(st.lists(st.floats(0, 10), max_size=50), st.floats(0.1, 100), st.integers(1, 20))
def test_no_more_pass_than_burst_and_rate_allow(
    pauses: list[float], per_second: float, burst: int
) -> None:
    rate, bucket, now, passed = Rate(per_second, burst), None, 0.0, 0
    for pause in pauses:
        now += pause
        bucket, wait = take(bucket, rate, now)
        passed += wait == 0

    assert passed <= burst + now * per_second + 1e-6


@given(st.floats(0.001, 1000), st.integers(1, 10))
def test_after_the_wait_there_is_a_token(per_second: float, burst: int) -> None:
    rate, bucket, wait = Rate(per_second, burst), None, 0.0
    while not wait:
        bucket, wait = take(bucket, rate, 0.0)

    assert take(bucket, rate, wait * 1.001)[1] == 0


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_of_ipv6_the_network_counts(address: str, network: str) -> None:
    assert network_of(address) == network
