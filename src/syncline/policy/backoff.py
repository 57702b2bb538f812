"""How long a failed job waits: doubled per prior failure, capped, extended by a hint, jittered."""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

MAX_DOUBLINGS = 60  # any base above a picosecond has reached any cap by then
LONGEST_HINT = timedelta(hours=24)
LONGEST_NUMBER = 40  # characters of a hint that is text


@dataclass(frozen=True, slots=True)
class Backoff:
    """The numbers of one provider's policy."""

    base_seconds: float
    max_seconds: float
    jitter_factor: float

    @property
    def longest(self) -> timedelta:
        """The longest wait, with or without a provider's hint."""
        return max(self.longest_unasked, LONGEST_HINT + LONGEST_HINT * self.jitter_factor)

    @property
    def longest_unasked(self) -> timedelta:
        """The longest wait without a hint."""
        capped = timedelta(seconds=self.max_seconds)
        return capped + capped * self.jitter_factor

    def curve(self, prior_failures: int) -> timedelta:
        """Return the wait without a hint and without jitter; it grows up to the cap."""
        doubled = self.base_seconds * 2.0 ** min(prior_failures, MAX_DOUBLINGS)
        return timedelta(seconds=min(doubled, self.max_seconds))

    def delay(self, prior_failures: int, roll: float, hint: timedelta | None = None) -> timedelta:
        """Return the wait before the next attempt."""
        effective = self.curve(prior_failures)
        if hint is not None:
            effective = max(effective, hint)
        return effective + effective * (self.jitter_factor * roll)


def read_hint(asked: object) -> timedelta | None:
    """Return the wait that a provider asked for, at most a day; None if it asked for none.

    Raises ValueError for a value that is not a duration.
    """
    if asked is None:
        return None
    try:
        seconds = _seconds(asked)
    except Exception:  # a connector's own class may raise anything
        seconds = None
    if seconds is None or seconds != seconds:  # NaN
        raise ValueError(f"{_shown(asked)} is not a number of seconds")
    if seconds <= 0:
        return None
    return timedelta(seconds=min(seconds, LONGEST_HINT.total_seconds()))


def _seconds(asked: object) -> float | None:
    """Return a header's text, a number of any kind or a timedelta in seconds."""
    if isinstance(asked, timedelta):
        return asked.total_seconds()
    if isinstance(asked, bool):
        return None
    if isinstance(asked, int):
        return min(asked, int(LONGEST_HINT.total_seconds()))  # a float cannot hold every int
    if isinstance(asked, str):
        return float(asked) if len(asked) <= LONGEST_NUMBER else None
    if isinstance(asked, float | Decimal | Fraction):
        return float(min(asked, int(LONGEST_HINT.total_seconds())))
    return None


def _shown(asked: object) -> str:
    try:
        return repr(asked)[:60]
    except Exception:
        return f"a {type(asked).__name__}"
