"""When a provider is taken for down, and when it is probed (P6)."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from syncline.errors import Permanent, Transient, Unauthorized

NETWORK_PROVIDERS = 3  # this many that go down together mean our own network
NETWORK_WINDOW = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class BreakerRules:
    failing_share: float = 0.8
    attempts: int = 20
    connections: int = 5
    window: timedelta = timedelta(minutes=1)
    first_probe: timedelta = timedelta(seconds=30)
    longest_probe: timedelta = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Tally:
    """Attempts of a provider within the window, and how many connections the failed ones had."""

    attempts: int
    failures: int
    connections: int


def counts(error: BaseException) -> bool:
    """Return whether an attempt says anything about the provider.

    One that was refused for its own credentials or configuration does not.
    """
    return not isinstance(error, Unauthorized | Permanent)


def is_failure(error: BaseException) -> bool:
    """Return whether the provider did not answer, or said that it cannot."""
    return isinstance(error, Transient | TimeoutError)


def is_down(tally: Tally, rules: BreakerRules) -> bool:
    return (
        tally.attempts >= rules.attempts
        and tally.connections >= rules.connections
        and tally.failures >= rules.failing_share * tally.attempts
    )


def next_probe(last: timedelta | None, rules: BreakerRules, *, is_own_network: bool) -> timedelta:
    """Return how long to wait for the next probe, after one that waited `last` and failed."""
    if last is None or is_own_network:
        return rules.first_probe
    return min(2 * last, rules.longest_probe)


def is_own_network(opened: Iterable[datetime]) -> bool:
    """Return whether so many providers went down within a minute that it must be us."""
    times = sorted(opened)
    spans = zip(times, times[NETWORK_PROVIDERS - 1 :], strict=False)
    return any(last - first <= NETWORK_WINDOW for first, last in spans)
