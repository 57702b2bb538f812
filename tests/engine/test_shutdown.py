"""An end comes in time, whatever the database does meanwhile."""

import asyncio
import time

import pytest

from support.fakes import eventually
from support.world import World
from syncline import SyncResult

OVERTIME_SECONDS = 5  # far less than a command may take
MANY = 500  # ten times what a claim takes
ADD_MANY = """
    WITH added AS (
        INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id)
        SELECT 'acme', 'github', n::text FROM generate_series(1, $1::int) n RETURNING id)
    INSERT INTO {schema}.sync_jobs (tenant_id, provider_slug, connection_id, scheduled_at)
    SELECT 'acme', 'github', id, '2025-01-01 11:00Z' FROM added
"""
QUEUED = "SELECT count(*) FROM {schema}.sync_jobs WHERE status = 'queued'"


@pytest.mark.engine(executor={"shutdown_grace_seconds": 0})
async def test_a_scheduler_that_cannot_say_goodbye_still_ends_in_time(world: World) -> None:
    running = asyncio.create_task(world.engine.run(handle_signals=False, executor=False))
    async with world.session() as session, session.transaction():
        await eventually(lambda: has_begun(world))
        await session.execute(world.qualified("LOCK TABLE {schema}.schedulers"))

        stopped = time.monotonic()
        world.engine.stop()
        assert await running

        assert time.monotonic() - stopped < OVERTIME_SECONDS


async def has_begun(world: World) -> bool:
    return bool(await world.sql("SELECT FROM {schema}.schedulers"))


@pytest.mark.engine(executor={"concurrency": 400})
async def test_a_stop_ends_the_claiming_however_much_is_due(world: World) -> None:
    await world.sql(ADD_MANY, MANY)

    def stop(*_: object) -> SyncResult:
        world.engine.stop()
        return SyncResult()

    world.script(*[stop] * MANY)

    assert await world.engine.run(handle_signals=False, scheduler=False)

    [row] = await world.sql(QUEUED)
    assert 0 < row["count"] == MANY - len(world.connector.calls)
