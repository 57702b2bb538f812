"""Runs that bring something, settled together: the usual ones quickly, the others with care."""

import asyncio
from typing import Any

from support.fakes import HeldRun, eventually
from support.sessions import actor
from support.world import World, at
from syncline import Connection, Signal, SyncResult, Transient

TAKE_AWAY = """
    UPDATE {schema}.sync_jobs SET lease_token = gen_random_uuid() WHERE connection_id = $1
"""
TRANSACTION = "SELECT xmin::text AS id FROM {schema}.sync_jobs WHERE connection_id = $1"
HAS_RUN = "UPDATE {schema}.connections SET last_finished_at = '2025-01-01 11:30Z'"


def page(number: int, *, has_more: bool = False) -> SyncResult:
    signal = Signal("seen", at("11:00"), {"n": number}, dedupe_key=str(number))
    return SyncResult([signal], next_cursor={"page": number}, has_more=has_more)


class Together:
    """Connections whose runs end at the same moment, in the order of their endings."""

    def __init__(self, world: World, endings: list[SyncResult | Exception]) -> None:
        self._world = world
        self._runs = [HeldRun(ending) for ending in endings]
        self.connections: list[Connection] = []

    async def start(self) -> "asyncio.Task[bool]":
        self._world.script(*self._runs)
        for number, _ in enumerate(self._runs):
            connection = await self._world.connection()
            self.connections.append(connection)
            await self._world.job(connection, scheduled_at=at(f"11:00:{number:02}"))
        await self._world.sql(HAS_RUN)
        loops = asyncio.create_task(self._world.engine.run(handle_signals=False, scheduler=False))
        await eventually(lambda: all(run.started.is_set() for run in self._runs))
        return loops

    def end(self) -> None:
        for run in self._runs:
            run.let_go.set()
        self._world.engine.stop()


async def stored(world: World, connection: Connection) -> tuple[str, Any, int]:
    """Return the status of the oldest job, the stored cursor and the number of signals."""
    job, *_ = await world.jobs(connection)
    cursor = (await world.sync_metadata(connection)).get("cursor")
    return job.status, cursor, len(await world.signals(connection))


async def test_each_run_of_a_group_is_settled_as_if_it_were_alone(world: World) -> None:
    endings: list[SyncResult | Exception] = [page(1), page(2), page(3)]
    endings += [page(4, has_more=True), Transient("not now"), page(6)]
    group = Together(world, endings)
    loops = await group.start()
    usual, marked, lost, more, failed, also_usual = group.connections
    await world.engine.trigger(marked.id)
    await world.sql(TAKE_AWAY, lost.id)

    group.end()
    assert await loops

    assert await stored(world, usual) == ("succeeded", {"page": 1}, 1)
    assert await stored(world, marked) == ("succeeded", {"page": 2}, 1)
    assert (await world.pending(marked)).priority == 10
    assert await stored(world, lost) == ("running", None, 0)
    assert await stored(world, more) == ("succeeded", {"page": 4}, 1)
    assert (await world.pending(more)).cursor == {"page": 4}
    assert await stored(world, failed) == ("queued", None, 0)
    assert await stored(world, also_usual) == ("succeeded", {"page": 6}, 1)
    assert await world.sql(TRANSACTION, usual.id) == await world.sql(TRANSACTION, also_usual.id)


async def test_a_page_of_a_paused_connection_is_kept_and_not_followed(world: World) -> None:
    group = Together(world, [page(1), page(2, has_more=True)])
    loops = await group.start()
    active, paused = group.connections
    await world.engine.connections.pause(paused.id)

    group.end()
    assert await loops

    assert await stored(world, active) == ("succeeded", {"page": 1}, 1)
    assert await stored(world, paused) == ("succeeded", {"page": 2}, 1)
    statuses = sorted(job.status for job in await world.jobs(paused))
    assert statuses == ["cancelled", "succeeded"]


async def test_a_cursor_that_a_person_moved_stays_and_is_where_the_next_page_starts(
    world: World,
) -> None:
    group = Together(world, [page(1), page(2, has_more=True)])
    loops = await group.start()
    _, moved = group.connections
    await world.engine.connections.set_cursor(moved.id, {"page": 100})

    group.end()
    assert await loops

    assert await stored(world, moved) == ("succeeded", {"page": 100}, 1)
    assert (await world.pending(moved)).cursor is None


async def test_a_held_connection_delays_only_its_own_page(world: World) -> None:
    group = Together(world, [page(1), page(2)])
    loops = await group.start()
    free, held = group.connections

    async with actor(world) as person:
        await person.lock(held)
        group.end()
        await eventually(lambda: _is_settled(world, free))
        assert (await stored(world, held))[0] == "running"
    assert await loops

    assert await stored(world, held) == ("succeeded", {"page": 2}, 1)


async def _is_settled(world: World, connection: Connection) -> bool:
    return await stored(world, connection) == ("succeeded", {"page": 1}, 1)
