"""A tenant's switch: nothing of it starts, nothing piles up, and nothing is lost."""

import pytest

from support.world import World, at
from syncline import SyncResult
from syncline.errors import Invalid
from syncline.policy.evidence import Reason

RESUMED_AT = "13:00"


async def pause(world: World, tenant: str = "acme") -> None:
    await world.engine.connections.pause(tenant_id=tenant, reason="until they have paid")


async def test_no_job_of_a_paused_tenant_starts_and_all_others_do(world: World) -> None:
    paused = [await world.job(await world.connection(tenant="acme")) for _ in range(30)]
    others = [await world.job(await world.connection(tenant="birch")) for _ in range(3)]
    await pause(world)
    world.script(*[SyncResult()] * 3)

    assert await world.run_due() == 3

    assert {(await world.get_job(job)).status for job in others} == {"succeeded"}
    assert {(await world.get_job(job)).status for job in paused} == {"queued"}


async def test_resumed_it_runs_what_waited(world: World) -> None:
    job = await world.job(await world.connection())
    await pause(world)
    await world.run_due()
    await world.engine.connections.resume(tenant_id="acme")
    world.script(SyncResult())

    assert await world.run_due() == 1
    assert (await world.get_job(job)).status == "succeeded"


async def test_the_tick_queues_nothing_and_the_first_one_after_the_pause_queues_one_run_each(
    world: World,
) -> None:
    """S3: however long the pause, one job, in the latest slot."""
    connections = [await world.connection(last_finished="12:00") for _ in range(3)]
    other = await world.connection(tenant="birch", last_finished="12:00")
    await pause(world)

    for time in ("12:15", "12:30", "12:45"):
        await world.tick(time)
    assert [await world.jobs(one, status="queued") for one in connections] == [[], [], []]
    assert await world.pending(other)
    assert await world.engine.verify() == []
    await world.engine.connections.resume(tenant_id="acme")
    await world.tick("13:01", jitter_seconds=0)

    for connection in connections:
        assert (await world.pending(connection)).scheduled_at == at(RESUMED_AT)


async def test_a_connection_with_a_new_interval_waits_too(world: World) -> None:
    connection = await world.connection(last_finished="12:00")
    await pause(world)
    await world.engine.connections.set_interval(connection.id, 60)

    await world.tick("12:10")

    assert await world.jobs(connection, status="queued") == []
    await world.engine.connections.resume(tenant_id="acme")
    await world.tick("12:11")
    assert await world.pending(connection)


async def test_a_connection_added_later_is_under_the_switch(world: World) -> None:
    await pause(world)
    connection = await world.connection(last_finished="12:00")

    await world.tick("12:15")

    assert await world.jobs(connection, status="queued") == []


async def test_connections_keep_their_statuses_and_reasons(world: World) -> None:
    connection = await world.connection(status="needs_reauth")
    await world.sql('UPDATE {schema}.connections SET status_reason = \'{"why": "401"}\'')
    before = await world.engine.connections.get(connection.id)

    await pause(world)
    await world.engine.connections.resume(tenant_id="acme")

    assert await world.engine.connections.get(connection.id) == before


async def test_it_is_shown_since_when_and_why(world: World) -> None:
    connection = await world.connection(last_finished="12:00")
    await pause(world)
    world.clock.set(at("12:10"))
    await pause(world)

    [one] = await world.engine.gates.paused_tenants()
    [limits] = await world.engine.shares.tenants()
    explanation = await world.engine.explain(connection.id)

    assert (one.paused_at, one.paused_because) == (at("12:00"), "until they have paid")
    assert limits.as_json()["paused_at"] == at("12:00")
    assert explanation.reason is Reason.TENANT_PAUSED


async def test_both_switches_leave_one_record_each(world: World) -> None:
    await pause(world)
    await pause(world)
    await world.engine.connections.resume(tenant_id="acme")
    await world.engine.connections.resume(tenant_id="acme")

    rows = await world.sql("SELECT action, tenant_id FROM {schema}.audit ORDER BY id")
    assert [tuple(row) for row in rows] == [("tenants.pause", "acme"), ("tenants.resume", "acme")]


async def test_a_provider_has_the_same_switch_as_its_gate(world: World) -> None:
    await world.engine.connections.pause(provider_slug="github", reason="maintenance")
    [gate] = await world.engine.gates.list()
    await world.engine.connections.resume(provider_slug="github")

    assert gate.paused_because == "maintenance"
    assert await world.engine.gates.list() == []


async def test_a_large_backlog_begins_slowly(world: World) -> None:
    """P7: as after any other absence."""
    for _ in range(30):
        await world.job(await world.connection())
    await world.sql(
        "INSERT INTO {schema}.provider_starts (provider_slug, minute, starts)"
        " SELECT 'github', $1::timestamptz - make_interval(mins => n), 6"
        " FROM generate_series(1, 50) AS n",
        at("12:00"),
    )
    await pause(world)

    await world.engine.connections.resume(tenant_id="acme")

    [gate] = await world.engine.gates.list()
    assert gate.ramp_from == at("12:00")


@pytest.mark.parametrize(
    "whose", [{}, {"tenant_id": "acme", "provider_slug": "github"}, {"tenant_id": ""}]
)
async def test_a_switch_without_one_clear_name_is_refused(
    world: World, whose: dict[str, str]
) -> None:
    with pytest.raises(Invalid, match="tenant_id"):
        await world.engine.connections.pause(**whose)


async def test_a_deleted_tenant_has_no_pause_left(world: World) -> None:
    await pause(world)

    await world.engine.tenants.delete("acme")

    assert await world.engine.gates.paused_tenants() == []
