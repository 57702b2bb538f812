"""E8: a released job goes back as it was."""

import asyncio

from support.world import World
from syncline import SyncResult, Transient


async def test_a_released_job_keeps_its_attempts_and_its_last_error(world: World) -> None:
    connection = await world.connection()
    started = asyncio.Event()

    async def hang(*_: object) -> SyncResult:
        started.set()
        await asyncio.Event().wait()
        return SyncResult()

    world.connector.script.extend([Transient("first try"), hang])
    await world.tick("12:00")
    await world.run_due("12:00")

    world.clock.advance(minutes=1)
    running = asyncio.create_task(world.run_due())
    await started.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    job = await world.pending(connection)
    assert (job.status, job.attempts, job.retry_after) == ("queued", 1, None)
    assert job.error["message"] == "first try"
