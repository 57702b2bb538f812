"""Cursors move only from where their run had read them: after lost commits, and beside people.

When a standby that lagged is promoted, the last commits are gone, while the connector that made
them goes on. Between two pages of a stream these tests put the rows back to what they were.
"""

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from support.world import World, at
from syncline import Connection, Signal, SyncResult


def page(number: int, *, cursor: Any = None, has_more: bool = False) -> SyncResult:
    return SyncResult([Signal("seen", at("11:00"), {"n": number})], cursor, has_more)


async def numbers(world: World, connection: Connection) -> list[int]:
    return [signal.payload["n"] for signal in await world.signals(connection)]


async def cursor_of(world: World, connection: Connection) -> Any:
    return (await world.sync_metadata(connection)).get("cursor")


class Snapshot:
    """The rows of one job, to be put back as a promotion of a lagging standby would."""

    def __init__(self, world: World, job_id: UUID, connection: Connection) -> None:
        self._world, self._job_id, self._connection = world, job_id, connection

    async def take(self) -> None:
        sql = self._world.sql
        [[self._job]] = await sql(
            "SELECT to_jsonb(j) FROM {schema}.sync_jobs j WHERE id = $1", self._job_id
        )
        [[self._metadata]] = await sql(
            "SELECT metadata FROM {schema}.connections WHERE id = $1", self._connection.id
        )
        self._signals = [row["id"] for row in await sql("SELECT id FROM {schema}.signals")]

    async def put_back(self) -> None:
        sql = self._world.sql
        await sql(
            "UPDATE {schema}.sync_jobs SET cursor = $2::jsonb -> 'cursor',"
            " committed_pages = ($2::jsonb ->> 'committed_pages')::int WHERE id = $1",
            self._job_id,
            self._job,
        )
        await sql(
            "UPDATE {schema}.connections SET metadata = $2 WHERE id = $1",
            self._connection.id,
            self._metadata,
        )
        await sql("DELETE FROM {schema}.signals WHERE NOT id = ANY ($1)", self._signals)


