"""Fifty settled together: one that the database refuses does not sink the others."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support.mixed_batch import HEALTHY_PAGE, Answering, batch_world
from support.world import World, at
from syncline import Connection, Signal, SyncResult

NEIGHBOURS = 49
REFUSED = SyncResult([Signal("refused", at("11:00"), {})], next_cursor={"page": 2})

SKIP = """
    CREATE FUNCTION {schema}.skip() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RETURN CASE WHEN NOT EXISTS (SELECT FROM {schema}.signals
                                          WHERE connection_id = NEW.id AND kind = 'lost')
                   THEN NEW END;
        END $$
"""
SKIP_LOST_PAGES = """
    CREATE TRIGGER skip BEFORE UPDATE ON {schema}.connections
       FOR EACH ROW EXECUTE FUNCTION {schema}.skip()
"""


class Together(Answering):
    """Lets every run wait for the last, so that all of them end at once."""

    def __init__(self, runs: int) -> None:
        super().__init__()
        self._to_come = runs
        self._all_there = asyncio.Event()

    async def sync(self, connection: Connection, cursor: Any) -> Any:
        self._to_come -= 1
        if self._to_come <= 0:
            self._all_there.set()
        await self._all_there.wait()
        return self.answer(connection)


@pytest.mark.parametrize("bad", [True, False], ids=["one refused", "none refused"])
async def test_one_refused_page_of_fifty(database_url: str, bad: bool) -> None:
    connector = Together(NEIGHBOURS + 1)
    async with (
        batch_world(database_url, connector) as world,
        refusing(world, "signals", "kind"),
    ):
        await settle_fifty(world, connector, (lambda: REFUSED) if bad else (lambda: HEALTHY_PAGE))

        # One transaction for all; or, once it failed, for each half, and so on to the bad one.
        assert await count_transactions(world) in ((5, 6) if bad else (1,))
        [*_, odd] = await world.engine.jobs.list(limit=1, status="queued" if bad else "succeeded")
        if bad:
            assert (odd.attempts, odd.error["class"]) == (1, "ContractError")
            assert "could not be stored" in odd.error["message"]


async def test_an_error_that_cannot_be_written_leaves_the_others_alone(database_url: str) -> None:
    """Not even the failure can be noted: the job is left to the reaper, the rest is settled."""
    connector = Together(NEIGHBOURS + 1)

    def fail() -> SyncResult:
        raise OSError("refused")

    async with batch_world(database_url, connector) as world:
        async with refusing(world, "sync_jobs", "error ->> 'message'", "OSError: refused"):
            await settle_fifty(world, connector, fail)
            [odd] = await world.engine.jobs.list(status="running")
        world.clock.advance(seconds=31)
        connector.answers.clear()
        assert await world.run_due() == 1
        assert (await world.get_job(odd.id)).status == "succeeded"


async def test_a_write_that_is_lost_every_time_leaves_the_others_alone(database_url: str) -> None:
    """Somebody's trigger skips the update of one connection: nothing says so but the row count."""
    connector = Together(NEIGHBOURS + 1)
    lost = SyncResult([Signal("lost", at("11:00"), {})], next_cursor={"page": "lost"})
    async with batch_world(database_url, connector, lease_seconds=0.9) as world:
        await world.sql(SKIP)
        await world.sql(SKIP_LOST_PAGES)
        try:
            await settle_fifty(world, connector, lambda: lost)
        finally:
            await world.sql("DROP FUNCTION {schema}.skip() CASCADE")

        [odd] = await world.engine.jobs.list(status="queued")
        assert (odd.attempts, odd.error["class"]) == (1, "ContractError")
        assert "could not be stored: progress: 0 rows instead of 1" in odd.error["message"]


async def settle_fifty(world: World, connector: Answering, odd: Callable[[], Any]) -> None:
    for number in range(NEIGHBOURS + 1):
        connection = await world.connection(sync={"cursor": "before"})
        await world.job(connection)
        if number == NEIGHBOURS // 2:
            connector.answers[connection.id] = odd
    await world.run_due()
    done = await world.engine.jobs.list(status="succeeded", limit=100)
    assert len(done) >= NEIGHBOURS
    for job in done:
        stored = await world.engine.connections.get(job.connection_id)
        assert stored.metadata["sync"]["cursor"] == {"page": 2}


async def count_transactions(world: World) -> int:
    [row] = await world.sql(
        "SELECT count(DISTINCT xmin::text) FROM {schema}.sync_jobs WHERE status = 'succeeded'"
    )
    return int(row["count"])


@asynccontextmanager
async def refusing(
    world: World, table: str, expression: str, value: str = "refused"
) -> AsyncIterator[None]:
    """Let the database refuse rows that passed every check of ours."""
    name = f"syncline.{table}"
    await world.sql(
        f"ALTER TABLE {name} ADD CONSTRAINT refuse CHECK (({expression}) <> '{value}') NOT VALID"
    )
    try:
        yield
    finally:
        await world.sql(f"ALTER TABLE {name} DROP CONSTRAINT refuse")
