"""Who may call a provider now: its gate, and what a limit says about everybody (P3, P5)."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from syncline.policy.ramp import LASTS, allowed_starts

LIMITED_CONNECTIONS = 3  # this many that a provider limits at once mean the application
LIMITED_WITHIN = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Gate:
    """Why a provider may not be called; a provider without one may be."""

    provider_slug: str
    paused_at: datetime | None = None  # by a person
    paused_because: str | None = None
    closed_until: datetime | None = None  # the provider limits the application
    opened_at: datetime | None = None  # the provider is down
    opened_because: str | None = None
    probe_at: datetime | None = None
    probe_seconds: float | None = None  # that the present probe has waited for
    probed_until: datetime | None = None  # a probe is going on, until then at the latest
    ramp_from: datetime | None = None  # its jobs start slowly at first, from then on
    ramp_rate: float | None = None  # starts per second at the beginning
    ramp_taken: float = 0  # starts since then

    @property
    def probe_wait(self) -> timedelta | None:
        return None if self.probe_seconds is None else timedelta(seconds=self.probe_seconds)

    def is_shut(self, now: datetime) -> bool:
        """Return whether no job of the provider may start, but a probe."""
        return self.paused_at is not None or self.opened_at is not None or self.is_closed(now)

    def is_closed(self, now: datetime) -> bool:
        return self.closed_until is not None and self.closed_until > now

    def is_ramping(self, now: datetime) -> bool:
        return self.ramp_from is not None and now < self.ramp_from + LASTS

    def room(self, now: datetime) -> int:
        """Return how many jobs of a provider that is ramping may start now."""
        if self.ramp_from is None or self.ramp_rate is None:
            return 0
        return max(0, int(allowed_starts(self.ramp_rate, now - self.ramp_from) - self.ramp_taken))

    def wants_probe(self, now: datetime) -> bool:
        if self.opened_at is None or self.paused_at is not None or self.is_closed(now):
            return False
        is_probed = self.probed_until is not None and self.probed_until > now
        return not is_probed and self.probe_at is not None and self.probe_at <= now


@dataclass(frozen=True, slots=True)
class TenantPause:
    """A tenant whose jobs may not start; a tenant without one may."""

    tenant_id: str
    paused_at: datetime
    paused_because: str | None = None
    paused_by: str | None = None


def is_for_everybody(connections: int) -> bool:
    """Return whether limits that so many connections met lately are the application's."""
    return connections >= LIMITED_CONNECTIONS
