"""E1, E2 and E3 of the specification: what is claimed, in which order, from which cursor."""

import asyncio
import json
from itertools import pairwise
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from support.fakes import HeldRun, eventually
from support.telemetry_events import Spans
from support.world import World, at
from syncline import Connection, SyncResult
from syncline.store.pool import Transaction
from syncline.store.queue import claims

PRESENT = [{}, 0, "", [], False, {"page": 1}]


async def test_job_is_due_when_both_times_have_come(world: World) -> None:
    """E1: due when `scheduled_at ≤ now` and `retry_after` is null or past."""
    due: list[dict[str, Any]] = [{"scheduled_at": at("12:00")}, {"retry_after": at("12:00")}]
    later: list[dict[str, Any]] = [
        {"scheduled_at": at("12:00:01")},
        {"retry_after": at("12:00:01")},
        {"scheduled_at": at("12:00:01"), "retry_after": at("11:00")},
    ]
    due_ids = [await world.job(await world.connection(), **columns) for columns in due]
    later_ids = [await world.job(await world.connection(), **columns) for columns in later]
    world.script(*[SyncResult()] * len(due))

    assert await world.run_due("12:00") == len(due)

    assert {(await world.get_job(id_)).status for id_ in due_ids} == {"succeeded"}
    assert {(await world.get_job(id_)).status for id_ in later_ids} == {"queued"}


async def test_claims_go_by_priority_time_and_id(world: World) -> None:
    """E1: `priority DESC, scheduled_at ASC, id`, also between fresh jobs and retried ones."""
    jobs: list[dict[str, Any]] = [
        {"priority": 10, "scheduled_at": at("11:00"), "retry_after": at("11:59")},
        {"priority": 10, "scheduled_at": at("11:30"), "id": UUID(int=1)},
        {
            "priority": 10,
            "scheduled_at": at("11:30"),
            "id": UUID(int=2),
            "retry_after": at("11:40"),
        },
        {"priority": 10, "scheduled_at": at("11:30"), "id": UUID(int=3)},
        {"priority": 0, "scheduled_at": at("09:00"), "attempts": 9, "retry_after": at("09:30")},
        {"priority": 0, "scheduled_at": at("10:00")},
        {"priority": -3, "scheduled_at": at("08:00")},
    ]
    connections = [await world.connection() for _ in jobs]
    for connection, columns in reversed(list(zip(connections, jobs, strict=True))):
        await world.job(connection, **columns)
    world.script(*[SyncResult()] * len(jobs))

    await world.run_due("12:00")

    assert [call[0] for call in world.connector.calls] == [one.id for one in connections]


@pytest.mark.engine(executor={"concurrency": 300})
async def test_large_batch_starts_in_order(world: World) -> None:
    """E1: a claimed batch starts in the order in which it was claimed."""
    await world.sql(
        "INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id)"
        " SELECT 'acme', 'github', n::text FROM generate_series(1, 300) n"
    )
    await world.sql(
        "INSERT INTO {schema}.sync_jobs"
        " (tenant_id, provider_slug, connection_id, priority, scheduled_at)"
        " SELECT tenant_id, provider_slug, id, length(external_id), '2025-01-01 11:00+00'"
        " FROM {schema}.connections"
    )
    order = "SELECT connection_id FROM {schema}.sync_jobs ORDER BY priority DESC, scheduled_at, id"
    expected = [row["connection_id"] for row in await world.sql(order)]
    world.script(*[SyncResult()] * 300)

    assert await world.run_due("12:00") == 300

    assert [connection_id for connection_id, _ in world.connector.calls] == expected


@pytest.mark.engine(executor={"concurrency": 2})
async def test_worker_claims_no_more_than_it_has_free_slots(world: World) -> None:
    """E1: what has no slot stays queued, for whoever has one."""
    runs = await held_runs(world, 2)
    for _ in range(5):
        await world.job(await world.connection())

    running = asyncio.create_task(world.run_due())
    await asyncio.gather(*(run.started.wait() for run in runs))

    assert await count_by_status(world) == {"running": 2, "queued": 3}
    world.script(*[SyncResult()] * 3)
    for run in runs:
        run.let_go.set()
    assert await running == 5


