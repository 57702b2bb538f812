"""How fast the jobs of a provider may start after they had to wait (P7)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import log

DOUBLES_EVERY = timedelta(seconds=5)
LASTS = timedelta(minutes=1)  # then a provider starts four thousand times its usual rate
SHORTEST_HISTORY = timedelta(minutes=10)
LONGEST_HISTORY = timedelta(hours=1)
KEPT_HISTORY = timedelta(days=1)  # of a fleet that is away
AWAY = timedelta(minutes=2)  # without a start: nobody was there
BACKLOG = timedelta(minutes=1)  # of usual starts, that a fleet may come back to


@dataclass(frozen=True, slots=True)
class History:
    """The starts of a provider's jobs in the last hour in which there were any."""

    starts: int
    since: datetime
    until: datetime

    @property
    def usual_rate(self) -> float | None:
        """Return the usual starts per second; None if too little is known for a ramp."""
        known = self.until - self.since
        if known < SHORTEST_HISTORY or not self.starts:
            return None
        return self.starts / known.total_seconds()


def backlog_after_absence(history: History, now: datetime) -> int | None:
    """Return how many due jobs make a ramp necessary; None if the fleet was not away."""
    rate = history.usual_rate
    if rate is None or now - history.until < AWAY:
        return None
    return int(rate * BACKLOG.total_seconds()) + 1


def allowed_starts(rate: float, elapsed: timedelta) -> float:
    """Return how many jobs may have started after this time.

    The rate begins with the usual one and doubles every five seconds.
    """
    if elapsed <= timedelta():
        return 0.0
    doublings = elapsed / DOUBLES_EVERY
    return rate * DOUBLES_EVERY.total_seconds() * (2**doublings - 1) / log(2)
