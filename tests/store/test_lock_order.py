"""Why connections are locked before jobs, everywhere."""

import asyncpg
import pytest

from support.sessions import actor, made_to_wait
from support.world import World
from syncline.store.data import connections


async def test_jobs_before_connections_would_deadlock(world: World) -> None:
    """A settle that closed its job first would meet a tick that inserts the next one."""
    connection = await world.connection()
    job_id = await world.job(connection)
    async with actor(world) as tick, actor(world) as settle:
        await settle.sql("UPDATE {schema}.sync_jobs SET status = 'failed' WHERE id = $1", job_id)
        await connections.lock(tick.tx, [connection.id])
        insert = await made_to_wait(world, tick.insert_job(connection))

        await settle.sql("SET LOCAL deadlock_timeout = '10ms'")
        with pytest.raises(asyncpg.DeadlockDetectedError):
            await connections.lock(settle.tx, [connection.id])
        await settle.rollback()
        with pytest.raises(asyncpg.UniqueViolationError):
            await insert
