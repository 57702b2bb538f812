"""Blocks of places under a cap: what is claimed by one, and what everybody counts (P9)."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from support.sessions import actor
from support.world import World
from syncline.engine.worker.share_book import ShareBook
from syncline.policy.lines import Lines
from syncline.store.pool import Transaction
from syncline.store.queue import cap_blocks, caps, claims
from syncline.store.queue.claims import ClaimRequest, Lease

pytestmark = pytest.mark.usefixtures("no_deadlock")
ACME = ("acme", "")
LASTING = timedelta(seconds=2)


async def take(world: World, places: int) -> UUID:
    """Take a block under the cap of acme."""
    holder = uuid4()
    async with world.engine._pool.transaction() as tx:
        await caps.lock(tx, [ACME], now=world.clock(), new_for=LASTING)
        await cap_blocks.take(tx, holder, [ACME], places, ends_at=(world.clock(), LASTING))
    return holder


async def claim(tx: Transaction, world: World, block: UUID | None) -> list[UUID]:
    lines = Lines(["github"]).columns(from_start=True)
    request = ClaimRequest(["github"], 10, 1, flight_by_type=False, lines=lines, block=block)
    found = await claims.claim(tx, request, Lease(uuid4(), world.clock(), LASTING))
    return [row["id"] for row in found.jobs]


async def room(
    world: World,
    giving_back: UUID | None = None,
    *,
    before_drop: Callable[[], Awaitable[None]] | None = None,
) -> int:
    """Return how many more jobs of acme may start, as everybody counts."""
    async with world.engine._pool.transaction() as tx:
        book = ShareBook(world.engine._worker._context)
        book.caps = {cap.key: cap for cap in (await caps.read(tx))[0]}
        counting = tx if before_drop is None else Interrupted(tx, before_drop)
        rooms, _ = await book.lock_and_count(counting, [ACME], giving_back=giving_back)
        return rooms.least


class Interrupted(Transaction):
    """Lets something happen before the first statement that returns no rows."""

    def __init__(self, tx: Transaction, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._tx = tx
        self._meanwhile = meanwhile

    async def fetch(self, statement: str, *arguments: Any, timeout: float | None = None) -> Any:
        return await self._tx.fetch(statement, *arguments, timeout=timeout)

    async def execute(self, statement: str, *arguments: Any, timeout: float | None = None) -> int:
        await self._meanwhile()
        return await self._tx.execute(statement, *arguments, timeout=timeout)


async def waiting_job(world: World, tenant: str = "acme") -> UUID:
    return await world.job(await world.connection(tenant=tenant))


async def test_everybody_counts_the_places_of_a_block(world: World) -> None:
    await world.engine.shares.set_cap(5, tenant_id="acme")
    block = await take(world, 3)

    assert await room(world) == 2
    assert await room(world, giving_back=block) == 5


async def test_what_is_claimed_by_a_block_is_counted_beside_it(world: World) -> None:
    """Nobody knows which of its places are filled: there may be too little room, never too much."""
    await world.engine.shares.set_cap(5, tenant_id="acme")
    job, block = await waiting_job(world), await take(world, 3)
    async with actor(world) as first:
        assert await claim(first.tx, world, block) == [job]
        await first.commit()

    assert await room(world) == 1
    assert await room(world, giving_back=block) == 4


async def test_without_its_block_a_claim_leaves_what_is_under_the_cap(world: World) -> None:
    await world.engine.shares.set_cap(5, tenant_id="acme")
    block = await take(world, 3)
    await waiting_job(world)
    other = await waiting_job(world, tenant="other")
    assert await room(world, giving_back=block) == 5
    async with actor(world) as first:
        assert await claim(first.tx, world, block) == [other]


async def test_a_block_that_has_ended_is_dropped_by_whoever_counts(world: World) -> None:
    await world.engine.shares.set_cap(5, tenant_id="acme")
    block = await take(world, 3)
    await waiting_job(world)
    world.clock.advance(LASTING.total_seconds())

    assert await room(world) == 5
    async with actor(world) as late:
        assert await claim(late.tx, world, block) == []


async def test_a_block_counts_as_long_as_a_claim_fills_it(world: World) -> None:
    """Its time may end during the claim; what the claim takes is seen by nobody yet."""
    await world.engine.shares.set_cap(5, tenant_id="acme")
    job, block = await waiting_job(world), await take(world, 3)
    async with actor(world) as slow:
        assert await claim(slow.tx, world, block) == [job]
        world.clock.advance(LASTING.total_seconds())

        assert await room(world) == 2
        await slow.commit()
    assert await room(world) == 4


async def test_what_a_block_brought_in_before_it_is_dropped_is_counted(world: World) -> None:
    await world.engine.shares.set_cap(5, tenant_id="acme")
    job, block = await waiting_job(world), await take(world, 3)
    async with actor(world) as slow:
        assert await claim(slow.tx, world, block) == [job]
        world.clock.advance(LASTING.total_seconds())

        assert await room(world, before_drop=slow.commit) == 4


async def test_a_block_of_another_value_of_the_cap_is_not_used(world: World) -> None:
    await world.engine.shares.set_cap(500, tenant_id="acme")
    block = await take(world, 100)
    await waiting_job(world)
    await world.engine.shares.set_cap(1, tenant_id="acme")
    async with actor(world) as first:
        assert await claim(first.tx, world, block) == []


async def test_a_block_lets_nobody_past_another_cap(world: World) -> None:
    await world.engine.shares.set_cap(5, tenant_id="acme")
    block = await take(world, 3)
    await world.engine.shares.set_cap(0, provider_slug="github")
    await waiting_job(world)
    async with actor(world) as first:
        assert await claim(first.tx, world, block) == []
