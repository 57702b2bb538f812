"""Connectors that yield their pages: each commits with its cursor, and the run goes on from there.

The body of a stream runs between its pages, so that is where these tests look and meddle.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import pytest

from support.fakes import eventually
from support.sessions import actor
from support.world import World, at, in_short
from syncline import (
    Connection,
    Connector,
    Permanent,
    RateLimited,
    Signal,
    SyncResult,
    Transient,
    Unauthorized,
)
from syncline.model import Job

Stream = Callable[[Connection, Any], AsyncIterator[SyncResult]]
LEASED = "SELECT FROM {schema}.sync_jobs WHERE lease_token IS NOT NULL"


def page(number: int, **more: Any) -> SyncResult:
    """Return a page of one signal, without a key: only the cursor keeps it from coming twice."""
    return SyncResult([Signal("seen", at("11:00"), {"n": number})], next_cursor=number, **more)


async def numbers(world: World, connection: Connection) -> list[int]:
    return [signal.payload["n"] for signal in await world.signals(connection)]


async def cursor_of(world: World, connection: Connection) -> Any:
    return (await world.sync_metadata(connection)).get("cursor")


class Counting(Connector):
    """Yields the pages after its cursor, up to the third."""

    provider = "github"

    async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        for number in range((cursor or 0) + 1, 4):
            yield page(number)


async def test_a_stream_runs_to_its_end_in_one_job(world: World) -> None:
    connection = await world.connection(sync={"cursor": 1})
    job_id = await world.job(connection)

    async with world.another_engine([Counting()]) as worker:
        assert await worker.run_due() == 1

    [job] = await world.jobs(connection)
    assert (job.id, job.status, job.cursor, job.error) == (job_id, "succeeded", 3, None)
    assert job.finished_at == world.clock()
    assert await numbers(world, connection) == [2, 3]
    assert await cursor_of(world, connection) == 3
    assert await world.engine.verify() == []


async def test_a_page_is_stored_before_the_next_is_asked_for(world: World) -> None:
    """Whoever goes on after a `yield` may count on it: no second page is held in memory."""
    connection = await world.connection()
    job_id = await world.job(connection)
    seen = []

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        for number in (1, 2):
            yield page(number)
            job = await world.get_job(job_id)
            stored = await numbers(world, connection), await cursor_of(world, connection)
            seen.append((job.status, job.cursor, *stored))

    world.connector.script.append(stream)
    await world.run_due()

    assert seen == [("running", 1, [1], 1), ("running", 2, [1, 2], 2)]
    assert world.metric("sync_executor_signals_stored_total", provider_slug="github") == 2
    assert world.metric("sync_executor_jobs_succeeded_total", provider_slug="github") == 1


async def test_a_stream_without_pages_succeeds_and_changes_nothing(world: World) -> None:
    connection = await world.connection(sync={"cursor": 9})
    job_id = await world.job(connection)

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        return
        yield page(1)

    world.connector.script.append(stream)
    await world.run_due()

    job = await world.get_job(job_id)
    assert (job.status, job.cursor) == ("succeeded", None)
    assert await cursor_of(world, connection) == 9


async def test_has_more_on_the_last_page_is_followed(world: World) -> None:
    """E4: as with a single page; on any page before, it says nothing new."""
    connection = await world.connection()
    await world.job(connection, priority=7)

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        yield page(1, has_more=True)
        yield page(2, has_more=True)

    async def follow(_: Connection, __: Any) -> SyncResult:
        follow_ups.append(await world.pending(connection))
        return SyncResult()

    follow_ups: list[Job] = []
    world.script(stream, follow)
    assert await world.run_due() == 2

    [job] = follow_ups
    assert (job.job_type, job.cursor, job.priority) == ("incremental", 2, 7)
    assert len(await world.jobs(connection)) == 2


async def test_a_failure_keeps_the_pages_before_it(world: World) -> None:
    failures = [
        (Transient("not now"), "queued", "active"),
        (RateLimited("slow down", retry_after_seconds=60), "queued", "active"),
        (KeyError("surprise"), "queued", "active"),
        (Permanent("gone"), "failed", "error"),
        (Unauthorized("who?"), "failed", "needs_reauth"),
    ]
    connections = [await world.connection() for _ in failures]
    errors = {one.id: error for one, (error, _, _) in zip(connections, failures, strict=True)}

    async def stream(connection: Connection, __: Any) -> AsyncIterator[SyncResult]:
        yield page(1)
        yield page(2)
        raise errors[connection.id]

    for connection in connections:
        await world.job(connection)
    world.script(*[stream] * len(failures))
    await world.run_due()

    for connection, (_, status, connection_status) in zip(connections, failures, strict=True):
        [job] = await world.jobs(connection)
        assert (job.status, job.attempts, job.cursor) == (status, 1, 2)
        assert (await world.engine.connections.get(connection.id)).status == connection_status
        assert await numbers(world, connection) == [1, 2]
        assert await cursor_of(world, connection) == 2


@pytest.mark.parametrize("job_type", ["incremental", "full"])
async def test_the_next_attempt_goes_on_after_the_last_page(world: World, job_type: str) -> None:
    """E3: the page's cursor is the job's own as well, also of a job that began at nothing."""
    connection = await world.connection(sync={"cursor": 0})
    await world.job(connection, job_type=job_type)

    async def broken(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        yield page(1)
        raise Transient("not now")

    async def whole(_: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        yield page(cursor + 1)

    world.connector.script.extend([broken, whole])
    await world.run_due()
    await world.run_due("12:10")

    began_at = None if job_type == "full" else 0
    assert [cursor for _, cursor in world.connector.calls] == [began_at, 1]
    assert await numbers(world, connection) == [1, 2]


async def test_a_page_that_moves_on_starts_the_count_of_failures_afresh(world: World) -> None:
    """As if each page were a job of its own: a long run may fail once in a while."""
    connection = await world.connection()
    job_id = await world.job(
        connection, attempts=5, lapses=3, error='{"class": "Transient"}', cursor="0"
    )
    seen = []

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        for number in (0, 1):
            yield page(number)
            row = await world.sql("SELECT attempts, lapses, error FROM {schema}.sync_jobs")
            seen.append(tuple(row[0]))
        raise Transient("not now")

    world.connector.script.append(stream)
    await world.run_due()

    assert seen == [(5, 3, '{"class": "Transient"}'), (0, 0, None)]
    job = await world.get_job(job_id)
    assert (job.attempts, job.retry_after) == (1, world.clock.advance(seconds=5.25))


async def test_a_page_that_cannot_be_stored_keeps_those_before_it(world: World) -> None:
    connection = await world.connection()
    job_id = await world.job(connection)
    went_on = []

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        try:
            yield page(1)
            yield SyncResult([Signal("seen", at("11:00"), {"x": "\0"})], next_cursor=2)
            went_on.append("after the bad page")
        finally:
            went_on.append("closed")

    world.connector.script.append(stream)
    await world.run_due()

    job = await world.get_job(job_id)
    assert (job.status, job.attempts, job.cursor) == ("queued", 1, 1)
    assert "signals[0].payload" in job.error["message"]
    assert await numbers(world, connection) == [1]
    assert went_on == ["closed"]


async def test_has_more_with_the_cursor_of_the_page_before_is_a_contract_error(
    world: World,
) -> None:
    """E4: signals without keys would come again from there; a cursor that was moved in place
    is another one."""
    connection = await world.connection()
    job_id = await world.job(connection)

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        cursor = {"after": 0}
        for number in (1, 2, 2):
            cursor["after"] = number
            yield SyncResult(page(number).signals, next_cursor=cursor, has_more=True)

    world.connector.script.append(stream)
    await world.run_due()

    job = await world.get_job(job_id)
    assert (job.error["class"], job.cursor) == ("ContractError", {"after": 2})
    assert await numbers(world, connection) == [1, 2]


async def test_anything_but_a_page_is_a_contract_error(world: World) -> None:
    connection = await world.connection()
    job_id = await world.job(connection)

    async def stream(_: Connection, __: Any) -> AsyncIterator[Any]:
        yield {"signals": []}

    world.connector.script.append(stream)
    await world.run_due()

    assert (await world.get_job(job_id)).error["class"] == "ContractError"


async def test_a_large_page_of_a_stream_is_stored_whole(world: World) -> None:
    connection = await world.connection()
    await world.job(connection)

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        yield SyncResult([Signal("seen", at("11:00"), {"n": n}) for n in range(3000)])

    world.connector.script.append(stream)
    await world.run_due()

    assert await numbers(world, connection) == list(range(3000))


async def test_a_paused_connection_keeps_the_page_in_hand_and_ends_the_run(world: World) -> None:
    """S11: noticed between pages; what would be queued again is cancelled."""
    connection = await world.connection()
    job_id = await world.job(connection)
    went_on = []

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        yield page(1)
        await world.engine.connections.pause(connection.id)
        yield page(2)
        went_on.append("after the pause")

    world.connector.script.append(stream)
    await world.run_due()

    assert went_on == []
    assert (await world.get_job(job_id)).status == "cancelled"
    assert await numbers(world, connection) == [1, 2]
    assert await cursor_of(world, connection) == 2
    await world.engine.connections.resume(connection.id)
    await world.tick("12:30")
    assert (await world.pending(connection)).cursor is None  # it goes on from the stored one


async def test_a_cancelled_job_stores_no_further_page(world: World) -> None:
    connection = await world.connection()
    job_id = await world.job(connection)
    went_on = []

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        try:
            yield page(1)
            await world.engine.jobs.cancel(job_id)
            yield page(2)
            went_on.append("after the cancel")
        finally:
            await asyncio.sleep(0)
            went_on.append("closed")

    world.connector.script.append(stream)
    await world.run_due()

    assert went_on == ["closed"]
    assert (await world.get_job(job_id)).status == "cancelled"
    assert await numbers(world, connection) == [1]
    assert await cursor_of(world, connection) == 1
    assert world.metric("sync_executor_jobs_fenced_total", provider_slug="github") == 1


async def test_a_deleted_connection_gets_no_further_page(world: World) -> None:
    connection = await world.connection()
    await world.job(connection)

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        yield page(1)
        await world.engine.connections.delete(connection.id)
        yield page(2)

    world.connector.script.append(stream)
    await world.run_due()

    for table in ("connections", "sync_jobs", "signals"):
        assert await world.sql(f"SELECT FROM {{schema}}.{table}") == []


async def test_a_reaped_stream_stores_no_further_page_and_goes_on_elsewhere(world: World) -> None:
    """E6: the lease is looked at between pages, not only at its renewal."""
    connection = await world.connection()
    job_id = await world.job(connection)

    async def zombie(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        yield page(1)
        world.clock.advance(seconds=31)
        async with world.another_engine(connectors=[]) as reaper:
            await reaper.run_due()
        yield page(100)

    async def successor(_: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        yield page(cursor + 1)

    world.connector.script.extend([zombie, successor])
    assert await world.run_due() == 2

    job = await world.get_job(job_id)
    assert (job.status, job.cursor, world.connector.calls[-1][1]) == ("succeeded", 2, 1)
    assert await numbers(world, connection) == [1, 2]


async def test_a_page_renews_the_lease(world: World) -> None:
    """Also where nobody else does: here no time passes for the loop that renews."""
    connection = await world.connection()
    job_id = await world.job(connection)

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        for number in (1, 2, 3):
            world.clock.advance(seconds=25)
            yield page(number)
            async with world.another_engine(connectors=[]) as reaper:
                await reaper.run_due()

    world.connector.script.append(stream)
    await world.run_due()

    job = await world.get_job(job_id)
    assert (job.status, job.attempts) == ("succeeded", 0)
    assert await numbers(world, connection) == [1, 2, 3]


@pytest.mark.engine(executor=in_short(max_run_seconds=0.5))
async def test_max_run_seconds_counts_for_each_page(world: World) -> None:
    """E7: a stream may go on for hours; a page that takes too long ends it, as a failure."""
    connection = await world.connection()
    job_id = await world.job(connection)

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        began, number = time.monotonic(), 0
        while time.monotonic() < began + 0.8:
            await asyncio.sleep(0.02)
            number += 1
            yield page(number)
        yield page(1000)
        await asyncio.Event().wait()

    world.connector.script.append(stream)
    await world.run_due()

    job = await world.get_job(job_id)
    assert (job.status, job.attempts, job.error["class"]) == ("queued", 1, "Timeout")
    assert (job.cursor, (await numbers(world, connection))[-1]) == (1000, 1000)


@pytest.mark.engine(executor=in_short(max_run_seconds=0.3))
async def test_a_page_that_waits_to_be_committed_is_not_timed(world: World) -> None:
    """Somebody holds the connection's row; the connector has done its part."""
    connection, other = await world.connection(), await world.connection()
    job_id = await world.job(connection, priority=1)
    hanging = await world.job(other)

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        yield page(1)
        yield page(2)

    async def hang(_: Connection, __: Any) -> SyncResult:
        await asyncio.Event().wait()
        return SyncResult()

    async def has_timed_out() -> bool:
        return (await world.get_job(hanging)).error is not None

    world.script(stream, hang)
    async with actor(world) as person:
        await person.lock(connection)
        running = asyncio.create_task(world.run_due())
        await eventually(has_timed_out)  # which began later
        assert (await world.get_job(job_id)).status == "running"
    await running

    assert (await world.get_job(job_id)).status == "succeeded"
    assert await numbers(world, connection) == [1, 2]


