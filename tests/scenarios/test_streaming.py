"""Scenarios: pages that a connector yields one by one."""

from collections.abc import AsyncIterator
from typing import Any

from support.world import World, at
from syncline import Connection, Signal, SyncResult, Transient


def page(number: int) -> SyncResult:
    return SyncResult([Signal("seen", at("11:00"), {"n": number})], next_cursor=number)


async def test_failure_keeps_the_pages_before_it(world: World) -> None:
    """Streamed Pages / Failure keeps the pages before it"""
    connection = await world.connection()
    job_id = await world.job(connection)

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        yield page(1)
        yield page(2)
        raise Transient("not now")

    world.connector.script.extend([stream, SyncResult()])
    await world.run_due()

    job = await world.get_job(job_id)
    assert (job.status, job.attempts) == ("queued", 1)
    assert [signal.payload["n"] for signal in await world.signals(connection)] == [1, 2]
    assert (await world.sync_metadata(connection))["cursor"] == 2
    await world.run_due("12:01")
    assert [cursor for _, cursor in world.connector.calls] == [None, 2]


async def test_page_after_a_lost_lease_is_not_stored(world: World) -> None:
    """Streamed Pages / Page after a lost lease is not stored"""
    connection = await world.connection()
    job_id = await world.job(connection)
    closed = []

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        try:
            yield page(1)
            world.clock.advance(seconds=31)
            async with world.another_engine(connectors=[]) as reaper:
                await reaper.run_due()
            yield page(2)
        finally:
            closed.append(True)

    world.connector.script.extend([stream, SyncResult()])
    await world.run_due()

    assert [signal.payload["n"] for signal in await world.signals(connection)] == [1]
    assert (await world.sync_metadata(connection))["cursor"] == 1
    assert closed == [True]
    assert (await world.get_job(job_id)).status == "succeeded"  # by its next attempt
