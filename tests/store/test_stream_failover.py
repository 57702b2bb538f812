"""A stream whose last pages are lost with the primary, on real servers."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import pytest
from faults.standby import Standby

from support.databases import both_of
from support.world import at
from syncline import Connection, Connector, Engine, Settings, Signal, SyncResult
from syncline.testing.database import TemporaryServer

PAGES = 8


class Pages(Connector):
    """Yields numbered pages; after one of them the server's life takes a turn."""

    provider = "pages"

    def __init__(self, after: int, turn: Callable[[], Awaitable[None]]) -> None:
        self.starts: list[Any] = []
        self._after = after
        self._turn = turn

    async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        self.starts.append(cursor)
        for number in range((cursor or 0) + 1, PAGES + 1):
            yield SyncResult([Signal("seen", at("11:00"), {"n": number})], next_cursor=number)
            if number == self._after and len(self.starts) == 1:
                await self._turn()


@pytest.fixture(scope="module")
def primary() -> Iterator[TemporaryServer]:
    """A server that loses, in a crash, what it has not written to disk."""
    settings = {"synchronous_commit": "off", "wal_writer_delay": "10s"}
    with TemporaryServer(server_settings=settings) as server:
        yield server


async def stored(url: str) -> list[int]:
    async with Engine(Settings(database_url=url)) as engine:
        assert await engine.verify() == []
        return sorted(signal.payload["n"] for signal in await engine.signals.list(limit=100))


async def run_stream(url: str, connector: Pages) -> None:
    settings = Settings(database_url=url)
    async with Engine(settings, connectors=[connector]) as engine:
        await engine.connections.create(tenant_id="acme", provider_slug="pages", external_id="1")
        await engine.tick()
        while len(connector.starts) < 2 or await engine.jobs.list(status="running"):
            await engine.run_due()


async def test_a_stream_goes_on_where_a_promoted_standby_stands(primary: TemporaryServer) -> None:
    """The standby lacks the last pages; a connector that is still yielding must not pass them."""
    primary.start()
    url = primary.create_database()
    async with Engine(Settings(database_url=url)) as engine:
        await engine.migrate()
    with Standby(primary, url) as standby:
        new_url = standby.url_like(url)

        async def fail_over() -> None:
            primary.kill()
            standby.promote()

        class CutOff(Pages):
            async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
                async for page in super().sync(connection, cursor):
                    if page.next_cursor == 4 and len(self.starts) == 1:
                        standby.cut_off()
                    yield page

        connector = CutOff(5, fail_over)
        await run_stream(both_of(url, new_url), connector)

        assert await stored(new_url) == list(range(1, PAGES + 1))
        assert connector.starts == [None, 3]


async def test_a_stream_goes_on_after_a_crash_with_asynchronous_commit(
    primary: TemporaryServer,
) -> None:
    primary.start()
    url = primary.create_database()
    async with Engine(Settings(database_url=url)) as engine:
        await engine.migrate()
    lost: set[int] = set()

    async def crash() -> None:
        before = await stored_numbers(url)
        primary.kill()
        primary.start()
        lost.update(set(before) - set(await stored_numbers(url)))

    class Flushed(Pages):
        async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
            async for page in super().sync(connection, cursor):
                if page.next_cursor == 4 and len(self.starts) == 1:
                    await flush(url)
                yield page

    connector = Flushed(6, crash)
    await run_stream(url, connector)

    assert lost == {4, 5, 6}
    assert connector.starts == [None, 3]
    assert await stored(url) == list(range(1, PAGES + 1))


async def flush(url: str) -> None:
    """Commit once and wait for the disk, so that all before it is written too."""
    session = await asyncpg.connect(url)
    await session.execute("SET synchronous_commit = on; CREATE TEMPORARY TABLE flushed ()")
    await session.close()


async def stored_numbers(url: str) -> list[int]:
    async with Engine(Settings(database_url=url)) as engine:
        return [signal.payload["n"] for signal in await engine.signals.list(limit=100)]
