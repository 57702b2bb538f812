"""How many jobs may run at once, of a tenant, of a provider, or of a tenant at a provider (P9)."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

EVERY = ""  # stands for every tenant, or every provider
# A process takes places for so many claims at once, but no more than a quarter of those that are
# free: the others have the rest, and get these as soon as they are used or given back.
CLAIMS_OF_BLOCK, LEAST_CLAIMS_OF_BLOCK, SHARE_OF_ROOM = 200, 4, 4


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
        in_blocks: Mapping[tuple[str, str], int] | None = None,
    ) -> None:
        """Take the caps, what runs by tenant and provider, the caps that are locked, and blocks."""
        self.held = sorted(held)
        self._room = {cap.key: cap.max_running if cap.key in held else 0 for cap in caps}
        self.take_all(running)
        for key, places in (in_blocks or {}).items():
            if key in self._room:
                self._room[key] -= places

    @classmethod
    def of_block(cls, caps: Iterable[Cap], places: int) -> "Rooms":
        """Return room for so many jobs under each of these caps."""
        filled = [replace(cap, max_running=places) for cap in caps]
        return cls(filled, {}, held={cap.key for cap in filled})

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

    def take_all(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Take the places of so many jobs of each tenant and provider."""
        for pair, count in counts.items():
            for key in self.keys(*pair):
                self._room[key] -= count

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


def places_for_block(room: int, per_claim: int) -> int:
    """Return how many of the free places a process may take at once; 0 if there are too few."""
    places = min(room // SHARE_OF_ROOM, CLAIMS_OF_BLOCK * per_claim)
    return places if places >= LEAST_CLAIMS_OF_BLOCK * per_claim else 0
