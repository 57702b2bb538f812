"""R5: of each job the last failed attempts are kept, with their traces and their calls."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from support.httpserver import Reply, http_server
from support.world import World, at
from syncline import Connection, Connector, NotFound, Permanent, Signal, SyncResult, Transient
from syncline.engine.worker.traces import LONGEST_TRACE
from syncline.errors import ContractError
from syncline.store.queue.jobs import CLOSE_EMPTY

SECRET = "hunter2-hunter2"


class Buggy(Connector):
    provider = "buggy"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        private = "a local variable"
        return await self.read(connection, private)

    async def read(self, connection: Connection, private: str) -> SyncResult:
        fields: dict[str, str] = {}
        try:
            raise ValueError(f"password={SECRET}")
        except ValueError:
            return SyncResult(next_cursor=fields["id"])


class Desk(Connector):
    """Makes as many calls as its config says; the last one fails."""

    provider = "desk"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        address, calls = connection.config["url"], connection.config["calls"]
        async with self.http(connection, base_url=address) as http:
            for number in range(calls):
                await http.get(f"tickets/{number}", params={"key": SECRET})
        return SyncResult()


class Stream(Connector):
    provider = "stream"

    async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        found = [Signal("ticket", at("10:00"), {}, dedupe_key=str(n)) for n in range(3)]
        yield SyncResult(found, next_cursor=1)
        raise Transient("the second page is missing")


class Slow(Connector):
    provider = "slow"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        await asyncio.sleep(600)
        return SyncResult()


async def run_one(world: World, connector: Connector, **settings: Any) -> Any:
    """Run one job of this connector; return its only attempt."""
    config = settings.pop("config", {})
    async with world.another_engine([connector], **settings) as own:
        connection = await own.engine.connections.create(
            tenant_id="acme", provider_slug=connector.provider, external_id="1", config=config
        )
        job = await own.engine.trigger(connection.id)
        await own.engine.run_due()
        [attempt] = await own.engine.jobs.attempts(job.id)
        assert attempt.job_id == job.id
        return attempt


async def test_a_failed_attempt_is_kept_with_its_trace(world: World) -> None:
    attempt = await run_one(world, Buggy())

    assert attempt.ended_at == world.clock()
    assert attempt.milliseconds >= 0
    assert ":" in attempt.worker
    assert (attempt.error["class"], attempt.error["attempt"]) == ("Unexpected", 1)
    assert "test_attempts.py" in attempt.trace
    assert "in read\n    return SyncResult(next_cursor=fields[" in attempt.trace
    assert attempt.trace.endswith("KeyError: 'id'")
    assert "ValueError: password=***" in attempt.trace  # what led to it
    assert (attempt.calls, attempt.call_count, attempt.signals) == ([], 0, 0)


async def test_a_trace_has_no_secrets_no_variables_and_no_folders(world: World) -> None:
    trace = (await run_one(world, Buggy())).trace

    assert SECRET not in trace
    assert "a local variable" not in trace.replace('private = "a local variable"', "")
    assert "/tests/" not in trace
    assert "syncline/engine" not in trace


def recurse(depth: int) -> Any:
    if not depth:
        raise Permanent("x" * 100_000 + "\0\ud800")
    return recurse(depth - 1)


@pytest.mark.parametrize("depth", [0, 5, 300])
async def test_a_trace_is_bounded_and_can_be_stored(world: World, depth: int) -> None:
    job_id = await world.job(await world.connection())
    world.script(lambda _connection, _cursor: recurse(depth))
    await world.run_due()

    [attempt] = await world.engine.jobs.attempts(job_id)
    assert attempt.trace is not None
    assert len(attempt.trace.encode()) <= LONGEST_TRACE
    assert attempt.trace.count("in recurse") <= 9
    assert ("more calls" in attempt.trace) == (depth == 300)


async def test_an_error_whose_text_cannot_be_read_is_kept_all_the_same(world: World) -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise ValueError("no")

    job_id = await world.job(await world.connection())
    world.script(Rude())
    await world.run_due()

    [attempt] = await world.engine.jobs.attempts(job_id)
    assert attempt.trace is not None
    assert attempt.trace.endswith("Rude")


async def test_a_page_that_cannot_be_stored_has_an_error_and_no_trace(world: World) -> None:
    job_id = await world.job(await world.connection())
    world.script(lambda _connection, _cursor: "no page")
    await world.run_due()

    [attempt] = await world.engine.jobs.attempts(job_id)
    assert attempt.error["class"] == ContractError.__name__
    assert attempt.trace is None


async def test_a_run_that_takes_too_long_says_where_it_was(world: World) -> None:
    attempt = await run_one(world, Slow(), executor={"max_run_seconds": 1})

    assert attempt.error["class"] == "Timeout"
    assert "await asyncio.sleep(600)" in attempt.trace


async def test_the_calls_of_a_failed_attempt_are_kept(world: World) -> None:
    async with http_server([Reply(), Reply(503)]) as server:
        config = {"url": server.url, "calls": 2}
        attempt = await run_one(world, Desk(), config=config, http={"allow_private": ["desk"]})

    assert attempt.call_count == 2
    assert [call["status"] for call in attempt.calls] == [200, 503]
    assert attempt.calls[1]["method"] == "GET"
    assert attempt.calls[1]["url"] == f"{server.url}/tickets/1?key=…"
    assert attempt.calls[1]["milliseconds"] >= 0
    assert SECRET not in str(attempt)


async def test_of_many_calls_the_first_and_the_last_are_kept(world: World) -> None:
    async with http_server([*[Reply()] * 39, Reply(503)]) as server:
        config = {"url": server.url, "calls": 40}
        attempt = await run_one(world, Desk(), config=config, http={"allow_private": ["desk"]})

    numbers = [int(call["url"].split("tickets/")[1].split("?")[0]) for call in attempt.calls]
    assert attempt.call_count == 40
    assert numbers == [*range(20), *range(35, 40)]


async def test_an_address_that_postgres_cannot_store_is_kept_without_that_part(
    world: World,
) -> None:
    class Odd(Desk):
        async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
            async with self.http(connection, base_url=connection.config["url"]) as http:
                await http.get("a%00b/%ed%a0%80")
            return SyncResult()

    async with http_server([Reply(503)]) as server:
        config = {"url": server.url}
        attempt = await run_one(world, Odd(), config=config, http={"allow_private": ["desk"]})

    assert attempt.call_count == 1
    assert "\0" not in attempt.calls[0]["url"]


async def test_a_stream_that_fails_says_what_it_had_stored(world: World) -> None:
    attempt = await run_one(world, Stream(), executor={"max_attempts": 1})

    assert attempt.signals == 3
    assert "raise Transient(" in attempt.trace


async def test_a_lapsed_lease_is_an_attempt_that_nobody_saw(world: World) -> None:
    connection = await world.connection()
    job_id = await world.running_job(connection)
    world.clock.advance(world.settings.executor.lease_seconds + 1)
    world.script(SyncResult())
    await world.run_due()

    [attempt] = await world.engine.jobs.attempts(job_id)
    assert attempt.error["class"] == "LeaseLapsed"
    assert (attempt.worker, attempt.milliseconds, attempt.trace) == (None, None, None)


async def test_the_last_ten_attempts_of_each_job_are_kept(world: World) -> None:
    jobs = [await world.job(await world.connection()) for _ in range(2)]
    for _ in range(13):
        world.script(Transient("down"), Transient("down"))
        await world.run_due()
        world.clock.advance(timedelta(hours=1).total_seconds())

    for job_id in jobs:
        kept = await world.engine.jobs.attempts(job_id)
        assert [one.error["attempt"] for one in kept] == [*range(13, 3, -1)]


async def test_attempts_at_one_instant_are_told_apart(world: World) -> None:
    job_id = await world.job(await world.connection())
    for _ in range(12):
        world.script(Transient("down"))
        await world.run_due()
        await world.engine.jobs.retry(job_id)

    kept = await world.engine.jobs.attempts(job_id)
    assert [one.error["attempt"] for one in kept] == [*range(12, 2, -1)]


async def test_attempts_that_came_to_something_or_were_released_leave_nothing(
    world: World,
) -> None:
    await world.job(await world.connection())
    await world.job(await world.connection())
    world.script(SyncResult(), SyncResult(next_cursor=1))
    await world.run_due()

    assert await world.sql("SELECT * FROM {schema}.job_attempts") == []


async def test_attempts_go_with_their_job_and_with_their_connection(world: World) -> None:
    old, other = await world.connection(), await world.connection()
    for connection in (old, other):
        await world.job(connection)
        world.script(Permanent("gone"))
    await world.run_due()
    assert len(await world.sql("SELECT * FROM {schema}.job_attempts")) == 2

    await world.engine.connections.delete(other.id)
    [left] = await world.sql("SELECT connection_id FROM {schema}.job_attempts")
    assert left["connection_id"] == old.id

    world.clock.advance(timedelta(days=60).total_seconds())
    await world.engine.prune()
    assert await world.sql("SELECT * FROM {schema}.sync_jobs") == []
    assert await world.sql("SELECT * FROM {schema}.job_attempts") == []


async def test_a_tenant_sees_its_own_attempts_without_traces(world: World) -> None:
    job_id = await world.job(await world.connection(tenant="acme"))
    world.script(Transient("down"))
    await world.run_due()

    [attempt] = await world.engine.jobs.attempts(job_id, tenant_id="acme")
    assert attempt.error["message"] == "down"
    assert (attempt.worker, attempt.trace) == (None, None)
    with pytest.raises(NotFound):
        await world.engine.jobs.attempts(job_id, tenant_id="globex")
    with pytest.raises(NotFound):
        await world.engine.jobs.attempts(uuid4())


class Busy(Connector):
    """Makes a call and returns a page."""

    provider = "desk"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        async with self.http(connection, base_url=connection.config["url"]) as http:
            await http.get("tickets")
            await http.get("tickets")
        return SyncResult([Signal("ticket", at("10:00"), {})], next_cursor={"at": 7})


async def test_a_run_that_brought_something_says_what(world: World) -> None:
    async with (
        http_server([Reply(), Reply()]) as server,
        world.another_engine([Busy()], http={"allow_private": ["desk"]}) as own,
    ):
        connection = await own.engine.connections.create(
            tenant_id="acme",
            provider_slug="desk",
            external_id="1",
            config={"url": server.url},
        )
        await own.engine.connections.set_cursor(connection.id, {"at": 3})
        job = await own.engine.trigger(connection.id)
        await own.engine.run_due()
        job = await own.engine.jobs.get(job.id)

    brought = job.brought
    assert brought is not None
    assert brought.milliseconds >= 0
    assert (brought.calls, brought.signals) == (2, 1)
    assert (brought.cursor_before, brought.cursor_after) == ({"at": 3}, {"at": 7})


@pytest.mark.parametrize("is_held", [False, True])
async def test_it_says_so_however_it_is_settled(world: World, is_held: bool) -> None:
    """A run with a rerun requested takes the full settle."""
    connection = await world.connection(sync={"cursor": 1})
    await world.job(connection)
    async with world.during_run(SyncResult(next_cursor=2)):
        if is_held:
            await world.engine.trigger(connection.id)
    [job] = await world.jobs(connection, status="succeeded")

    assert job.brought is not None
    assert (job.brought.cursor_before, job.brought.cursor_after) == (1, 2)


async def test_a_long_cursor_is_kept_as_a_digest(world: World) -> None:
    connection = await world.connection(sync={"cursor": "x" * 3000})
    await world.job(connection)
    world.script(SyncResult(next_cursor="é" * 1500))
    await world.run_due()
    [job] = await world.jobs(connection)

    assert job.brought is not None
    assert job.brought.cursor_before["bytes"] == 3002
    assert len(job.brought.cursor_before["sha256"]) == 64
    assert job.brought.cursor_after["bytes"] == 2 * 1500 + 2


async def test_a_full_sync_starts_from_no_cursor(world: World) -> None:
    connection = await world.connection(sync={"cursor": 1})
    await world.job(connection, job_type="full")
    world.script(SyncResult(next_cursor=2))
    await world.run_due()
    [job] = await world.jobs(connection)

    assert job.brought is not None
    assert (job.brought.cursor_before, job.brought.cursor_after) == (None, 2)


async def test_signals_without_a_cursor_leave_it_where_it_was(world: World) -> None:
    connection = await world.connection(sync={"cursor": 1})
    await world.job(connection)
    world.script(SyncResult([Signal("seen", at("10:00"), {})]))
    await world.run_due()
    [job] = await world.jobs(connection)

    assert job.brought is not None
    assert job.brought.signals == 1
    assert (job.brought.cursor_before, job.brought.cursor_after) == (1, 1)


class Pages(Connector):
    provider = "pages"

    async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        for number in range(connection.config["pages"]):
            found = [Signal("seen", at("10:00"), {}, dedupe_key=f"{number}-{n}") for n in range(2)]
            yield SyncResult(found, next_cursor=number)
        if not connection.config["pages"]:
            yield SyncResult()


@pytest.mark.parametrize("pages", [3, 0])
async def test_a_stream_says_what_all_of_its_pages_brought(world: World, pages: int) -> None:
    async with world.another_engine([Pages()]) as own:
        connection = await own.engine.connections.create(
            tenant_id="acme", provider_slug="pages", external_id="1", config={"pages": pages}
        )
        job = await own.engine.trigger(connection.id)
        await own.engine.run_due()
        brought = (await own.engine.jobs.get(job.id)).brought

    if not pages:
        assert brought is None
        return
    assert brought is not None
    assert brought.signals == 6
    assert (brought.cursor_before, brought.cursor_after) == (None, 2)


async def test_an_empty_run_writes_nothing_more_than_before(world: World) -> None:
    connection = await world.connection(last_finished="09:00")
    await world.job(connection)
    world.script(SyncResult())
    await world.run_due()
    [_, job] = await world.jobs(connection)

    assert job.brought is None
    assert "brought =" not in CLOSE_EMPTY
