"""Several processes that migrate at once: one does it, the others find it done."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.sessions import actor, made_to_wait
from support.world import World
from syncline.store.migrate import ADD_TO_LEDGER, CREATE_LEDGER, known_migrations

APPLIED = [f"{one.version:04}_{one.name}" for one in known_migrations()]


@pytest.fixture
async def fresh(world: World) -> AsyncIterator[World]:
    """A world whose engine has a schema of its own, which does not exist yet."""
    async with world.another_engine(schema="fresh") as fresh:
        yield fresh
        await fresh.sql("DROP SCHEMA IF EXISTS {schema} CASCADE")


async def test_of_several_migrators_each_file_is_applied_by_one(fresh: World) -> None:
    async with fresh.another_engine() as second, fresh.another_engine() as third:
        worlds = (fresh, second, third)
        applied = await asyncio.gather(*(world.engine.migrate() for world in worlds))

    # Each file is a transaction of its own, for whoever comes first.
    assert sorted(name for names in applied for name in names) == APPLIED
    assert await fresh.engine.verify() == []


async def test_a_migrator_waits_for_the_one_that_creates_the_schema(fresh: World) -> None:
    async with actor(fresh) as other:
        await other.sql("CREATE SCHEMA {schema}")
        migration = await made_to_wait(fresh, fresh.engine.migrate())
        await other.commit()
        assert await migration == APPLIED


async def test_a_migrator_waits_for_the_one_that_creates_the_ledger(fresh: World) -> None:
    await fresh.sql("CREATE SCHEMA {schema}")
    async with actor(fresh) as other:
        await other.sql(CREATE_LEDGER)
        migration = await made_to_wait(fresh, fresh.engine.migrate())
        await other.commit()
        assert await migration == APPLIED


async def test_a_migrator_waits_for_the_one_that_migrates(fresh: World) -> None:
    await fresh.sql("CREATE SCHEMA {schema}")
    await fresh.sql(CREATE_LEDGER)
    async with actor(fresh) as other:
        await other.sql("LOCK TABLE {schema}.schema_migrations IN SHARE ROW EXCLUSIVE MODE")
        migration = await made_to_wait(fresh, fresh.engine.migrate())
        for one in known_migrations():
            await other.script(one.sql)
            await other.sql(ADD_TO_LEDGER, one.version, one.name, one.checksum, one.requires)
        await other.commit()
        assert await migration == []
    assert await fresh.engine.verify() == []


async def test_a_migrator_that_was_cut_off_leaves_nothing_half_done(fresh: World) -> None:
    await fresh.sql("CREATE SCHEMA {schema}")
    await fresh.sql(CREATE_LEDGER)
    async with actor(fresh) as other:
        await other.sql("LOCK TABLE {schema}.schema_migrations IN SHARE ROW EXCLUSIVE MODE")
        await other.script(known_migrations()[0].sql)
        migration = await made_to_wait(fresh, fresh.engine.migrate())
        await other.rollback()
        assert await migration == APPLIED
