"""A tenant that asks for more than its share yields to those within theirs (P8)."""

from datetime import timedelta
from typing import Any

import pytest

from support.world import World, at
from syncline import Connection, SyncResult
from syncline.testing import ScriptedConnector

EARLIER = at("12:00") - timedelta(minutes=10)


async def add(world: World, tenant: str, count: int, **columns: object) -> None:
    for number in range(count):
        due = EARLIER + timedelta(seconds=number)
        connection = await world.connection(tenant=tenant)
        await world.job(connection, **{"scheduled_at": due, **columns})


async def order(world: World, **settings: object) -> list[str]:
    """Run everything with two slots, and return whose jobs ran, in order."""
    tenants: list[str] = []
    connector = ScriptedConnector("github")
    total = await world.sql("SELECT count(*) FROM {schema}.sync_jobs WHERE status = 'queued'")

    def note(connection: Connection, cursor: object) -> SyncResult:
        tenants.append(connection.tenant_id)
        return SyncResult()

    connector.script.extend([note] * total[0]["count"])
    async with world.another_engine([connector], executor={"concurrency": 2}, **settings) as engine:
        await engine.engine.run_due()
    assert len(tenants) == total[0]["count"], "no slot stays empty while anything is due"
    return tenants


async def test_a_flood_yields_to_those_within_their_share(world: World) -> None:
    await add(world, "flood", 60)
    for number in range(3):
        await add(world, f"small {number}", 1, scheduled_at=at("12:00"))

    ran = await order(world)

    assert max(ran.index(f"small {number}") for number in range(3)) < 12


async def test_it_is_noted_who_floods_since_when_and_beside_whom(world: World) -> None:
    await add(world, "flood", 60)
    for number in range(3):
        await add(world, f"small {number}", 1, scheduled_at=at("12:00"))

    await order(world)

    [flood] = (await world.engine.stats.providers()).floods
    assert (flood.tenant_id, flood.since, flood.others) == ("flood", world.clock(), 3)
    assert 40 < flood.due <= 60


async def test_several_floods_yield_as_one_does(world: World) -> None:
    for number in range(5):
        await add(world, f"flood {number}", 30)
    await add(world, "small", 1, scheduled_at=at("12:00"))

    assert (await order(world)).index("small") < 12


async def test_a_flood_of_higher_priority_yields_as_well(world: World) -> None:
    await add(world, "flood", 60, priority=10)
    await add(world, "small", 1, scheduled_at=at("12:00"))

    assert (await order(world)).index("small") < 12


async def test_a_flood_of_ended_backoffs_yields(world: World) -> None:
    await add(world, "flood", 60, attempts=1, retry_after=EARLIER)
    await add(world, "flood", 10)
    await add(world, "small", 1, scheduled_at=at("12:00"))

    assert (await order(world)).index("small") < 12


async def test_the_order_within_a_tenant_stays_as_it_is(world: World) -> None:
    await add(world, "flood", 40)
    await add(world, "small", 3, scheduled_at=at("12:00"))
    urgent = await world.job(
        await world.connection(tenant="flood"), scheduled_at=at("12:00"), priority=5
    )
    started = await ran_in_order(world)

    flood = [row for row in started if row["tenant_id"] == "flood"]
    assert flood[0]["id"] == urgent
    assert [row["scheduled_at"] for row in flood[1:]] == sorted(
        row["scheduled_at"] for row in flood[1:]
    )


async def ran_in_order(world: World) -> list[Any]:
    """Run everything with one slot; return the jobs in the order of their runs."""
    ids: list[object] = []
    connector = ScriptedConnector("github")
    count = (await world.sql("SELECT count(*) FROM {schema}.sync_jobs"))[0]["count"]

    def note(connection: Connection, cursor: object) -> SyncResult:
        ids.append(connection.id)
        return SyncResult()

    connector.script.extend([note] * count)
    async with world.another_engine([connector], executor={"concurrency": 1}) as engine:
        await engine.engine.run_due()
    jobs = {
        row["connection_id"]: row for row in await world.sql("SELECT * FROM {schema}.sync_jobs")
    }
    return [jobs[id_] for id_ in ids]


async def test_a_flood_does_not_starve(world: World) -> None:
    await add(world, "flood", 30)
    for number in range(15):
        await add(world, f"small {number}", 2, scheduled_at=at("12:00"))

    ran = await order(world)
    last = max(place for place, tenant in enumerate(ran) if tenant != "flood")

    assert 1 <= ran[4:last].count("flood") <= 5


async def test_weights_divide_what_floods_get(world: World) -> None:
    await world.engine.shares.set_weight("heavy", 3)
    await add(world, "light", 60)
    await add(world, "heavy", 60)

    ran = await order(world)

    assert 25 <= ran[4:44].count("heavy") <= 34


async def test_nobody_yields_if_all_ask_for_as_much(world: World) -> None:
    for number in range(4):
        await add(world, f"tenant {number}", 20)

    await order(world)

    assert not await world.sql("SELECT FROM {schema}.tenant_shares")


async def test_nothing_changes_with_fairness_off(world: World) -> None:
    await add(world, "flood", 40)
    await add(world, "small", 1, scheduled_at=at("12:00"))

    assert (await order(world, fairness={"enabled": False}))[-1] == "small"


async def test_a_tenant_that_yields_and_has_a_cap_keeps_to_both(world: World) -> None:
    await world.engine.shares.set_cap(1, tenant_id="flood")
    await add(world, "flood", 40)
    await add(world, "small", 1, scheduled_at=at("12:00"))

    assert (await order(world)).index("small") < 4


@pytest.mark.parametrize("tenant", ["a'b\"c", "{a,b}", "NULL", "ü" * 255])
async def test_a_flood_of_a_tenant_with_an_odd_name_yields(world: World, tenant: str) -> None:
    await add(world, tenant, 40)
    await add(world, "small", 1, scheduled_at=at("12:00"))

    assert (await order(world)).index("small") < 12


@pytest.mark.parametrize("setting", ["portable", "pgbouncer"])
async def test_shares_and_caps_hold_on_any_server(world: World, setting: str) -> None:
    await world.engine.shares.set_cap(1, tenant_id="capped")
    await add(world, "flood", 40)
    await add(world, "capped", 5)
    await add(world, "small", 1, scheduled_at=at("12:00"))

    assert (await order(world, **{setting: True})).index("small") < 14


async def test_a_connection_that_is_paused_keeps_nobody_waiting(world: World) -> None:
    """Its jobs are cancelled, whatever a process knows of them."""
    await add(world, "flood", 30)
    await add(world, "small", 1, scheduled_at=at("12:00"))
    await world.sql("UPDATE {schema}.connections SET status = 'paused' WHERE tenant_id = 'flood'")
    connector = ScriptedConnector("github")
    connector.script.append(SyncResult())
    async with world.another_engine([connector], executor={"concurrency": 2}) as engine:
        await engine.engine.run_due()

    statuses = await world.sql("SELECT DISTINCT tenant_id, status FROM {schema}.sync_jobs")
    assert {tuple(row) for row in statuses} == {("flood", "cancelled"), ("small", "succeeded")}