@pytest.mark.engine(executor={"concurrency": 2})
async def test_worker_does_not_wait_for_a_whole_batch(world: World) -> None:
    """E1: a slot that is free is filled, however long the one beside it runs."""
    [slow] = await held_runs(world, 1)
    world.script(*[SyncResult()] * 4)
    slow_job = await world.job(await world.connection(), priority=1)
    quick = [await world.job(await world.connection()) for _ in range(4)]

    running = asyncio.create_task(world.run_due())

    async def quick_ones_have_ended() -> bool:
        return await count_by_status(world) == {"running": 1, "succeeded": 4}

    await eventually(quick_ones_have_ended)
    assert (await world.get_job(slow_job)).status == "running"
    assert {(await world.get_job(job_id)).status for job_id in quick} == {"succeeded"}
    slow.let_go.set()
    assert await running == 5


async def test_no_job_is_claimed_twice(world: World) -> None:
    """E1: claims are atomic over any number of processes."""
    connections = [await world.connection() for _ in range(40)]
    for connection in connections:
        await world.job(connection)
    world.script(*[SyncResult()] * 40)

    async with (
        world.another_engine(executor={"concurrency": 3}) as second,
        world.another_engine(executor={"concurrency": 7}) as third,
    ):
        ran = await asyncio.gather(world.run_due(), second.run_due(), third.run_due())

    assert sum(ran) == 40
    assert {call[0] for call in world.connector.calls} == {one.id for one in connections}


async def test_claim_skips_whatever_is_locked(world: World) -> None:
    """S8, E1: a claim never waits for a lock."""
    locked, free = await world.job(await world.connection()), await world.connection()
    await world.job(free)
    world.script(SyncResult(), SyncResult())

    async with world.session() as person, person.transaction():
        await world.sql(
            "SELECT FROM {schema}.sync_jobs WHERE id = $1 FOR UPDATE", locked, session=person
        )
        assert await world.run_due() == 1
    assert await world.run_due() == 1


async def test_types_of_a_connection_run_one_after_another(world: World) -> None:
    """E2: also when both are claimed by one worker with room for both."""
    connection = await world.connection()
    for priority, job_type in enumerate(("webhook", "full", "incremental")):
        await world.job(connection, job_type=job_type, priority=priority)
    most_at_once = 0

    async def count(_: Connection, __: Any) -> SyncResult:
        nonlocal most_at_once
        most_at_once = max(most_at_once, (await count_by_status(world)).get("running", 0))
        return SyncResult()

    world.connector.script.extend([count] * 3)

    assert await world.run_due() == 3
    assert most_at_once == 1


async def test_single_flight_is_a_constraint_of_the_database(world: World) -> None:
    """E2: the database itself refuses a second running job of a connection."""
    connection = await world.connection()
    await world.running_job(connection)

    with pytest.raises(asyncpg.UniqueViolationError):
        await world.running_job(connection, job_type="full")
    await world.running_job(connection, job_type="webhook", flight="webhook")


@pytest.mark.engine(executor={"single_flight": "job_type"})
async def test_types_run_side_by_side_in_one_worker(world: World) -> None:
    """E2: `single_flight = "job_type"` lets different types run at once."""
    connection = await world.connection()
    runs = await held_runs(world, 2)
    await world.job(connection)
    await world.job(connection, job_type="full")

    running = asyncio.create_task(world.run_due())
    await asyncio.gather(*(run.started.wait() for run in runs))

    for run in runs:
        run.let_go.set()
    assert await running == 2


@pytest.mark.parametrize("job_type", ["incremental", "webhook"])
async def test_cursor_of_the_job_comes_first(world: World, job_type: str) -> None:
    """E3: the job's cursor, else the stored one; `{}`, `0`, `""` and `[]` are present."""
    expected = {}
    for cursor in PRESENT:
        connection = await world.connection(sync={"cursor": "stored"})
        await world.job(connection, job_type=job_type, cursor=json.dumps(cursor))
        expected[connection.id] = cursor

    world.script(*[SyncResult()] * len(expected))
    await world.run_due()

    assert dict(world.connector.calls) == expected


