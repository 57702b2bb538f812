"""Rows that people wrote, which Postgres holds and Python cannot: one job's trouble, no more."""

import json
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from support.mixed_batch import HEALTHY_PAGE, Answering, batch_world
from support.world import World, at
from syncline import Connection, Permanent

UNREADABLE = {
    "5000 digits": "9" * 5000,
    "1e5000": "1e5000",
    "7000 levels": "[" * 7000 + "]" * 7000,
    "5000 digits deep inside": '{"a": [{"b": ' + "9" * 5000 + "}]}",
}
LAPSED = {"status": "running", "lease_token": UUID(int=7), "lease_expires_at": at("11:00")}
KEPT = "SELECT id, metadata -> 'sync' -> 'x' AS kept FROM {schema}.connections ORDER BY id"
BEYOND = ["infinity", "-infinity", "20000-01-01", "0001-01-01 BC"]


async def test_what_python_cannot_read_fails_its_own_job(world: World) -> None:
    """A job's cursor, a connection's config and metadata: told on the job, stored untouched."""
    healthy = await neighbour(world)
    bad: list[tuple[Connection, str]] = []
    for text in UNREADABLE.values():
        cursor, config, metadata = [await world.connection() for _ in range(3)]
        await world.job(cursor, cursor=text)
        await edit(world, config, "config", text)
        await edit(world, metadata, "metadata", f'{{"sync": {{"cursor": {text}}}}}')
        for connection in (config, metadata):
            await world.job(connection)
        bad += [(cursor, "cursor"), (config, "config"), (metadata, "metadata")]
    before = await texts(world)

    world.script(HEALTHY_PAGE)
    assert await world.run_due() == len(bad) + 1

    assert await texts(world, but=healthy) == {
        key: value for key, value in before.items() if key != healthy.id
    }
    for connection, where in bad:
        [job] = await world.jobs(connection)
        assert (job.status, job.attempts) == ("queued", 1)
        assert f"{where} cannot be read" in job.error["message"]
        assert job.cursor is None or "unreadable" in job.cursor
        read = await world.engine.connections.get(connection.id)
        assert read.status == "active"
    [job] = await world.jobs(healthy)
    assert job.status == "succeeded"


async def test_the_tick_reads_round_what_python_cannot_read(world: World) -> None:
    healthy = await world.connection()
    for text in UNREADABLE.values():
        metadata = f'{{"sync": {{"cursor": {text}, "x": {text}}}}}'
        await edit(world, await world.connection(), "metadata", metadata)
    before = await world.sql(KEPT)

    assert (await world.tick()).scheduled == len(UNREADABLE) + 1

    assert await world.sql(KEPT) == before
    assert "next_run_at" in await world.sync_metadata(healthy)


async def test_listings_show_something_in_place_of_the_unreadable(world: World) -> None:
    connection = await world.connection()
    await edit(world, connection, "config", "9" * 5000)
    await world.job(connection, cursor="9" * 5000, error='{"a": ' + "9" * 5000 + "}")
    await world.sql(
        "INSERT INTO {schema}.signals (id, tenant_id, provider_slug, connection_id, kind, payload)"
        " VALUES ($1, $2, $3, $4, 'seen', $5)",
        *(UUID(int=7), "acme", "github", connection.id, '{"a": ' + "9" * 5000 + "}"),
    )

    [shown] = await world.engine.connections.list()
    [job] = await world.engine.jobs.list()
    [signal] = await world.engine.signals.list()
    for value in (shown.config, job.cursor, job.error, signal.payload):
        assert "unreadable" in value
    json.dumps([shown.config, job.cursor, job.error, signal.payload])


async def test_a_retried_job_keeps_its_cursor_to_the_last_digit(world: World) -> None:
    """The new job has the failed one's cursor, also where Python would read another."""
    connection = await world.connection()
    cursor = '{"big": 12345678901234567890.10, "exact": 1.10}'
    job_id = await world.job(connection, cursor=cursor)
    world.script(Permanent("gone"))
    await world.run_due()
    await world.engine.connections.resume(connection.id)

    again = await world.engine.jobs.retry(job_id)

    rows = await world.sql(
        "SELECT cursor::text FROM {schema}.sync_jobs WHERE id = ANY ($1)", [job_id, again.id]
    )
    assert [row["cursor"] for row in rows] == [cursor] * 2


@pytest.mark.parametrize("column", ["scheduled_at", "retry_after", "finished_at"])
async def test_a_time_that_python_cannot_read_is_refused(world: World, column: str) -> None:
    """One such row would break a whole claim."""
    connection = await world.connection()
    for time in BEYOND:
        with pytest.raises(asyncpg.CheckViolationError):
            await world.sql(
                "INSERT INTO {schema}.sync_jobs"
                f" (tenant_id, provider_slug, connection_id, {column})"
                f" VALUES ($1, $2, $3, '{time}')",
                *(connection.tenant_id, connection.provider_slug, connection.id),
            )


async def test_numbers_at_their_ends_hold_up_nobody(database_url: str) -> None:
    """Claimed and failed, or reaped: the odd ones are told so, the healthy one goes on."""
    ends: list[tuple[dict[str, Any], str]] = [
        ({"attempts": 2_147_483_647}, "queued"),
        ({"priority": -32_768}, "queued"),
        ({"scheduled_at": at("00:00").replace(year=3)}, "queued"),
        ({"attempts": 2_147_483_647, "lapses": 32_767, **LAPSED}, "failed"),
        ({"attempts": 2_147_483_647, **LAPSED}, "queued"),
    ]
    connector = Answering()
    async with batch_world(database_url, connector) as world:
        odd = [await world.connection() for _ in ends]
        healthy = await neighbour(world)
        for connection, (columns, _) in zip(odd, ends, strict=True):
            await world.job(connection, **columns)
            connector.answers[connection.id] = fail
        await world.run_due()

        for connection, (columns, status) in zip(odd, ends, strict=True):
            [job] = await world.jobs(connection)
            error_class = "LeaseLapsed" if status == "failed" else "Unexpected"
            assert (job.status, job.error["class"]) == (status, error_class), columns
        [job] = await world.jobs(healthy)
        assert job.status == "succeeded"


def fail() -> None:
    raise OSError("no")


async def neighbour(world: World) -> Connection:
    connection = await world.connection()
    await world.job(connection)
    return connection


async def edit(world: World, connection: Connection, column: str, text: str) -> None:
    await world.sql(
        f"UPDATE {{schema}}.connections SET {column} = $2::jsonb WHERE id = $1", connection.id, text
    )


async def texts(world: World, but: Connection | None = None) -> dict[Any, tuple[str, str]]:
    """Return what the connections hold, as text."""
    rows = await world.sql("SELECT id, config::text, metadata::text FROM {schema}.connections")
    return {
        row["id"]: (row["config"], row["metadata"])
        for row in rows
        if but is None or row["id"] != but.id
    }
