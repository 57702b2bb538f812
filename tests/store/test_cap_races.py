"""Claimers against each other under a cap: never one more than it allows (P9)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from support.sessions import actor
from support.world import World
from syncline import SyncResult
from syncline.engine.context import EngineContext
from syncline.engine.worker.share_book import ShareBook
from syncline.policy.caps import Rooms
from syncline.store.pool import Transaction
from syncline.store.queue import caps

pytestmark = pytest.mark.usefixtures("no_deadlock")
ACME = ("acme", "")


class Interrupted(Transaction):
    """Lets something happen after the first statement."""

    def __init__(self, tx: Transaction, meanwhile: Callable[[], Awaitable[Any]]) -> None:
        self._tx = tx
        self._meanwhile: Callable[[], Awaitable[Any]] | None = meanwhile

    async def fetch(self, statement: str, *arguments: Any, timeout: float | None = None) -> Any:
        rows = await self._tx.fetch(statement, *arguments, timeout=timeout)
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return rows


def context_of(world: World) -> EngineContext:
    return world.engine._worker._context


async def counted_by(
    world: World, tx: Transaction, meanwhile: Callable[[], Awaitable[Any]] | None = None
) -> Rooms:
    book = ShareBook(context_of(world))
    book.caps = {cap.key: cap for cap in (await caps.read(tx))[0]}
    counting = tx if meanwhile is None else Interrupted(tx, meanwhile)
    rooms, _ = await book.lock_and_count(counting, [ACME])
    return rooms


async def waiting_job(world: World) -> UUID:
    return await world.job(await world.connection())


async def test_what_is_claimed_while_a_claim_begins_is_counted_by_it(world: World) -> None:
    """The cap is locked first; what was counted before the lock may be out of date."""
    await world.engine.shares.set_cap(1, tenant_id="acme")
    await waiting_job(world)
    held = asyncio.Event()

    def hold(connection: object, cursor: object) -> SyncResult:
        held.set()
        return SyncResult()

    world.script(hold)

    async def claim_elsewhere() -> None:
        await world.run_due()
        if held.is_set():  # it ran, and is taken for running still
            await world.sql(
                "UPDATE {schema}.sync_jobs SET status = 'running', finished_at = NULL,"
                " lease_token = gen_random_uuid(), lease_expires_at = now(), is_counted = true"
            )

    async with actor(world) as first:
        rooms = await counted_by(world, first.tx, claim_elsewhere)
        [running] = await world.sql(
            "SELECT count(*) FROM {schema}.sync_jobs WHERE status = 'running'"
        )

        assert rooms.has_room("acme", "github") == (running["count"] == 0)


async def test_a_cap_that_another_claim_holds_has_no_room(world: World) -> None:
    await world.engine.shares.set_cap(5, tenant_id="acme")
    async with actor(world) as first, actor(world) as second:
        assert (await counted_by(world, first.tx)).has_room("acme", "github")

        assert not (await counted_by(world, second.tx)).has_room("acme", "github")
        await first.commit()
    async with actor(world) as third:
        assert (await counted_by(world, third.tx)).has_room("acme", "github")


async def test_a_claim_does_not_wait_for_a_cap_that_is_held(world: World) -> None:
    """Jobs under the cap are left for later; the others start."""
    await world.engine.shares.set_cap(5, tenant_id="acme")
    capped = await waiting_job(world)
    await world.job(await world.connection(tenant="other"))
    world.script(SyncResult())
    async with actor(world) as first:
        await counted_by(world, first.tx)

        assert await world.run_due() == 1
        assert (await world.get_job(capped)).status == "queued"
    world.script(SyncResult())
    assert await world.run_due() == 1


async def test_a_cap_that_was_cleared_meanwhile_starts_nothing_uncounted(world: World) -> None:
    await world.engine.shares.set_cap(5, tenant_id="acme")
    async with actor(world) as first:
        book = ShareBook(context_of(world))
        book.caps = {cap.key: cap for cap in (await caps.read(first.tx))[0]}
        await world.engine.shares.set_cap(None, tenant_id="acme")

        rooms, all_free = await book.lock_and_count(first.tx, [ACME])

    assert not all_free
    assert not rooms.has_room("acme", "github")


async def test_a_new_value_counts_from_the_next_claim_on(world: World) -> None:
    await world.engine.shares.set_cap(5, tenant_id="acme")
    async with actor(world) as first:
        book = ShareBook(context_of(world))
        book.caps = {cap.key: cap for cap in (await caps.read(first.tx))[0]}
        await world.engine.shares.set_cap(0, tenant_id="acme")

        rooms, _ = await book.lock_and_count(first.tx, [ACME])

    assert not rooms.has_room("acme", "github")


@pytest.fixture
def stop_looking(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on every process believes of caps what it read last, as one that was stopped."""

    async def no_look(book: ShareBook, session: object) -> None:
        pass

    return lambda: monkeypatch.setattr(ShareBook, "look", no_look)


async def test_a_claim_that_does_not_know_of_a_cap_leaves_its_jobs(
    world: World, stop_looking: Callable[[], None]
) -> None:
    """A process may have been stopped since it last read the caps; the statement reads them."""
    await world.run_due()
    stop_looking()
    await world.engine.shares.set_cap(0, tenant_id="acme")
    capped = await waiting_job(world)
    await world.job(await world.connection(tenant="other"))
    world.script(SyncResult())

    assert await world.run_due() == 1
    assert (await world.get_job(capped)).status == "queued"


async def test_a_claim_that_holds_a_cap_leaves_jobs_of_one_it_does_not_know(
    world: World, stop_looking: Callable[[], None]
) -> None:
    await world.engine.shares.set_cap(5, tenant_id="acme")
    await world.run_due()
    stop_looking()
    await world.engine.shares.set_cap(0, provider_slug="github")
    capped = await waiting_job(world)

    assert await world.run_due() == 0
    assert (await world.get_job(capped)).status == "queued"
