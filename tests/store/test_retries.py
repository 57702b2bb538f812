"""Errors that pass: what Postgres refused in the heat of the moment is done again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from support.world import World, at
from syncline import Signal, SyncResult

PAGE = SyncResult([Signal("seen", at("11:00"), {}, dedupe_key="1")], next_cursor=1)

BREAK = """
    CREATE SEQUENCE public.failures;
    CREATE FUNCTION public.fail_some() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('public.failures') = ANY (TG_ARGV[0]::int[]) THEN
                RAISE EXCEPTION 'in the way' USING ERRCODE = TG_ARGV[1];
            END IF;
            RETURN NULL;
        END $$
"""
MEND = "DROP FUNCTION public.fail_some CASCADE; DROP SEQUENCE public.failures"


SERIALIZATION, DEADLOCK = "40001", "40P01"
after_either = pytest.mark.parametrize(
    "code", [SERIALIZATION, DEADLOCK], ids=["serialization", "deadlock"]
)


@after_either
async def test_a_tick_is_done_again(world: World, code: str) -> None:
    connections = [await world.connection() for _ in range(3)]
    async with failing_writes(world, "sync_jobs", code):
        assert (await world.tick()).scheduled == 3
    for connection in connections:
        await world.pending(connection)


@after_either
async def test_a_claim_is_done_again(world: World, code: str) -> None:
    connection = await world.connection()
    await world.job(connection)
    world.script(PAGE)
    async with failing_writes(world, "sync_jobs", code, failing="{1,2}"):
        assert await world.run_due() == 1


@pytest.mark.parametrize("table", ["signals", "connections"])
async def test_a_settle_is_done_again(world: World, table: str) -> None:
    connection = await world.connection()
    job_id = await world.job(connection)
    world.script(PAGE)
    async with failing_writes(world, table):
        assert await world.run_due() == 1
    assert (await world.get_job(job_id)).status == "succeeded"
    assert len(await world.signals(connection)) == 1


@pytest.mark.parametrize(
    "failing", ["{1}", "{2}", "{1,3,4}"], ids=["taking over", "settling", "all"]
)
async def test_a_lapsed_lease_is_reaped_again(world: World, failing: str) -> None:
    connection = await world.connection()
    job_id = await world.job(connection)
    async with world.during_run() as run:
        world.clock.advance(seconds=31)
        world.script(PAGE)
        async with failing_writes(world, "sync_jobs", failing=failing):
            assert await world.run_due() == 1
        run.let_go.set()
    assert (await world.get_job(job_id)).status == "succeeded"


async def test_what_people_ask_for_is_done_again(world: World) -> None:
    connection = await world.connection()
    async with failing_writes(world, "sync_jobs"):
        job = await world.engine.trigger(connection.id)
    async with failing_writes(world, "connections"):
        await world.engine.connections.pause(connection.id)
    assert (await world.get_job(job.id)).status == "cancelled"
    async with failing_writes(world, "connections"):
        await world.engine.connections.resume(connection.id)
    async with failing_writes(world, "connections"):
        await world.engine.connections.delete(connection.id)
    with pytest.raises(LookupError):
        await world.engine.connections.get(connection.id)


@asynccontextmanager
async def failing_writes(
    world: World, table: str, code: str = SERIALIZATION, *, failing: str = "{1}"
) -> AsyncIterator[None]:
    """Let the first (or other) statements that write to a table fail, as under contention."""
    async with world.session() as session:
        await session.execute(BREAK)
        try:
            await session.execute(
                f"CREATE TRIGGER fail BEFORE INSERT OR UPDATE OR DELETE ON syncline.{table}"
                f" FOR EACH STATEMENT EXECUTE FUNCTION public.fail_some('{failing}', '{code}')"
            )
            yield
            assert await session.fetchval("SELECT last_value FROM public.failures") > 1
        finally:
            await session.execute(MEND)