@pytest.mark.parametrize("job_type", ["incremental", "full"])
async def test_a_stream_starts_again_where_a_failover_lost_its_pages(
    world: World, job_type: str
) -> None:
    connection = await world.connection()
    snapshot = Snapshot(world, await world.job(connection, job_type=job_type), connection)
    starts: list[Any] = []

    async def stream(_: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        starts.append(cursor)
        for number in range((cursor or 0) + 1, 6):
            yield page(number, cursor=number)
            if len(starts) == 1 and number == 2:
                await snapshot.take()
            if len(starts) == 1 and number == 4:
                await snapshot.put_back()

    world.script(stream, stream)
    assert await world.run_due() == 2

    assert starts == [None, 2]
    assert await numbers(world, connection) == [1, 2, 3, 4, 5]
    assert await cursor_of(world, connection) == 5
    [job] = await world.jobs(connection)
    assert (job.status, job.attempts) == ("succeeded", 0)
    assert await world.engine.verify() == []


async def test_a_lost_page_without_a_cursor_is_noticed_too(world: World) -> None:
    connection = await world.connection()
    snapshot = Snapshot(world, await world.job(connection), connection)
    starts: list[Any] = []

    async def stream(_: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        starts.append(cursor)
        if len(starts) == 1:
            await snapshot.take()
        yield page(1)
        if len(starts) == 1:
            await snapshot.put_back()
        yield page(2, cursor="both")

    world.script(stream, stream)
    await world.run_due()

    assert starts == [None, None]
    assert await numbers(world, connection) == [1, 2]
    assert await cursor_of(world, connection) == "both"


async def test_a_last_page_that_was_lost_is_not_passed_by_its_follow_up(world: World) -> None:
    connection = await world.connection()
    snapshot = Snapshot(world, await world.job(connection), connection)

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        yield page(1, cursor=1)
        await snapshot.take()
        yield page(2, cursor=2, has_more=True)
        await snapshot.put_back()

    async def rest(_: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        for number in range(cursor + 1, 4):
            yield page(number, cursor=number)

    world.script(stream, rest)
    await world.run_due()

    assert await numbers(world, connection) == [1, 2, 3]


@pytest.mark.parametrize(
    ("way", "has_more"), [("the library", False), ("the library", True), ("plain SQL", True)]
)
async def test_a_cursor_that_was_set_during_a_run_stays(
    world: World, way: str, has_more: bool
) -> None:
    connection = await world.connection(sync={"cursor": "before"})
    await world.job(connection)

    async with world.during_run(page(1, cursor="after", has_more=has_more)) as run:
        await set_cursor(world, connection, {"way": way}, way)
        await run.finish()

    assert await cursor_of(world, connection) == {"way": way}
    assert await numbers(world, connection) == [1]
    follow_ups = [job for job in await world.jobs(connection) if job.status == "queued"]
    assert [job.cursor for job in follow_ups] == ([None] if has_more else [])


@pytest.mark.parametrize("has_more", [False, True])
async def test_a_cursor_that_was_set_to_where_the_page_leads_is_there_already(
    world: World, has_more: bool
) -> None:
    """A full sync beside an incremental one often ends at the same place."""
    connection = await world.connection(sync={"cursor": "before"})
    await world.job(connection)

    async with world.during_run(page(1, cursor="after", has_more=has_more)) as run:
        await set_cursor(world, connection, "after", "the library")
        await run.finish()

    assert await cursor_of(world, connection) == "after"
    assert await numbers(world, connection) == [1]
    follow_ups = [job for job in await world.jobs(connection) if job.status == "queued"]
    assert [job.cursor for job in follow_ups] == (["after"] if has_more else [])


@pytest.mark.parametrize("way", ["the library", "plain SQL"])
async def test_a_cursor_that_was_set_during_a_stream_is_where_it_goes_on(
    world: World, way: str
) -> None:
    connection = await world.connection()
    await world.job(connection)
    starts: list[Any] = []

    async def stream(_: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        starts.append(cursor)
        for number in range((cursor or 0) + 1, 13):
            yield page(number, cursor=number)
            if len(starts) == 1 and number == 2:
                await set_cursor(world, connection, 10, way)

    world.script(stream, stream)
    await world.run_due()

    assert starts == [None, 10]
    assert await numbers(world, connection) == [1, 2, 3, 11, 12]
    assert await cursor_of(world, connection) == 12


@pytest.mark.parametrize("way", ["the library", "plain SQL"])
async def test_a_cursor_that_was_set_outlives_the_worker_whose_stream_it_was(
    world: World, way: str
) -> None:
    """It dies after the page that found the cursor moved, and before its end is settled."""
    connection = await world.connection()
    await world.job(connection)
    starts: list[Any] = []

    async def stream(_: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        starts.append(cursor)
        try:
            yield page(1, cursor=1)
            await set_cursor(world, connection, 10, way)
            yield page(2, cursor=2)
        finally:
            assert await world.engine.verify() == []
            world.clock.advance(seconds=31)
            async with world.another_engine(connectors=()) as reaper:
                await reaper.run_due()

    async def rest(_: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        starts.append(cursor)
        yield page(11, cursor=11)

    world.script(stream, rest)
    async with world.another_engine(executor={"concurrency": 1}) as worker:
        await worker.engine.run_due()

    assert starts == [None, 10]
    assert await numbers(world, connection) == [1, 2, 11]
    assert await cursor_of(world, connection) == 11


async def test_a_cursor_that_was_set_is_not_lost_to_a_queued_follow_up(world: World) -> None:
    connection = await world.connection(sync={"cursor": 1})
    await world.job(connection, cursor=json.dumps(1))

    await world.engine.connections.set_cursor(connection.id, 7)
    world.script(SyncResult())
    await world.run_due()

    assert [cursor for _, cursor in world.connector.calls] == [7]


async def test_a_number_that_python_would_round_does_not_hold_a_cursor_up(world: World) -> None:
    """The comparison goes by the stored text, not by what became of it in between."""
    connection = await world.connection()
    await world.sql(
        "UPDATE {schema}.connections SET metadata = $2 WHERE id = $1",
        connection.id,
        '{"sync": {"cursor": 0.12345678901234567890123456789}}',
    )
    await world.job(connection)
    world.script(SyncResult(next_cursor="next"))
    await world.run_due()

    assert await cursor_of(world, connection) == "next"


async def set_cursor(world: World, connection: Connection, cursor: Any, way: str) -> None:
    if way == "the library":
        await world.engine.connections.set_cursor(connection.id, cursor)
        return
    await world.sql(
        "UPDATE {schema}.connections SET metadata = jsonb_set(metadata, '{sync,cursor}', $2)"
        " WHERE id = $1",
        connection.id,
        json.dumps(cursor),
    )


async def test_verify_sees_a_stream_whose_connection_has_lost_its_page(world: World) -> None:
    """As where tables are restored from copies of different times."""
    connection = await world.connection()
    job_id = await world.job(connection)
    found: list[list[str]] = []

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        yield page(1, cursor=1)
        found.append([one.name for one in await world.engine.verify()])
        await world.set_metadata(connection, "sync,cursor", 0)
        found.append([one.name for one in await world.engine.verify()])

    world.script(stream)
    await world.run_due()

    assert found == [[], ["stream_agrees"]]
    assert (await world.get_job(job_id)).status == "succeeded"
    assert await world.engine.verify() == []


@pytest.mark.parametrize(
    ("job_type", "single_flight"),
    [
        ("incremental", "connection"),
        ("full", "connection"),
        ("full", "job_type"),
        ("webhook", "job_type"),
    ],
)
async def test_verify_finds_nothing_wrong_with_a_stream_beside_a_person(
    world: World, job_type: str, single_flight: str
) -> None:
    """Pages with and without a cursor, and a cursor that is set and set back between them."""
    async with world.another_engine(executor={"single_flight": single_flight}) as worker:
        connection = await world.connection(sync={"cursor": "before"})
        await world.job(connection, job_type=job_type)

        async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
            for number, cursor in enumerate(["a", None, "b", None]):
                yield page(number, cursor=cursor)
                assert await world.engine.verify() == []
            await world.engine.connections.set_cursor(connection.id, "elsewhere")
            assert await world.engine.verify() == []
            yield page(5)
            assert await world.engine.verify() == []
            yield page(6, cursor="c")
            assert await world.engine.verify() == []

        worker.script(stream, *[SyncResult()] * 3)
        await worker.engine.run_due()

        assert await numbers(world, connection) == [0, 1, 2, 3, 5, 6]
        assert await world.engine.verify() == []


async def test_verify_finds_nothing_wrong_with_a_stream_that_another_run_overtook(
    world: World,
) -> None:
    """A stream that failed keeps its place, while a full sync moves the connection's cursor."""
    connection = await world.connection()
    await world.job(connection)

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        yield page(1, cursor=1)
        raise TimeoutError

    world.script(stream)
    await world.run_due()
    world.clock.advance(seconds=1)
    await world.engine.trigger(connection.id, job_type="full")
    world.script(page(2, cursor=9))
    await world.run_due()

    waiting = await world.pending(connection)
    assert (waiting.cursor, await cursor_of(world, connection)) == (1, 9)
    assert await world.engine.verify() == []
