"""Two engines on two schemas of one database, each as a role that may see only its own."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import asyncpg
import pytest

from support.databases import Databases, Mode
from support.world import World, at, open_world
from syncline import Signal, SyncResult
from syncline.model import Finding

CELLS = ("cell_a", "cell_b")
PAGE = SyncResult([Signal("seen", at("11:00"), {}, dedupe_key="1")], next_cursor=1)
LEAST = """
    CREATE ROLE {cell} LOGIN;
    GRANT CONNECT ON DATABASE {database} TO {cell};
    GRANT USAGE ON SCHEMA {cell} TO {cell};
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {cell} TO {cell};
"""
NOTHING_FOR_ALL = """
    REVOKE ALL ON DATABASE {database} FROM PUBLIC;
    REVOKE ALL ON SCHEMA public FROM PUBLIC;
"""


@pytest.fixture
def owners_url(databases: Databases, mode: Mode) -> Iterator[str]:
    """A database of its own with both schemas: rights must not reach the other tests."""
    with databases.lend(mode, *CELLS) as url:
        yield url


@pytest.fixture
async def cells(owners_url: str) -> AsyncIterator[list[World]]:
    """Two worlds on one database, each with the rights on its own rows and no others."""
    database = urlsplit(owners_url).path[1:]
    owner = await asyncpg.connect(owners_url)
    await owner.execute(NOTHING_FOR_ALL.format(database=database))
    for cell in CELLS:
        await owner.execute(LEAST.format(cell=cell, database=database))
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(open_world(as_role(cell, owners_url), schema=cell))
            for cell in CELLS
        ]
    for cell in CELLS:
        await owner.execute(f"DROP OWNED BY {cell}; DROP ROLE {cell}")
    await owner.close()


async def test_two_cells_live_side_by_side(cells: list[World]) -> None:
    """Everything an engine does at run time, in both at once: only DML, only its own schema."""
    await asyncio.gather(*(full_cycle(world) for world in cells))


async def test_another_cell_is_a_permission_error(cells: list[World]) -> None:
    ours, theirs = cells
    await theirs.connection()
    async with open_world(ours.url, schema=theirs.settings.schema) as intruder:
        for call in (
            intruder.engine.tick,
            intruder.engine.run_due,
            intruder.engine.verify,
            intruder.engine.connections.list,
            intruder.engine.signals.list,
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await call()


async def test_a_cell_needs_no_rights_beyond_its_rows(cells: list[World]) -> None:
    cell = cells[0]
    for statement in (
        "CREATE TABLE {schema}.extra ()",
        "CREATE TABLE public.extra ()",
        "CREATE TEMPORARY TABLE extra ()",
        "ALTER TABLE {schema}.sync_jobs ADD extra int",
        "TRUNCATE {schema}.signals",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await cell.sql(statement)


async def full_cycle(world: World) -> None:
    engine = world.engine
    connection = await engine.connections.create(
        tenant_id="acme", provider_slug="github", external_id="1", interval_seconds=300
    )
    world.script(PAGE, PAGE, RuntimeError("not now"))
    assert (await engine.tick()).scheduled == 1
    assert await engine.run_due() == 1
    assert (await engine.trigger(connection.id)).status == "queued"
    assert await engine.run_due() == 1
    assert len(await engine.signals.list(connection_id=connection.id)) == 1

    await engine.connections.set_interval(connection.id, 600)
    await engine.connections.set_cursor(connection.id, {"page": 7})
    assert (await engine.tick()).scheduled == 0
    job = await engine.trigger(connection.id, job_type="full")
    assert await engine.run_due() == 1
    await engine.jobs.retry(job.id)
    await engine.jobs.cancel(job.id)
    await engine.connections.pause(connection.id, reason="lunch")
    await engine.connections.resume(connection.id)

    violations: list[Finding] = await engine.verify()
    assert violations == []
    assert (await engine.stats.overview()).counts.signals.count == 1
    assert [one.external_id for one in await engine.connections.list()] == ["1"]
    await engine.connections.delete(connection.id)
    assert await engine.signals.list() == []


def as_role(role: str, url: str) -> str:
    """Return the URL with another user in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}").geturl()
