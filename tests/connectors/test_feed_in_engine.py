"""A feed in a real engine, from its first sync through everything that may go wrong."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from support.feeds import Site, item, rss
from syncline import Connection, Engine, Settings
from syncline.connectors.feed import Feed
from syncline.testing import ManualClock


class Reader:
    """An engine with one feed, run by hand."""

    def __init__(self, engine: Engine, clock: ManualClock, connection: Connection) -> None:
        self.engine, self.clock, self.connection = engine, clock, connection

    async def sync(self, *, after_minutes: float = 0) -> Any:
        """Sync once, and return the newest job."""
        self.clock.advance(minutes=after_minutes)
        await self.engine.trigger(self.connection.id)
        await self.engine.run_due()
        return (await self.engine.jobs.list(connection_id=self.connection.id))[0]

    async def titles(self) -> list[str]:
        stored = await self.engine.signals.list(connection_id=self.connection.id)
        return [signal.payload["title"] for signal in stored]

    async def status(self) -> str:
        return (await self.engine.connections.get(self.connection.id)).status


@pytest.fixture
async def reader(database_url: str, site: Site) -> AsyncIterator[Reader]:
    clock = ManualClock(datetime(2025, 1, 1, 12, tzinfo=UTC))
    settings = Settings(database_url=database_url, http={"allow_private": ["feed"]})
    url = site.put(rss(*(item(n) for n in range(1, 6))))
    async with Engine(settings, [Feed()], clock=clock) as engine:
        connection = await engine.connections.create(
            tenant_id="acme",
            provider_slug="feed",
            external_id="news",
            config={"url": url, "page_size": 2},
        )
        yield Reader(engine, clock, connection)


FIRST = [f"Item {n}" for n in range(1, 6)]


async def test_entries_and_edits_are_stored_once(reader: Reader, site: Site) -> None:
    await reader.sync()
    assert await reader.titles() == FIRST

    await reader.sync(after_minutes=5)  # nothing has changed
    assert site.asked[-1] == ("/feed", 304)

    site.put(rss(item(6), item(1, "Item 1, corrected"), *(item(n) for n in range(2, 6))))
    await reader.sync(after_minutes=5)
    assert sorted(await reader.titles()) == sorted([*FIRST, "Item 6", "Item 1, corrected"])


async def test_a_rate_limit_is_waited_for(reader: Reader, site: Site) -> None:
    site.failure = (429, {"Retry-After": "600"})
    job = await reader.sync()
    assert job.status == "queued"
    assert (job.retry_after - reader.clock()).total_seconds() >= 600

    site.failure = None
    reader.clock.advance(seconds=590)
    assert await reader.engine.run_due() == 0
    reader.clock.advance(minutes=5)
    assert await reader.engine.run_due() == 1
    assert await reader.titles() == FIRST


async def test_a_refused_login_stops_it_until_somebody_resumes(reader: Reader, site: Site) -> None:
    await reader.sync()
    site.failure = (401, {})
    await reader.sync(after_minutes=5)
    assert await reader.status() == "needs_reauth"

    site.failure = None
    site.put(rss(item(6), *(item(n) for n in range(1, 6))))
    await reader.engine.connections.resume(reader.connection.id)
    await reader.sync(after_minutes=5)
    assert (await reader.status(), len(await reader.titles())) == ("active", 6)


async def test_a_server_that_goes_away_in_mid_answer_is_asked_again(
    reader: Reader, site: Site
) -> None:
    site.breaks_off = True
    job = await reader.sync()
    assert (job.status, job.error["class"]) == ("queued", "Transient")
    assert await reader.titles() == []

    site.breaks_off = False
    reader.clock.advance(hours=1)
    await reader.engine.run_due()
    assert await reader.titles() == FIRST
