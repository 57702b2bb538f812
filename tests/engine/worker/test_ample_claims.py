"""Claims by blocks of places: as fast as without caps, and never one job too many (P9)."""

import math
from random import Random
from typing import Any
from uuid import UUID

import pytest

from support.world import World
from syncline import SyncResult
from syncline.engine.worker.ample_claims import AmpleClaims
from syncline.store.queue import cap_blocks

CLAIMERS, STEPS, JOBS = 3, 120, 300
RUNNING = "SELECT id FROM {schema}.sync_jobs WHERE status = 'running' ORDER BY id"
FINISH = """
    UPDATE {schema}.sync_jobs
       SET status = 'succeeded', finished_at = now(), lease_token = NULL, lease_expires_at = NULL
     WHERE id = ANY ($1::uuid[])
"""


class Claimers:
    """Processes that claim, of which any may die at any time, and what runs."""

    def __init__(self, worlds: list[World], rng: Random) -> None:
        self.worlds = worlds
        self.rng = rng
        self.by_block = 0

    async def claim(self, world: World, limit: int) -> None:
        executor = world.engine._worker.executor
        claimer = executor._claimers[executor.slots[0]]
        ample = claimer._fair._ample
        had_block = ample._block
        if had_block is not None:
            had_block.until = math.inf  # how long the test takes must not matter
        claimer.look_again()
        async with world.engine._pool.session() as session:
            await claimer.claim(session, limit, with_poison_job=True)
        self.by_block += had_block is not None and ample._block is had_block

    def kill(self, world: World) -> None:
        """Let a process forget what it knew, as one that was started in its place."""
        executor = world.engine._worker.executor
        fair = executor._claimers[executor.slots[0]]._fair
        context = world.engine._worker._context
        fair._ample = AmpleClaims(context.pool, context.clock, fair._book)

    async def running(self) -> list[UUID]:
        return [row["id"] for row in await self.worlds[0].sql(RUNNING)]

    async def finish_some(self) -> None:
        running = await self.running()
        ended = self.rng.sample(running, self.rng.randint(0, len(running)))
        await self.worlds[0].sql(FINISH, ended)


@pytest.mark.parametrize("seed", range(3))
async def test_no_claim_passes_a_cap_whoever_dies(world: World, seed: int) -> None:
    rng = Random(seed)
    for number in range(JOBS):
        await world.job(await world.connection(tenant=("acme", "other")[number % 2]))
    async with world.another_engine() as second, world.another_engine() as third:
        claimers = Claimers([world, second, third], rng)
        cap = 30
        await world.engine.shares.set_cap(cap, provider_slug="github")
        for _ in range(STEPS):
            one = rng.choice(claimers.worlds)
            match rng.randint(0, 19):
                case 0:
                    claimers.kill(one)
                case 1:
                    world.clock.advance(rng.randint(0, 3))
                case 2:
                    cap = rng.choice((15, 30, 60, 90))
                    await world.engine.shares.set_cap(cap, provider_slug="github")
                case 3 | 4 | 5 | 6:
                    await claimers.finish_some()
                case _:
                    before = len(await claimers.running())
                    await claimers.claim(one, rng.randint(1, 2))
                    assert len(await claimers.running()) <= max(cap, before)
    assert claimers.by_block > 2, f"{claimers.by_block} claims: the test would prove nothing"


async def test_all_of_a_cap_is_used_and_no_block_twice(world: World) -> None:
    for _ in range(40):
        await world.job(await world.connection())
    await world.engine.shares.set_cap(20, provider_slug="github")
    claimers = Claimers([world], Random(0))
    for _ in range(40):
        await claimers.claim(world, 1)

    assert len(await claimers.running()) == 20
    assert claimers.by_block > 2


async def test_a_roomy_cap_costs_a_count_for_many_claims(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    take = cap_blocks.take

    async def noted(tx: Any, holder: UUID, keys: Any, places: int, **more: Any) -> None:
        taken.append(places)
        await take(tx, holder, keys, places, **more)

    monkeypatch.setattr(cap_blocks, "take", noted)
    async with world.another_engine(executor={"concurrency": 2}) as engine:
        await engine.engine.shares.set_cap(1000, provider_slug="github")
        for _ in range(40):
            await world.job(await world.connection())
        engine.script(*[SyncResult()] * 40)

        assert await engine.run_due() == 40

    assert 1 <= len(taken) < 10, "twenty claims"
    assert max(taken) <= 250
    [left] = await world.sql("SELECT count(*) FROM {schema}.cap_blocks")
    assert left["count"] <= 1
