"""What people see of budgets: the list, `explain`, the command, the settings, the page."""

import json
from datetime import timedelta

import pytest

from support.world import World, at
from syncline import Invalid, Settings, SyncResult
from syncline.errors import SettingsError
from syncline.policy.budgets import Budget, Source, check
from syncline.policy.evidence import Reason
from syncline.store.queue import budgets
from syncline.store.queue.budgets import Taking


async def use_up(world: World, budget: Budget, member: str = "") -> None:
    async with world.engine._pool.transaction() as tx:
        taking = Taking(check(budget), member, needed=budget.capacity)
        await budgets.take(tx, [taking], now=world.clock())


async def test_explain_names_the_budget_and_when_there_is_room(world: World) -> None:
    """P3"""
    connection = await world.connection()
    job = await world.job(connection)
    await world.engine.budgets.set("github", calls=360, per="1h")
    await use_up(world, Budget("github", 360, timedelta(hours=1)))

    found = await world.engine.explain(connection.id)

    assert (found.reason, found.waits_for_job) == (Reason.BUDGET, job)
    assert found.waits_until is not None
    assert at("12:00:09") < found.waits_until < at("12:00:11")
    assert "the budget 'github' (360 calls in 1 h) is used up" in found.summary
    assert "There is room at 2025-01-01 12:00:10Z" in found.summary
    json.dumps(found.evidence)


async def test_explain_names_the_budget_of_a_tenant(world: World) -> None:
    first, other = await world.connection(), await world.connection(tenant="other")
    for connection in (first, other):
        await world.job(connection)
    await world.engine.budgets.set("app:{tenant}", calls=10, providers=("github",))
    budget = Budget("app:{tenant}", 10, timedelta(hours=1), providers=("github",))
    await use_up(world, budget, "acme")

    assert (await world.engine.explain(first.id)).reason == Reason.BUDGET
    assert (await world.engine.explain(other.id)).reason == Reason.NO_WORKER
    seen = await world.engine.for_request("acme").explain(first.id, tenant_id="acme")
    assert seen.reason == Reason.BUDGET


async def test_explain_tells_a_deferral_from_a_backoff(world: World) -> None:
    connection = await world.connection()
    await world.job(
        connection, retry_after=at("12:05"), deferred_until=at("12:05"), attempts=2, error="{}"
    )

    found = await world.engine.explain(connection.id)

    assert (found.reason, found.waits_until) == (Reason.BUDGET, at("12:05"))


async def test_what_the_operator_set_hides_the_others_until_it_is_cleared(world: World) -> None:
    google = {"scope": "google", "calls": 100, "per": "60s"}
    async with world.another_engine(budgets=[google]) as other:
        await other.run_due()
    await world.engine.budgets.set("google", calls=5, per="10s")
    both = await world.engine.budgets.list()
    removed = [await world.engine.budgets.clear("google") for _ in range(3)]

    assert [(one.calls, one.is_in_force) for one in both] == [(5, True), (100, False)]
    assert removed == [[Source.OPERATOR], [Source.SETTINGS], []]


async def test_a_bad_budget_is_refused(world: World) -> None:
    with pytest.raises(Invalid) as refused:
        await world.engine.budgets.set("google", calls=0)

    assert refused.value.field == "calls"
    assert "pause the provider" in refused.value.reason


@pytest.mark.parametrize(
    ("budgets", "shown"),
    [
        ([{"scope": "a", "calls": 0, "per": "1h"}], "calls must be from 1"),
        ([{"scope": "a", "calls": 5, "per": "soon"}], "per must be a time span"),
        ([{"scope": "a", "calls": 5}], "per"),
        ([{"scope": "a", "calls": 5, "per": 1, "rate": 1}], "rate"),
        ([{"scope": "a", "calls": 5, "per": 1}] * 2, "two budgets"),
    ],
)
def test_a_bad_budget_stops_a_start(budgets: list[dict[str, object]], shown: str) -> None:
    with pytest.raises(SettingsError, match="budgets") as refused:
        Settings(budgets=budgets)

    assert shown in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_a_provider_without_a_budget_costs_no_statement_more(world: World) -> None:
    """No row is written, and the claim is the same statement."""
    await world.job(await world.connection())
    world.script(SyncResult())
    await world.run_due()

    assert await world.sql("SELECT * FROM {schema}.budget_buckets") == []
