"""How many jobs may run at once, of a tenant, of a provider, or of a tenant at a provider (P9)."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

EVERY = ""  # stands for every tenant, or every provider


@dataclass(frozen=True, slots=True)
class Cap:
    """At most so many jobs of a tenant, a provider or both run at once."""

    tenant_id: str
    provider_slug: str
    max_running: int
    set_at: datetime

    def __str__(self) -> str:
        of_tenant = "this tenant" if self.tenant_id else ""
        whose = " at ".join(filter(None, (of_tenant, self.provider_slug)))
        return f"{self.max_running:,} of {whose}"

    @property
    def key(self) -> tuple[str, str]:
        return self.tenant_id, self.provider_slug


@dataclass(frozen=True, slots=True)
class CapUse:
    """A cap, and how many jobs run under it."""

    cap: Cap
    running: int

    @property
    def is_full(self) -> bool:
        return self.running >= self.cap.max_running

    def as_json(self) -> dict[str, Any]:
        return {
            "tenant_id": self.cap.tenant_id or None,
            "provider_slug": self.cap.provider_slug or None,
            "max_running": self.cap.max_running,
            "running": self.running,
        }


class Rooms:
    """How many more jobs may start under each cap; one that is not held has no room."""

    def __init__(
        self,
        caps: Iterable[Cap],
        running: Mapping[tuple[str, str], int],
        *,
        held: Collection[tuple[str, str]],
    ) -> None:
        """Take the caps, the running jobs by tenant and provider, and the caps that are locked."""
        self.held = sorted(held)
        self._room = {cap.key: cap.max_running if cap.key in held else 0 for cap in caps}
        for pair, count in running.items():
            for key in self.keys(*pair):
                self._room[key] -= count

    def keys(self, tenant_id: str, provider_slug: str) -> list[tuple[str, str]]:
        """Return the caps that a job is under."""
        possible = ((tenant_id, EVERY), (EVERY, provider_slug), (tenant_id, provider_slug))
        return [key for key in possible if key in self._room]

    def has_room(self, tenant_id: str, provider_slug: str) -> bool:
        return all(self._room[key] > 0 for key in self.keys(tenant_id, provider_slug))

    def take(self, tenant_id: str, provider_slug: str) -> None:
        """Take the place of one job."""
        for key in self.keys(tenant_id, provider_slug):
            self._room[key] -= 1

    def fits(self, tenant_id: str, provider_slug: str) -> bool:
        """Take the place of one job if there is room, and return whether there was."""
        if not self.has_room(tenant_id, provider_slug):
            return False
        self.take(tenant_id, provider_slug)
        return True

    def has_room_under(self, key: tuple[str, str]) -> bool:
        return self._room[key] > 0

    @property
    def least(self) -> int:
        """How many jobs may start whosever they are."""
        return min(self._room.values())
