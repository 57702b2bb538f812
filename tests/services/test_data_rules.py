"""The data rules of the specification: keys, defaults, and rows made by hand."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from support.world import World
from syncline import SyncResult

GUARD = (
    "CREATE UNIQUE INDEX idx_sync_jobs_connection_type_status ON syncline.sync_jobs"
    " USING btree (connection_id, job_type)"
    " WHERE (status = ANY (ARRAY['queued'::text, 'running'::text]))"
)


async def test_guard_is_exactly_as_specified(world: World) -> None:
    """The partial unique index, by its name and definition."""
    [row] = await world.sql(
        "SELECT indexdef FROM pg_indexes WHERE indexname = 'idx_sync_jobs_connection_type_status'"
    )

    assert row["indexdef"] == GUARD


async def test_rows_may_be_inserted_with_their_key_columns_alone(world: World) -> None:
    """Every other column has a default, and such rows are scheduled and run."""
    await world.sql(
        "INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id)"
        " VALUES ('acme', 'github', 'by hand')"
    )
    [connection] = await world.engine.connections.list()
    await world.sql(
        "INSERT INTO {schema}.sync_jobs (tenant_id, provider_slug, connection_id, job_type)"
        " VALUES ('acme', 'github', $1, 'full')",
        connection.id,
    )
    await world.sql(
        "INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, kind)"
        " VALUES ('acme', 'github', $1, 'k')",
        connection.id,
    )
    world.clock.set(await world.server_time() + timedelta(seconds=1))
    world.script(SyncResult(), SyncResult())

    report = await world.tick()
    assert (report.scheduled, await world.run_due()) == (1, 2)
    assert len(await world.signals(connection)) == 1


async def test_bad_input_is_refused(world: World) -> None:
    """Bad input raises a ValueError that names what is wrong."""
    good: dict[str, Any] = {"tenant_id": "t" * 255, "provider_slug": "p", "external_id": "e"}
    wrong: list[dict[str, Any]] = [
        {"tenant_id": ""},
        {"tenant_id": "t" * 256},
        {"tenant_id": "a\0b"},
        {"provider_slug": ""},
        {"external_id": ""},
        {"interval_seconds": 59},
        {"interval_seconds": True},
        {"config": ["no object"]},
    ]

    for change in wrong:
        with pytest.raises(ValueError, match=next(iter(change))):
            await world.engine.connections.create(**{**good, **change})
    assert (await world.engine.connections.create(**good)).status == "active"
    with pytest.raises(ValueError, match="already"):
        await world.engine.connections.create(**good)


async def test_ensure_returns_what_is_there_brought_up_to_date(world: World) -> None:
    key: dict[str, Any] = {"tenant_id": "acme", "provider_slug": "p", "external_id": "e"}
    ensure = world.engine.connections.ensure

    first = await ensure(**key, config={"url": "a"}, interval_seconds=300)
    await world.engine.connections.set_cursor(first.id, {"at": 1})
    await world.engine.connections.pause(first.id, reason="moving house")
    second = await ensure(**key, config={"url": "b"}, interval_seconds=600)
    third = await ensure(**key)

    assert first.status == "active"
    assert second.id == first.id
    assert (second.config, second.status) == ({"url": "b"}, "paused")
    assert second.metadata["sync"]["interval_seconds"] == 600
    assert second.metadata["sync"]["cursor"] == {"at": 1}
    assert third == second
    with pytest.raises(ValueError, match="interval_seconds"):
        await ensure(**key, interval_seconds=59)
    assert len(await world.engine.connections.list()) == 1


async def test_ensure_of_what_is_as_it_should_be_writes_nothing(world: World) -> None:
    wanted: dict[str, Any] = {
        "tenant_id": "acme",
        "provider_slug": "p",
        "external_id": "e",
        "config": {"b": 1, "a": [2]},
        "interval_seconds": 300,
    }
    first = await world.engine.connections.ensure(**wanted)
    world.clock.advance(minutes=1)

    assert await world.engine.connections.ensure(**wanted) == first


async def test_many_that_ensure_the_same_get_the_same(world: World) -> None:
    key: dict[str, Any] = {"tenant_id": "acme", "provider_slug": "p", "external_id": "e"}

    found = await asyncio.gather(*(world.engine.connections.ensure(**key) for _ in range(8)))

    assert len({connection.id for connection in found}) == 1


async def test_tenant_of_a_job_is_that_of_its_connection(world: World) -> None:
    """The database refuses a job under the wrong tenant."""
    connection = await world.connection(tenant="acme")

    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await world.job(connection, tenant_id="brix")
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await world.job(connection, connection_id=uuid4())
