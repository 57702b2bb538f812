"""An explanation from what really stands in the tables."""

import json
from uuid import uuid4

import pytest

from support.world import World, at
from syncline import Transient


async def test_a_connection_that_waits_after_a_failure(world: World) -> None:
    connection = await world.connection(last_finished="11:30")
    await world.tick("12:00", jitter_seconds=0)
    await world.run_one(Transient("503"))

    found = await world.engine.explain(connection.id)

    pending = await world.pending(connection)
    assert found.reason == "backoff"
    assert found.waits_until == pending.retry_after
    assert found.waits_for_job == pending.id
    assert found.evidence["last_finished_at"] == "2025-01-01T11:30:00Z"
    assert found.evidence["last_succeeded_at"] == "2025-01-01T11:30:00Z"
    assert found.evidence["interval_seconds"] == 900
    json.dumps(found.evidence)


async def test_who_paused_it_and_why(world: World) -> None:
    connection = await world.connection()
    await world.engine.connections.pause(connection.id, reason="moving house", by="ann")

    found = await world.engine.explain(connection.id)

    assert found.reason == "paused"
    assert "moving house, by ann, since 2025-01-01T12:00:00Z" in found.summary


async def test_nobody_ticks(world: World) -> None:
    connection = await world.connection()

    assert (await world.engine.explain(connection.id)).reason == "no_scheduler"


async def test_a_due_job_without_a_worker_and_with_one(world: World) -> None:
    connection = await world.connection()
    await world.tick("12:00")

    alone = await world.engine.explain(connection.id)
    await world.sql(
        "INSERT INTO {schema}.workers (id, host, pid, version, roles, providers, slots, busy,"
        " stopping, started_at, beat_at)"
        " VALUES ($1, 'box', 1, '1', '{executor}', '{git}', 1, 0, false, $2, $2)",
        *(uuid4(), at("12:00")),
    )
    unknown = await world.engine.explain(connection.id)

    assert (alone.reason, unknown.reason) == ("no_worker", "provider_unknown")
    assert unknown.evidence["workers"][0]["knows_provider"] is False


async def test_a_foreign_connection_is_not_found(world: World) -> None:
    connection = await world.connection(tenant="acme")

    with pytest.raises(LookupError, match="there is no connection"):
        await world.engine.explain(connection.id, tenant_id="birch")


async def test_a_job_behind_a_cancelled_run_that_may_still_go_on(world: World) -> None:
    connection = await world.connection(last_finished="11:00")
    cancelled = await world.running_job(connection)
    await world.engine.jobs.cancel(cancelled)
    await world.engine.trigger(connection.id)

    found = await world.engine.explain(connection.id)
    world.clock.advance(seconds=30)
    later = await world.engine.explain(connection.id)

    assert (found.reason, found.waits_for_job) == ("stopping", cancelled)
    assert found.waits_until == at("12:00:30")
    assert found.evidence["stopping"][0]["stops_by"] == "2025-01-01T12:00:30Z"
    assert later.reason == "no_worker"
