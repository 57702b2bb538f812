"""An end comes in time, whatever the database does meanwhile."""

import asyncio
import time

import pytest

from support.world import World

OVERTIME_SECONDS = 5  # far less than a command may take


@pytest.mark.engine(executor={"shutdown_grace_seconds": 0})
async def test_a_scheduler_that_cannot_say_goodbye_still_ends_in_time(world: World) -> None:
    running = asyncio.create_task(world.engine.run(signals=False, executor=False))
    async with world.session() as session, session.transaction():
        while not await world.sql("SELECT FROM {schema}.schedulers"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await session.execute(world.qualified("LOCK TABLE {schema}.schedulers"))

        stopped = time.monotonic()
        world.engine.stop()
        assert await running

        assert time.monotonic() - stopped < OVERTIME_SECONDS
