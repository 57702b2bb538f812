"""Time is the database's: a server whose clock runs two hours ahead decides, not the host's."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from faults.database_clock import RESTORE, shift_clock

from support.databases import Databases, Mode
from syncline import Engine, Settings, SyncResult
from syncline.testing import ScriptedConnector

AHEAD = timedelta(hours=2)
SHIFT = shift_clock("2 hours")


@pytest.fixture
async def url_ahead(databases: Databases, mode: Mode) -> AsyncIterator[str]:
    """A migrated database whose clock is two hours ahead of this host's."""
    with databases.lend(mode, "syncline") as url:
        session = await asyncpg.connect(url)
        await session.execute(SHIFT)
        await session.close()
        yield url


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


PUT_OFF = """
    SELECT provider_slug FROM syncline.sync_jobs
     WHERE greatest(CASE status WHEN 'queued' THEN scheduled_at END, retry_after, lease_expires_at)
           > clock_timestamp() + '1 hour'
     ORDER BY provider_slug
"""

CLAIM_AND_DIE = """
    UPDATE syncline.sync_jobs
       SET status = 'running', started_at = now(), updated_at = now(),
           lease_token = gen_random_uuid(), lease_expires_at = now() + '30 s'
     WHERE provider_slug = 'leased'
"""


async def set_back(url: str) -> asyncpg.Connection:
    """Set the clock right, and return a session that knows the right time."""
    session = await asyncpg.connect(url)
    await session.execute(RESTORE)
    return session


async def test_jobs_written_while_the_clock_stood_ahead_are_brought_back(url_ahead: str) -> None:
    """T1: what waits, is leased, or was queued without a slot, as follow-ups are."""
    settings = Settings(database_url=url_ahead)
    failing = ScriptedConnector("failing", [TimeoutError()])
    async with Engine(settings, connectors=[failing]) as engine:
        for slug in ("failing", "leased", "queued"):
            await engine.connections.create(tenant_id="acme", provider_slug=slug, external_id="1")
        await engine.tick()
        await engine.run_due()
        session = await asyncpg.connect(url_ahead)
        await session.execute(CLAIM_AND_DIE)
        await session.execute("UPDATE syncline.sync_jobs SET slot_at = NULL")
        await session.close()
    session = await set_back(url_ahead)
    assert [slug for (slug,) in await session.fetch(PUT_OFF)] == ["failing", "leased", "queued"]

    async with Engine(settings, connectors=[]) as engine:
        await engine.tick()

    assert await session.fetch(PUT_OFF) == []
    await session.close()


async def test_a_row_that_is_locked_while_the_clock_comes_back_is_brought_back_later(
    url_ahead: str,
) -> None:
    """T1: the next ticks look again."""
    put_off = "SELECT count(*) FROM syncline.connections WHERE look_at > now() + '1 hour'"
    settings = Settings(database_url=url_ahead)
    async with Engine(settings, connectors=[]) as engine:
        await engine.connections.create(tenant_id="acme", provider_slug="any", external_id="1")
        await engine.tick()
    session = await set_back(url_ahead)

    async with Engine(settings, connectors=[]) as engine:
        async with session.transaction():
            await session.fetch("SELECT FROM syncline.connections FOR UPDATE")
            await engine.tick()
        assert await session.fetchval(put_off) == 1
        await engine.tick()

    assert await session.fetchval(put_off) == 0
    await session.close()
