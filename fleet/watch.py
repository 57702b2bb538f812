"""Whether each trouble is named everywhere: after how many seconds, and from then on."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from fleet.fill import DOWN, FLOODING, LIMITED
from fleet.stage import Stage
from fleet.surfaces import SURFACES, Surface

NAMED_WITHIN_SECONDS = 60.0
WATCHED_SECONDS = 75.0
EVERY_SECONDS = 1.0
LATENCY_SECONDS = 0.3
CALLS, PER_SECONDS = 20, 10.0
TROUBLES = {DOWN: "down", LIMITED: "limited", FLOODING: "floods"}

FLOOD = """
    -- Everything of one tenant is due at once, as an application may ask for by plain SQL.
    INSERT INTO syncline.sync_jobs (tenant_id, provider_slug, connection_id)
    SELECT tenant_id, provider_slug, id FROM syncline.connections
     WHERE tenant_id = $1 AND status = 'active'
        ON CONFLICT (connection_id, job_type) WHERE status IN ('queued', 'running') DO NOTHING
"""


@dataclass(slots=True)
class Sighting:
    """One trouble on one surface."""

    trouble: str
    surface: str
    first_after: float | None = None
    sentence: str = ""
    looks: int = 0  # since it was first named
    named: int = 0

    @property
    def is_kept(self) -> bool:
        in_time = self.first_after is not None and self.first_after <= NAMED_WITHIN_SECONDS
        return in_time and self.named == self.looks

    def add(self, sentence: str | None, after: float) -> None:
        if sentence is not None and self.first_after is None:
            self.first_after = after
        if self.first_after is not None:
            self.looks += 1
            self.named += sentence is not None
        self.sentence = sentence or self.sentence


@dataclass(slots=True)
class Sightings:
    by_place: dict[tuple[str, str], Sighting] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Sighting]:
        return iter(self.by_place.values())


async def make_troubles(stage: Stage) -> None:
    """Take one provider down, limit another, and flood the queue for one tenant."""
    await stage.provider.order(LIMITED, "limit_to", calls=CALLS, per_seconds=PER_SECONDS)
    await stage.provider.order(DOWN, "behave", mode="fails")
    await stage.database.fetch(FLOOD, FLOODING)


async def be_slow(stage: Stage) -> None:
    """Give every provider a latency, so that slots are what there is little of."""
    for application in stage.provider.urls:
        await stage.provider.order(application, "have", pages=1, latency_seconds=LATENCY_SECONDS)


async def watch(stage: Stage) -> Sightings:
    """Look at every surface again and again, from the troubles' beginning on."""
    seen = Sightings(
        {
            (trouble, one.name): Sighting(trouble, one.name)
            for trouble in TROUBLES
            for one in SURFACES
        }
    )
    began = time.monotonic()
    await asyncio.gather(*(_watch_one(stage, one, seen, began) for one in SURFACES))
    return seen


async def _watch_one(stage: Stage, surface: Surface, seen: Sightings, began: float) -> None:
    while time.monotonic() - began < WATCHED_SECONDS:
        sentences = await surface.read(stage)
        after = time.monotonic() - began
        for trouble in TROUBLES:
            seen.by_place[trouble, surface.name].add(sentences.get(trouble), after)
        await asyncio.sleep(EVERY_SECONDS)