async def test_a_stream_stops_after_the_page_in_hand_when_the_process_leaves(world: World) -> None:
    """E8: released without a lost attempt; whoever takes it up neither misses nor doubles."""
    connection = await world.connection()
    job_id = await world.job(connection, attempts=2)
    closed = []

    async def endless(_: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        try:
            for number in itertools.count((cursor or 0) + 1):
                if number == 3:
                    world.engine.stop()
                yield page(number)
        finally:
            closed.append(True)

    world.connector.script.append(endless)
    assert await world.engine.run(handle_signals=False, scheduler=False)

    job = await world.get_job(job_id)
    assert (job.status, job.attempts, job.retry_after) == ("queued", 0, None)
    assert await world.sql(LEASED) == []
    assert closed == [True]
    assert await numbers(world, connection) == list(range(1, job.cursor + 1))
    world.script(SyncResult())
    assert await world.run_due() == 1
    assert world.connector.calls[-1] == (connection.id, job.cursor)


@pytest.mark.engine(executor={"shutdown_grace_seconds": 0})
async def test_a_stream_without_grace_is_released_where_it_stands(world: World) -> None:
    connection = await world.connection()
    job_id = await world.job(connection)
    waits = asyncio.Event()

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        yield page(1)
        waits.set()
        await asyncio.Event().wait()

    world.connector.script.append(stream)
    running = asyncio.create_task(world.engine.run(handle_signals=False, scheduler=False))
    await waits.wait()
    world.engine.stop()
    assert await running

    job = await world.get_job(job_id)
    assert (job.status, job.attempts, job.cursor) == ("queued", 0, 1)


async def test_a_trigger_during_a_stream_brings_exactly_one_more(world: World) -> None:
    """E10: the mark on a running job outlives its pages."""
    connection = await world.connection()
    job_id = await world.job(connection)
    triggered: list[UUID] = []

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        yield page(1)
        triggered.append((await world.engine.trigger(connection.id)).id)
        yield page(2)
        yield page(3)

    world.connector.script.extend([stream, SyncResult()])
    assert await world.run_due() == 2

    assert triggered == [job_id]
    assert [cursor for _, cursor in world.connector.calls] == [None, 3]


async def test_a_stubborn_stream_stores_nothing_after_its_end(world: World) -> None:
    """One that will not stop may yield what it likes."""
    connection = await world.connection()
    job_id = await world.job(connection)

    async def stream(_: Connection, __: Any) -> AsyncIterator[SyncResult]:
        yield page(1)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            yield page(2)

    world.connector.script.append(stream)
    async with world.another_engine(executor={"max_run_seconds": 0.3}) as worker:
        await worker.run_due()

    assert (await world.get_job(job_id)).cursor == 1
    assert await numbers(world, connection) == [1]
