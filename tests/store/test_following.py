"""A follower of signals misses nothing and repeats nothing, in whatever order rows commit."""

import asyncio
import random
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID, uuid4

import pytest

from support.world import World
from syncline.model import START, Position, SignalFilter
from syncline.store.listings.follow import ROWS_SCANNED

INSERT = (
    "INSERT INTO {schema}.signals (id, tenant_id, provider_slug, connection_id, kind)"
    " VALUES ($1, $2, 'github', $3, 'opened')"
)
EVERYTHING = SignalFilter()


async def store(world: World, session: Any = None, *, tenant: str = "acme") -> UUID:
    id_ = uuid4()
    await world.sql(INSERT, id_, tenant, UUID(int=7), session=session)
    return id_


class Follower:
    def __init__(self, world: World, wanted: SignalFilter = EVERYTHING) -> None:
        self._world = world
        self._wanted = wanted
        self.position = START
        self.seen: list[UUID] = []

    async def catch_up(self, limit: int = 2) -> list[UUID]:
        """Return what is new, read in small steps."""
        new: list[UUID] = []
        is_caught_up = False
        while not is_caught_up:
            step = await self._world.engine.signals.follow(
                self._wanted, position=self.position, limit=limit
            )
            new += [signal.id for signal in step.signals]
            self.position, is_caught_up = step.position, step.is_caught_up
        self.seen += new
        return new


async def test_a_transaction_that_commits_late_is_neither_missed_nor_repeated(
    world: World,
) -> None:
    follower = Follower(world)
    async with world.session() as slow, world.session() as quick:
        late = slow.transaction()
        await late.start()
        first = await store(world, slow)
        second = await store(world, quick)  # committed at once, but after one that still runs

        while_it_runs = await follower.catch_up()
        await late.commit()
        after_it_ended = await follower.catch_up()

    assert while_it_runs == []
    assert after_it_ended == [first, second]
    assert await follower.catch_up() == []


async def test_what_was_undone_is_never_told_and_holds_nothing_back(world: World) -> None:
    follower = Follower(world)
    async with world.session() as session:
        undone = session.transaction()
        await undone.start()
        await store(world, session)
        kept = await store(world)
        await undone.rollback()

    assert await follower.catch_up() == [kept]


async def test_rows_of_one_transaction_are_told_page_by_page(world: World) -> None:
    follower = Follower(world)
    async with world.session() as session, session.transaction():
        ids = [await store(world, session) for _ in range(7)]

    assert await follower.catch_up(limit=3) == sorted(ids)


async def test_transactions_are_in_the_order_of_numbers_not_of_texts(world: World) -> None:
    ids = {}
    for transaction in (100, 9, 20, 3):
        ids[transaction] = await store(world)
        await world.sql(
            "UPDATE {schema}.signals SET transaction_id = $2::text::xid8 WHERE id = $1",
            *(ids[transaction], str(transaction)),
        )

    assert await Follower(world).catch_up(limit=1) == [ids[3], ids[9], ids[20], ids[100]]


async def test_only_what_is_wanted_is_told(world: World) -> None:
    """A look ends after so many rows, although none of them was wanted."""
    wanted = SignalFilter("acme")
    follower = Follower(world, wanted)
    await world.sql(
        "INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, kind)"
        " SELECT 'birch', 'github', gen_random_uuid(), 'opened' FROM generate_series(1, $1::int)",
        ROWS_SCANNED,
    )
    ours = await store(world)

    first = await world.engine.signals.follow(wanted)
    assert (first.signals, first.is_caught_up) == ([], False)
    assert first.position != START
    assert await follower.catch_up() == [ours]


async def test_following_from_now_on(world: World) -> None:
    await store(world)
    follower = Follower(world)
    follower.position = await world.engine.signals.position()

    assert await follower.catch_up() == []
    new = await store(world)
    assert await follower.catch_up() == [new]


async def test_a_position_of_another_database_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="position lies ahead of this database"):
        await world.engine.signals.follow(EVERYTHING, position=Position(2**62, UUID(int=0)))


class Writers:
    """Sessions that store, commit and roll back in an order that chance decides."""

    def __init__(self, world: World, sessions: list[Any], chance: random.Random) -> None:
        self._world = world
        self._sessions = sessions
        self._chance = chance
        self._open: dict[Any, tuple[Any, list[UUID]]] = {}
        self.committed: list[UUID] = []

    async def write(self, steps: int) -> None:
        for _ in range(steps):
            await self._step(self._chance.choice(self._sessions))
        for session in list(self._open):
            await self._end(session)

    async def _step(self, session: Any) -> None:
        if session not in self._open:
            transaction = session.transaction()
            await transaction.start()
            self._open[session] = transaction, []
        if self._chance.random() < 0.6:
            self._open[session][1].append(await store(self._world, session))
        else:
            await self._end(session)

    async def _end(self, session: Any) -> None:
        transaction, ids = self._open.pop(session)
        if self._chance.random() < 0.2:
            await transaction.rollback()
        else:
            await transaction.commit()
            self.committed += ids


async def test_many_writers_that_commit_in_any_order(world: World) -> None:
    follower = Follower(world)
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(world.session()) for _ in range(4)]
        writers = Writers(world, sessions, random.Random(4))
        writing = asyncio.create_task(writers.write(200))
        while not writing.done():
            await follower.catch_up()
        await writing
    await follower.catch_up()

    assert len(follower.seen) > 50
    assert sorted(follower.seen) == sorted(writers.committed)
