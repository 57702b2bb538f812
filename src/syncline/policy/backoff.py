"""How long a failed job waits: doubled per prior failure, capped, stretched by a hint, jittered."""

from dataclasses import dataclass
from datetime import timedelta

MAX_DOUBLINGS = 60  # any base above a picosecond has reached any cap by then
LONGEST_HINT = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Backoff:
    """The numbers of one provider's policy."""

    base_seconds: float
    max_seconds: float
    jitter_factor: float

    @property
    def longest(self) -> timedelta:
        """The most that a job can be made to wait."""
        capped = max(timedelta(seconds=self.max_seconds), LONGEST_HINT)
        return capped + capped * self.jitter_factor

    def exponential(self, prior_failures: int) -> timedelta:
        doubled = self.base_seconds * 2.0 ** min(prior_failures, MAX_DOUBLINGS)
        return timedelta(seconds=min(doubled, self.max_seconds))

    def delay(self, prior_failures: int, roll: float, hint: timedelta | None = None) -> timedelta:
        """Return the wait before the next attempt."""
        effective = self.exponential(prior_failures)
        if hint is not None:
            effective = max(effective, hint)
        return effective + effective * (self.jitter_factor * roll)


def read_hint(seconds: object) -> timedelta | None:
    """Return the pause that a provider asked for, if it is one; at most a day."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    if not seconds > 0:  # neither is NaN
        return None
    return timedelta(seconds=min(seconds, LONGEST_HINT.total_seconds()))
