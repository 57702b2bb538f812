"""How well a provider is doing: judged by the attempts that ended lately (R1)."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from syncline.policy.figures import SUCCEEDED, Figures, Span, Tally, sum_by_provider, sum_by_time
from syncline.policy.gates import Gate

# rate_limited once 1 in 50 connections waits at the provider's request, or 1 in 50 attempts of the
# last minutes met a limit: between two limits a provider's gate is open for moments only.
RATE_LIMITED_SHARE = 50
LIMITED_WITHIN = timedelta(minutes=2)
LIMITED_ATTEMPTS = 3  # fewer may be one connection's own limit
RATE_LIMITED = "RateLimited"  # the class of the error
FAILING_SHARE = 0.5
ENOUGH_ATTEMPTS = 5  # fewer say little: then a longer time counts
LATELY = (timedelta(minutes=10), timedelta(hours=1), timedelta(hours=24))


class Health(StrEnum):
    OK = "ok"
    FAILING = "failing"
    RATE_LIMITED = "rate_limited"
    DOWN = "down"  # taken for down: nothing of it starts but a probe
    PAUSED = "paused"  # by a person
    UNKNOWN = "unknown"  # no live worker has its connector


@dataclass(frozen=True, slots=True)
class Recent:
    """The attempts of a provider that ended within this time.

    `failing_since` if most fail; `limited_since` if some were refused because of a limit.
    """

    within: timedelta = LATELY[0]
    outcomes: Mapping[str, int] = field(default_factory=dict)
    failing_since: datetime | None = None
    limited_since: datetime | None = None
    limited_share: float = 0.0  # of the attempts of the last two minutes

    @property
    def attempts(self) -> int:
        return sum(self.outcomes.values())

    @property
    def failures(self) -> int:
        return self.attempts - self.outcomes.get(SUCCEEDED, 0)

    @property
    def failing_share(self) -> float:
        return self.failures / self.attempts if self.attempts else 0.0

    @property
    def commonest_error(self) -> str | None:
        """Return the class of most of the failures."""
        failed = Counter({name: n for name, n in self.outcomes.items() if name != SUCCEEDED})
        return failed.most_common(1)[0][0] if failed else None


@dataclass(frozen=True, slots=True)
class ProviderCounts:
    """What health is judged by, beside the attempts that ended lately."""

    workers: int
    connections: int
    rate_limited: int  # jobs that wait because the provider asked for it


def judge_health(
    counts: ProviderCounts, recent: Recent, gate: Gate | None, now: datetime
) -> Health:
    """Return the first that holds: unknown, paused, down, rate_limited, failing, ok."""
    if not counts.workers:
        return Health.UNKNOWN
    if gate is not None and gate.paused_at is not None:
        return Health.PAUSED
    if gate is not None and gate.opened_at is not None:
        return Health.DOWN
    is_closed = gate is not None and gate.is_closed(now - LIMITED_WITHIN)  # or was, a moment ago
    is_waiting = counts.rate_limited * RATE_LIMITED_SHARE >= max(counts.connections, 1)
    if is_closed or is_waiting or recent.limited_share * RATE_LIMITED_SHARE >= 1:
        return Health.RATE_LIMITED
    return Health.FAILING if _is_failing(recent.attempts, recent.failures) else Health.OK


def _is_failing(attempts: int, failures: int) -> bool:
    return attempts > 0 and failures > FAILING_SHARE * attempts


def judge_recent(
    minutes: Sequence[Figures], hours: Sequence[Figures], now: datetime
) -> dict[str, Recent]:
    """Return the recent attempts of each provider.

    `minutes` are those of the last hour, `hours` those of the last day. The ten minutes before now
    count, or a longer time if they have few attempts.
    """
    found = {}
    for slug in sorted({one.provider_slug for one in (*minutes, *hours)}):
        own_minutes = [one for one in minutes if one.provider_slug == slug]
        own_hours = [one for one in hours if one.provider_slug == slug]
        found[slug] = _judge_one(own_minutes, own_hours, now)
    return found


def _judge_one(minutes: Sequence[Figures], hours: Sequence[Figures], now: datetime) -> Recent:
    within, tally = LATELY[-1], Tally()
    for within, figures in zip(LATELY, (minutes, minutes, hours), strict=True):
        tally = _sum(one for one in figures if one.starts_at > now - within)
        if tally.attempts >= ENOUGH_ATTEMPTS:
            break
    outcomes, failing_since, limited_since = dict(tally.outcomes), None, None
    if _is_bad(tally):
        failing_since = _since(minutes, hours, _is_bad)
    if _is_limited(tally) or _is_limited(_sum(minutes)):  # who was told to wait long tries seldom
        limited_since = _since(minutes, hours, _is_limited)
    newest = _sum(one for one in minutes if one.starts_at > now - LIMITED_WITHIN)
    refused = newest.outcomes[RATE_LIMITED]
    limited_share = refused / newest.attempts if refused >= LIMITED_ATTEMPTS else 0.0
    return Recent(within, outcomes, failing_since, limited_since, limited_share)


def _is_bad(tally: Tally) -> bool:
    return _is_failing(tally.attempts, tally.failures)


def _is_limited(tally: Tally) -> bool:
    return tally.outcomes[RATE_LIMITED] > 0


def _sum(figures: Iterable[Figures]) -> Tally:
    total = Tally()
    for tally in sum_by_provider(figures).values():
        total.add(tally)
    return total


def _since(
    minutes: Sequence[Figures], hours: Sequence[Figures], holds: Callable[[Tally], bool]
) -> datetime | None:
    """Return the first of the latest times with attempts in all of which this holds."""
    since, has_ended = _since_of(minutes, Span.MINUTE, holds)
    if has_ended:
        return since
    earlier = [one for one in hours if since is None or one.starts_at < since - LATELY[1]]
    return _since_of(earlier, Span.HOUR, holds)[0] or since


def _since_of(
    figures: Sequence[Figures], span: Span, holds: Callable[[Tally], bool]
) -> tuple[datetime | None, bool]:
    """Return that time, and whether it did not hold before.

    The newest times in which it does not hold are left out: a minute that has just begun says
    little.
    """
    since = None
    for at, tally in sorted(sum_by_time(figures, span).items(), reverse=True):
        if tally.attempts and holds(tally):
            since = at
        elif tally.attempts and since is not None:
            return since, True
    return since, False
