"""A time that was stored while the clock stood ahead is brought back by the first tick after it."""

from datetime import timedelta

from support.world import World, at
from syncline import Connection, SyncResult, Transient


async def test_the_clock_stood_ahead_for_a_moment(world: World) -> None:
    """One Clock / The clock stood ahead for a moment"""
    first, second = [await world.connection(last_finished="11:50") for _ in range(2)]

    def sync(connection: Connection, _: object) -> SyncResult:
        if connection.id == first.id:
            raise Transient("503")
        return SyncResult()

    await world.tick(at("12:00") + timedelta(days=1), jitter_seconds=0)
    world.script(sync, sync)
    assert await world.run_due() == 2
    await world.tick("12:01", jitter_seconds=0)

    waiting = await world.pending(first)
    assert (waiting.attempts, waiting.retry_after) == (1, at("12:01"))
    assert (await world.pending(second)).scheduled_at <= at("12:16")
