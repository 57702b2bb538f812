"""Caps: how many jobs of a tenant, a provider, or both run at once (P9)."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from support.world import World, at
from syncline import Connection, Connector, SyncResult

PROVIDERS = ("github", "tickets")


class Crowd:
    """What runs at this moment, and the most that ever ran at once."""

    def __init__(self) -> None:
        self.running: Counter[tuple[str, str]] = Counter()
        self.most: Counter[str] = Counter()
        self.ran: list[str] = []

    def enter(self, tenant: str, provider: str) -> None:
        self.running[tenant, provider] += 1
        self.ran.append(tenant)
        for name, of_tenant, of_provider in (
            ("all", None, None),
            (tenant, tenant, None),
            (provider, None, provider),
            (f"{tenant} at {provider}", tenant, provider),
        ):
            now = sum(
                count
                for (one, other), count in self.running.items()
                if of_tenant in (None, one) and of_provider in (None, other)
            )
            self.most[name] = max(self.most[name], now)

    def leave(self, tenant: str, provider: str) -> None:
        self.running[tenant, provider] -= 1


class Member(Connector):
    def __init__(self, provider: str, crowd: Crowd) -> None:
        self.provider = provider
        self._crowd = crowd

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        whose = connection.tenant_id, connection.provider_slug
        self._crowd.enter(*whose)
        for _ in range(20):  # turns of the event loop, in which others could start
            await asyncio.sleep(0)
        self._crowd.leave(*whose)
        return SyncResult()


async def add(world: World, tenant: str, count: int, provider: str = "github") -> None:
    for _ in range(count):
        await world.job(await world.connection(tenant=tenant, provider=provider))


async def run_all(*worlds: World) -> int:
    return sum(await asyncio.gather(*(world.engine.run_due() for world in worlds)))


async def test_a_tenants_cap_holds_and_everything_runs(world: World) -> None:
    crowd = Crowd()
    async with world.another_engine([Member(slug, crowd) for slug in PROVIDERS]) as engine:
        await engine.engine.shares.set_cap(3, tenant_id="acme")
        await add(world, "acme", 10)
        await add(world, "acme", 10, "tickets")
        await add(world, "other", 10)

        assert await run_all(engine) == 30

    assert crowd.most["acme"] == 3
    assert crowd.most["other"] == 10, "nobody else waits for it"


async def test_a_providers_cap_holds_over_all_tenants(world: World) -> None:
    crowd = Crowd()
    async with world.another_engine([Member(slug, crowd) for slug in PROVIDERS]) as engine:
        await engine.engine.shares.set_cap(4, provider_slug="github")
        for tenant in ("acme", "other", "third"):
            await add(world, tenant, 5)
            await add(world, tenant, 5, "tickets")

        assert await run_all(engine) == 30

    assert crowd.most["github"] == 4
    assert crowd.most["tickets"] > 6


async def test_a_job_may_be_under_three_caps_at_once(world: World) -> None:
    crowd = Crowd()
    async with world.another_engine([Member(slug, crowd) for slug in PROVIDERS]) as engine:
        shares = engine.engine.shares
        await shares.set_cap(5, tenant_id="acme")
        await shares.set_cap(6, provider_slug="github")
        await shares.set_cap(2, tenant_id="acme", provider_slug="github")
        await add(world, "acme", 10)
        await add(world, "acme", 10, "tickets")
        await add(world, "other", 10)

        assert await run_all(engine) == 30

    assert crowd.most["acme at github"] == 2
    assert crowd.most["acme"] == 5
    assert crowd.most["github"] == 6


async def test_several_processes_count_together(world: World) -> None:
    crowd = Crowd()
    async with (
        world.another_engine([Member("github", crowd)]) as first,
        world.another_engine([Member("github", crowd)]) as second,
        world.another_engine([Member("github", crowd)]) as third,
    ):
        await first.engine.shares.set_cap(4, tenant_id="acme")
        await add(world, "acme", 60)

        while any([await run_all(first, second, third)]):
            pass

    assert crowd.most["acme"] <= 4
    assert len(crowd.ran) == 60


async def test_a_running_job_counts_until_it_is_reaped(world: World) -> None:
    """Its worker may be gone, but its connector may still be calling."""
    for _ in range(2):
        await world.running_job(await world.connection())
    await world.engine.shares.set_cap(2, tenant_id="acme")
    job = await world.job(await world.connection())

    assert await world.run_due() == 0
    world.script(*[SyncResult()] * 3)
    assert await world.run_due("12:00:31") == 3
    assert (await world.get_job(job)).status == "succeeded"


async def test_a_cap_below_what_runs_kills_nothing_and_starts_nothing(world: World) -> None:
    connection = await world.connection()
    await world.job(connection)
    async with world.during_run():
        await world.engine.shares.set_cap(0, tenant_id="acme")
        waiting = await world.job(await world.connection())
        assert await world.run_due() == 0
    [ran] = await world.jobs(connection)
    assert ran.status == "succeeded"
    assert await world.run_due() == 0

    await world.engine.shares.set_cap(None, tenant_id="acme")
    world.script(SyncResult())
    assert await world.run_due() == 1
    assert (await world.get_job(waiting)).status == "succeeded"


async def test_a_run_that_was_cancelled_counts_until_it_has_stopped(world: World) -> None:
    job = await world.running_job(await world.connection())
    await world.engine.shares.set_cap(1, tenant_id="acme")
    await world.engine.jobs.cancel(job)
    await world.job(await world.connection())
    world.script(SyncResult())

    assert await world.run_due() == 0
    assert await world.run_due("12:00:31") == 1


async def test_jobs_claimed_without_regard_to_a_cap_count(world: World) -> None:
    """A version that knows no caps claims beside this one, long after the cap was set."""
    await world.engine.shares.set_cap(2, tenant_id="acme")
    world.clock.set(at("13:00"))
    await world.job(await world.connection())
    world.script(SyncResult())
    assert await world.run_due() == 1
    book = world.engine._worker.executor._claimers[
        world.engine._worker.executor.slots[0]
    ]._fair._book
    for _ in range(2):
        await world.running_job(await world.connection())
    book._count_all_at = 0  # five seconds later
    await world.job(await world.connection())

    assert await world.run_due() == 0


async def test_jobs_in_backoff_and_poison_jobs_are_under_the_cap(world: World) -> None:
    await world.engine.shares.set_cap(1, tenant_id="acme")
    await world.running_job(await world.connection())
    ended = at("12:00") - timedelta(minutes=1)
    waited = await world.job(await world.connection(), attempts=1, retry_after=ended)
    poison = await world.job(await world.connection(), attempts=2, lapses=2)
    free = await world.job(await world.connection(tenant="other"), attempts=2, lapses=2)
    world.script(SyncResult())

    assert await world.run_due() == 1
    assert (await world.get_job(free)).status == "succeeded"
    world.script(*[SyncResult()] * 3)
    assert await world.run_due("12:00:31") == 3
    assert {(await world.get_job(job)).status for job in (waited, poison)} == {"succeeded"}


@pytest.mark.parametrize("tenant", ["", " ", "a'b\"c", "ü" * 255, "NULL", "{a,b}", "%"])
async def test_tenants_with_odd_names_have_caps(world: World, tenant: str) -> None:
    if not tenant:
        with pytest.raises(ValueError, match="tenant_id"):
            await world.engine.shares.set_cap(1, tenant_id=tenant)
        return
    await world.engine.shares.set_cap(0, tenant_id=tenant)
    await world.job(await world.connection(tenant=tenant))
    await world.job(await world.connection(tenant="other"))
    world.script(SyncResult())

    assert await world.run_due() == 1


async def test_one_job_of_each_type_may_run_at_once_under_a_cap(world: World) -> None:
    async with world.another_engine(executor={"single_flight": "job_type"}) as engine:
        await engine.engine.shares.set_cap(5, tenant_id="acme")
        connection = await world.connection()
        for job_type in ("incremental", "full"):
            await world.job(connection, job_type=job_type)
        engine.script(*[SyncResult()] * 2)

        assert await engine.run_due() == 2