@pytest.mark.parametrize("job_type", ["incremental", "webhook"])
async def test_stored_cursor_comes_second(world: World, job_type: str) -> None:
    """E3: SQL NULL and JSON `null` on the job are absent; then the stored cursor counts."""
    expected = {}
    for absent in (None, "null"):
        for stored in (*PRESENT, None):
            connection = await world.connection(sync={"cursor": stored})
            await world.job(connection, job_type=job_type, cursor=absent)
            expected[connection.id] = stored

    world.script(*[SyncResult()] * len(expected))
    await world.run_due()

    assert dict(world.connector.calls) == expected


async def test_full_job_starts_from_its_own_cursor_or_none(world: World) -> None:
    """E3: a full job never starts from the stored cursor; its page overwrites that."""
    expected = {}
    for own, given in [(None, None), ("null", None), ("0", 0)]:
        connection = await world.connection(sync={"cursor": "stored"})
        await world.job(connection, job_type="full", cursor=own)
        expected[connection.id] = given

    world.script(*[SyncResult(next_cursor="restarted")] * len(expected))
    await world.run_due()

    assert dict(world.connector.calls) == expected
    stored = await world.engine.connections.list()
    assert {one.metadata["sync"]["cursor"] for one in stored} == {"restarted"}


async def held_runs(world: World, count: int) -> list[HeldRun]:
    runs = [HeldRun(SyncResult()) for _ in range(count)]
    world.script(*runs)
    return runs


async def count_by_status(world: World) -> dict[str, int]:
    rows = await world.sql("SELECT status, count(*) FROM {schema}.sync_jobs GROUP BY status")
    return {row["status"]: row["count"] for row in rows}


@pytest.mark.engine(executor={"concurrency": 400})
async def test_claims_that_follow_one_another_at_once_take_each_job_once(world: World) -> None:
    """E1: a claim is sent before the jobs of the last one begin; each runs once, none is left."""
    many = 450  # more than there are slots, in nine claims
    await add_jobs_of_new_connections(world, many)
    await run_until_succeeded(world, many)

    assert len(world.connector.calls) == many == len({call[0] for call in world.connector.calls})


async def test_a_full_claim_is_followed_before_its_jobs_begin(world: World) -> None:
    """E1: the database looks for the next jobs while this process starts the last ones."""
    await add_jobs_of_new_connections(world, 450)
    spans = Spans()
    with spans.installed():
        async with world.another_engine(executor={"concurrency": 400}) as worker:
            await run_until_succeeded(worker, 450)

    sent = [span for span in spans.all() if span.name == "executor.claim"]
    runs_began = [span.start_time or 0 for span in spans.all() if span.name == "executor.run"]
    assert any(
        not any((one.end_time or 0) <= run <= (following.start_time or 0) for run in runs_began)
        for one, following in pairwise(sent[:9])
    )


@pytest.mark.engine(executor={"concurrency": 400})
async def test_a_full_claim_is_followed_at_once_in_its_session(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E1: the next claim waits for no session. From outside, nobody sees which one it has."""
    sent = []
    claim = claims.claim

    async def noted(tx: Transaction, *providers: Any, **options: Any) -> Any:
        sent.append(tx)
        return await claim(tx, *providers, **options)

    monkeypatch.setattr(claims, "claim", noted)
    await add_jobs_of_new_connections(world, 100)  # two full claims, and one to find no more
    await run_until_succeeded(world, 100)

    first, second, third = sent[:3]
    assert first is second is third


async def add_jobs_of_new_connections(world: World, count: int) -> None:
    await world.sql(
        "WITH added AS (INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id)"
        " SELECT 'acme', 'github', n::text FROM generate_series(1, $1::int) n RETURNING id)"
        " INSERT INTO {schema}.sync_jobs (tenant_id, provider_slug, connection_id, scheduled_at)"
        " SELECT 'acme', 'github', id, '2025-01-01 11:00Z' FROM added",
        count,
    )


async def run_until_succeeded(world: World, count: int) -> None:
    world.script(*[SyncResult()] * count)
    running = asyncio.create_task(world.engine.run(handle_signals=False, scheduler=False))

    async def all_have_ended() -> bool:
        return await count_by_status(world) == {"succeeded": count}

    await eventually(all_have_ended)
    world.engine.stop()
    assert await running
