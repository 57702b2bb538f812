"""Time is the database's: a server whose clock runs two hours ahead decides, not the host's."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from support.databases import shift_clock
from syncline import Engine, Settings, SyncResult
from syncline.testing import ScriptedConnector
from syncline.testing.database import TemporaryServer

AHEAD = timedelta(hours=2)
SHIFT = shift_clock("2 hours")


@pytest.fixture
async def url_ahead(server: TemporaryServer) -> AsyncIterator[str]:
    """A migrated database whose clock is two hours ahead of this host's."""
    url = server.create_database()
    async with Engine(Settings(database_url=url)) as engine:
        await engine.migrate()
    session = await asyncpg.connect(url)
    await session.execute(SHIFT)
    await session.close()
    yield url
    server.drop_database(url)


async def test_every_instant_is_the_databases(url_ahead: str) -> None:
    connector = ScriptedConnector("github", [SyncResult(next_cursor=1)])
    before = datetime.now(UTC)
    async with Engine(Settings(database_url=url_ahead), connectors=[connector]) as engine:
        connection = await engine.connections.create(
            tenant_id="acme", provider_slug="github", external_id="1"
        )
        assert (await engine.tick()).scheduled == 1
        assert await engine.run_due() == 1
        [job] = await engine.jobs.list(connection_id=connection.id)
        metadata = (await engine.connections.get(connection.id)).metadata

    after = datetime.now(UTC)
    instants = [connection.created_at, job.scheduled_at, job.started_at, job.finished_at]
    instants.append(datetime.fromisoformat(metadata["sync"]["first_activated_at"]))
    for instant in instants:
        assert instant is not None
        assert before + AHEAD <= instant <= after + AHEAD


async def test_a_lease_lapses_by_the_databases_clock(url_ahead: str) -> None:
    """A worker whose host is two hours behind has not lost its lease when it claims."""
    first = ScriptedConnector("github", [SyncResult()])
    async with (
        Engine(Settings(database_url=url_ahead), connectors=[first]) as engine,
        Engine(Settings(database_url=url_ahead), connectors=[]) as reaper,
    ):
        connection = await engine.connections.create(
            tenant_id="acme", provider_slug="github", external_id="1"
        )

        async def is_reaped_meanwhile(*_: object) -> SyncResult:
            await reaper.run_due()
            return SyncResult()

        first.script[0] = is_reaped_meanwhile
        await engine.tick()
        assert await engine.run_due() == 1
        [job] = await engine.jobs.list(connection_id=connection.id)
    assert (job.status, job.attempts) == ("succeeded", 0)
