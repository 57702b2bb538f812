"""Actions on everything that a filter matches: in batches, once, and past a killed process."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from support.world import World, at
from syncline import Connection, Engine
from syncline.engine.upkeep import bulk as runner
from syncline.errors import Conflict, Invalid, NotFound
from syncline.model import ConnectionFilter, JobFilter
from syncline.policy.bulk import BulkAction, BulkState
from syncline.services.bulk import BulkRequest

ALL = ConnectionFilter()


async def act(
    world: World, action: str, wanted: Any, *, by: Engine | None = None, **more: Any
) -> BulkAction:
    """Preview, begin and carry out an action."""
    engine = by or world.engine
    request = BulkRequest(action, wanted, **more)
    preview = await engine.bulk.preview(request)
    begun = await engine.bulk.start(request, expected=preview.count)
    return await engine.bulk.run(begun.id)


async def add(world: World, count: int, **columns: Any) -> list[Connection]:
    return [await world.connection(**columns) for _ in range(count)]


async def fill(world: World, count: int, *, tenant: str = "acme") -> None:
    """Add many connections at once."""
    await world.sql(
        "INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id, created_at)"
        " SELECT $1, 'github', 'n-' || n, $3 FROM generate_series(1, $2::int) AS n",
        *(tenant, count, at("00:00")),
    )


async def statuses(world: World) -> dict[str, int]:
    rows = await world.sql(
        "SELECT status, count(*)::int AS count FROM {schema}.connections GROUP BY status"
    )
    return {row["status"]: row["count"] for row in rows}


async def test_everything_that_matches_is_paused_and_nothing_else(world: World) -> None:
    mine = await add(world, 3)
    other = await world.connection(tenant="birch")
    queued = await world.job(mine[0])

    ended = await act(world, "pause", ConnectionFilter(tenant_id="acme"), reason="unpaid")

    assert (ended.state, ended.done, ended.refused) == (BulkState.DONE, 3, 0)
    for connection in mine:
        found = await world.engine.connections.get(connection.id)
        assert (found.status, found.status_reason["why"]) == ("paused", "unpaid")
    assert (await world.get_job(queued)).status == "cancelled"
    assert (await world.engine.connections.get(other.id)).status == "active"


async def test_a_preview_counts_shows_and_changes_nothing(world: World) -> None:
    await add(world, 12)

    preview = await world.engine.bulk.preview(BulkRequest("pause", ALL))

    assert (preview.count, preview.is_exact, len(preview.first)) == (12, True, 10)
    assert await statuses(world) == {"active": 12}


@pytest.mark.parametrize("trouble", ["needs_reauth", "error"])
async def test_a_pause_keeps_a_trouble_and_its_reason(world: World, trouble: str) -> None:
    connection = await world.connection(status=trouble)
    reason = {"why": "401 from the provider", "since": "2025-01-01T11:00:00Z"}
    await world.sql(
        "UPDATE {schema}.connections SET status_reason = "
        """'{"why": "401 from the provider", "since": "2025-01-01T11:00:00Z"}'"""
    )

    await act(world, "pause", ALL)
    assert (await world.engine.connections.get(connection.id)).status == "paused"
    await act(world, "resume", ALL)

    found = await world.engine.connections.get(connection.id)
    assert (found.status, found.status_reason) == (trouble, reason)


async def test_revoked_and_paused_ones_are_refused_by_name(world: World) -> None:
    await add(world, 25, status="revoked")
    [paused] = await add(world, 1, status="paused")
    await add(world, 2)

    ended = await act(world, "pause", ALL)

    assert ended.done == 2
    assert ended.refusals == {"is revoked": 25, "is paused already": 1}
    assert len(ended.refused_first) == 20
    assert await statuses(world) == {"revoked": 25, "paused": 3}
    assert (await world.engine.connections.get(paused.id)).status_reason is None


async def test_a_sync_queues_one_run_each_at_the_usual_priority(world: World) -> None:
    connections = await add(world, 3)
    await world.job(connections[0], scheduled_at=at("15:00"))
    running = await world.running_job(connections[1])
    await add(world, 1, status="paused")

    ended = await act(world, "sync", ALL)

    assert (ended.done, ended.refusals) == (3, {"is paused, not active": 1})
    assert (await world.pending(connections[0])).scheduled_at == at("12:00")
    assert (await world.pending(connections[2])).priority == 0
    [row] = await world.sql("SELECT again_priority FROM {schema}.sync_jobs WHERE id = $1", running)
    assert row["again_priority"] == 0


async def test_an_interval_is_set_and_removed(world: World) -> None:
    connection = await world.connection(sync={"cursor": 7})

    await act(world, "set_interval", ALL, interval_seconds=300)
    assert await world.sync_metadata(connection) == {"cursor": 7, "interval_seconds": 300}
    await act(world, "set_interval", ALL)

    assert await world.sync_metadata(connection) == {"cursor": 7}
    with pytest.raises(Invalid, match="interval_seconds"):
        await act(world, "set_interval", ALL, interval_seconds=5)


async def failed(world: World, connection: Connection, time: str, **columns: Any) -> Any:
    return await world.job(
        connection, status="failed", finished_at=at(time), scheduled_at=at(time), **columns
    )


async def test_only_the_last_failure_of_a_connection_is_retried(world: World) -> None:
    connection, other = await add(world, 2)
    for time in ("10:00", "11:00"):
        await failed(world, connection, time, cursor=f'{{"page": "{time}"}}')
    await failed(world, other, "10:00")
    await world.job(other, status="succeeded", finished_at=at("11:00"))
    paused = await world.connection(status="paused")
    await failed(world, paused, "10:00")

    ended = await act(world, "retry", JobFilter(provider_slug="github", status="failed"))

    assert ended.done == 1
    assert ended.refusals == {
        "a later job of its connection follows it": 2,
        "its connection is paused, not active": 1,
    }
    assert (await world.pending(connection)).cursor == {"page": "11:00"}
    assert await world.jobs(other, status="queued") == []


async def test_jobs_in_backoff_become_due(world: World) -> None:
    waiting = await world.job(await world.connection(), retry_after=at("13:00"), attempts=3)
    later = await world.job(await world.connection(), scheduled_at=at("14:00"))

    ended = await act(world, "retry", JobFilter(status="backoff"))

    assert (ended.expected, ended.done) == (1, 1)
    assert (await world.get_job(waiting)).retry_after is None
    assert (await world.get_job(later)).scheduled_at == at("14:00")


async def test_queued_and_running_jobs_are_cancelled(world: World) -> None:
    connection = await world.connection()
    queued = await world.job(connection)
    running = await world.running_job(await world.connection())

    assert (await act(world, "cancel", JobFilter(status="queued"))).done == 1
    assert (await act(world, "cancel", JobFilter(status="running"))).done == 1

    assert (await world.get_job(queued)).status == "cancelled"
    assert (await world.get_job(running)).status == "cancelled"
    assert await world.engine.verify() == []


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        ("retry", JobFilter()),
        ("retry", JobFilter(status="succeeded")),
        ("cancel", JobFilter(status="failed")),
        ("pause", JobFilter(status="failed")),
        ("retry", ConnectionFilter()),
        ("delete", ConnectionFilter()),
    ],
)
async def test_what_makes_no_sense_is_refused(world: World, action: str, wanted: Any) -> None:
    with pytest.raises(Invalid):
        await world.engine.bulk.preview(BulkRequest(action, wanted))


async def test_a_killed_process_loses_nothing_and_repeats_nothing(world: World) -> None:
    """Another process goes on behind the last batch that was committed, once the lease ended."""
    await fill(world, 3 * runner.BATCH_SIZE)
    begun = await world.engine.bulk.start(BulkRequest("sync", ALL), expected=1500)
    died = world.engine._upkeep.bulk

    def die(_rows: int) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await died.run(begun.id, die)
    async with world.another_engine() as second:
        assert not await second.engine._upkeep.bulk.run(), "its lease goes on"
        world.clock.advance(seconds=31)
        halfway = await world.engine.bulk.get(begun.id)
        ended = await second.engine.bulk.run(begun.id)

    assert (halfway.state, halfway.done) == (BulkState.RUNNING, runner.BATCH_SIZE)
    assert (ended.state, ended.done) == (BulkState.DONE, 1500)
    [row] = await world.sql("SELECT count(*)::int AS jobs FROM {schema}.sync_jobs")
    assert row["jobs"] == 1500


async def test_what_comes_after_the_start_is_left_alone(world: World) -> None:
    await add(world, 2)
    begun = await world.engine.bulk.start(BulkRequest("pause", ALL), expected=2)
    world.clock.advance(seconds=1)
    late = await world.engine.connections.create(
        tenant_id="acme", provider_slug="github", external_id="late"
    )

    ended = await world.engine.bulk.run(begun.id)

    assert ended.done == 2
    assert (await world.engine.connections.get(late.id)).status == "active"


async def test_one_that_changed_before_its_batch_is_refused(world: World) -> None:
    """The batch decides under the lock, by what is there then."""
    await add(world, 2, status="error")
    wanted = ConnectionFilter(status="error")
    begun = await world.engine.bulk.start(BulkRequest("resume", wanted), expected=2)
    await world.sql("UPDATE {schema}.connections SET status = 'revoked'")

    ended = await world.engine.bulk.run(begun.id)

    assert (ended.done, await statuses(world)) == (0, {"revoked": 2})


async def test_a_row_that_somebody_holds_is_refused_and_the_others_are_changed(
    world: World,
) -> None:
    held, _ = await add(world, 2)
    async with world.session() as session, session.transaction():
        lock = "SELECT FROM {schema}.connections WHERE id = $1 FOR UPDATE"
        await world.sql(lock, held.id, session=session)
        ended = await act(world, "pause", ALL)

    assert (ended.done, ended.refusals) == (1, {"is held by another transaction": 1})


async def test_a_count_that_no_longer_holds_is_refused(world: World) -> None:
    await add(world, 20)

    with pytest.raises(Conflict, match="matches 20 now, not 3"):
        await world.engine.bulk.start(BulkRequest("pause", ALL), expected=3)

    assert await statuses(world) == {"active": 20}


async def test_a_cancelled_action_goes_no_further(world: World) -> None:
    await fill(world, 2 * runner.BATCH_SIZE)
    begun = await world.engine.bulk.start(BulkRequest("pause", ALL), expected=1000)
    await world.engine.bulk.cancel(begun.id)

    ended = await world.engine.bulk.run(begun.id)

    assert (ended.state, ended.done) == (BulkState.CANCELLED, 0)
    with pytest.raises(Conflict, match="is cancelled already"):
        await world.engine.bulk.cancel(begun.id)
    with pytest.raises(NotFound):
        await world.engine.bulk.cancel(uuid4())


async def test_a_tenants_request_touches_its_own_rows_alone(world: World) -> None:
    mine = await world.connection(tenant="acme")
    foreign = await world.connection(tenant="birch")
    acme = world.engine.for_request("acme")

    begun = await acme.bulk.start(BulkRequest("pause", ALL), expected=1, tenant_id="acme")
    await world.engine.bulk.run(begun.id)

    assert (await world.engine.connections.get(mine.id)).status == "paused"
    assert (await world.engine.connections.get(foreign.id)).status == "active"
    with pytest.raises(NotFound):
        await world.engine.for_request("birch").bulk.get(begun.id, tenant_id="birch")


async def test_it_leaves_one_record_at_its_start_and_one_for_each_batch(world: World) -> None:
    connections = [*await add(world, 2), await world.connection(tenant="birch")]

    await act(world, "pause", ALL, by=world.engine.acting_as("alice"))

    rows = await world.sql("SELECT * FROM {schema}.audit ORDER BY id")
    assert [(row["action"], row["actor"], row["count"]) for row in rows] == [
        ("bulk.start", "alice", 1),
        ("connections.pause", "alice", 2),
        ("connections.pause", "alice", 1),
    ]
    recorded = {id_ for row in rows[1:] for id_ in row["connection_ids"]}
    assert recorded == {connection.id for connection in connections}


async def test_the_loop_carries_out_what_nobody_works_on(world: World) -> None:
    await add(world, 2)
    begun = await world.engine.bulk.start(BulkRequest("pause", ALL), expected=2)

    assert await world.engine._upkeep.bulk.step() == timedelta()
    assert await world.engine._upkeep.bulk.step() == runner.LOOK_EVERY

    assert (await world.engine.bulk.get(begun.id)).done == 2
    assert [one.id for one in await world.engine.bulk.list()] == [begun.id]
