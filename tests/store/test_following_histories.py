"""A follower goes on, missing and repeating nothing stored, when the server's history breaks."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from faults.standby import Standby

from syncline import Engine, Settings
from syncline.clock import pause
from syncline.errors import PositionLost
from syncline.model import START, Position, SignalFilter
from syncline.store.embedded.binaries import find_binaries
from syncline.store.embedded.upgrade import move_to_newest
from syncline.store.listings.follow import ALL_TRANSACTIONS, LOOK
from syncline.testing.database import TemporaryServer

INSERT = (
    "INSERT INTO syncline.signals (id, tenant_id, provider_slug, connection_id, kind)"
    " VALUES ($1, $2, 'github', $1, 'opened')"
)
SPEND_NUMBERS = """
    DO $$ BEGIN
        FOR number IN 1..{count} LOOP PERFORM pg_catalog.pg_current_xact_id(); COMMIT; END LOOP;
    END $$
"""


async def store(url: str, count: int, tenant: str = "acme") -> list[UUID]:
    """Store so many signals, each in a transaction of its own."""
    session = await asyncpg.connect(url)
    try:
        ids = [uuid4() for _ in range(count)]
        for id_ in ids:
            await session.execute(INSERT, id_, tenant)
        return ids
    finally:
        await session.close()


async def execute(url: str, statement: str, *arguments: Any) -> None:
    session = await asyncpg.connect(url)
    try:
        await session.execute(statement, *arguments)
    finally:
        await session.close()


class Follower:
    """Keeps its position while the database changes under it."""

    def __init__(self) -> None:
        self.position = START
        self.server_changed = False

    async def catch_up(self, url: str, limit: int = 7) -> list[UUID]:
        """Return what is new, read in small steps."""
        new: list[UUID] = []
        async with Engine(Settings(database_url=url)) as engine:
            while True:
                step = await engine.signals.follow(position=self.position, limit=limit)
                new += [signal.id for signal in step.signals]
                self.position = step.position
                self.server_changed |= step.server_changed
                if step.is_caught_up:
                    return new


async def migrate(url: str) -> None:
    async with Engine(Settings(database_url=url)) as engine:
        await engine.migrate()


async def note_start(url: str) -> None:
    """Let a process beat once, which gives a new start of the server its number."""
    async with Engine(Settings(database_url=url)) as engine:
        await engine._heartbeat().beat()


@pytest.fixture(scope="module")
def server() -> Iterator[TemporaryServer]:
    """A server that tests may stop; what it has not written to disk, a crash of it loses."""
    settings = {"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_level": "logical"}
    with TemporaryServer(server_settings=settings) as server:
        yield server


@pytest.fixture(scope="module")
def other_server() -> Iterator[TemporaryServer]:
    # A subscription starts the workers that copy its tables no more often than this.
    with TemporaryServer(server_settings={"wal_retrieve_retry_interval": "50ms"}) as server:
        yield server


@pytest.fixture
def primary(server: TemporaryServer) -> TemporaryServer:
    server.start()  # the test before may have killed it
    return server


@pytest.fixture
async def url(primary: TemporaryServer) -> str:
    url = primary.create_database()
    await migrate(url)
    return url


def restart(server: TemporaryServer) -> None:
    server.stop()
    server.start()


@asynccontextmanager
async def promoted_without_the_last_commits(
    primary: TemporaryServer, url: str, followers: list[Follower]
) -> AsyncIterator[str]:
    """Yield the URL on a standby that was promoted without what the followers read last."""
    with Standby(primary, url) as standby:
        standby.cut_off()
        lost = await store(url, 30)
        for follower in followers:
            assert (await follower.catch_up(url))[-30:] == lost
        primary.kill()
        standby.promote()
        yield standby.url_like(url)


async def test_promotion_of_a_lagging_standby_hides_nothing(
    primary: TemporaryServer, url: str
) -> None:
    await store(url, 5)
    awake, asleep = Follower(), Follower()
    async with promoted_without_the_last_commits(primary, url, [awake, asleep]) as new_url:
        few = await store(new_url, 3)  # under numbers that the lost commits had
        assert (await awake.catch_up(new_url), awake.server_changed) == (few, True)

        many = await store(new_url, 40)  # and beyond them, while the other one sleeps
        assert await awake.catch_up(new_url) == many
        assert (await asleep.catch_up(new_url), asleep.server_changed) == (few + many, True)
        assert len(await Follower().catch_up(new_url)) == 5 + 3 + 40


async def test_a_standby_that_only_reads_can_be_followed(
    primary: TemporaryServer, url: str
) -> None:
    before = await store(url, 5)
    follower = Follower()
    with Standby(primary, url) as standby:
        standby.cut_off()
        copy = standby.url_like(url)
        assert await follower.catch_up(copy) == before
        assert await follower.catch_up(copy) == []

        standby.promote()
        assert await follower.catch_up(copy) == []
        new = await store(copy, 2)
        assert await follower.catch_up(copy) == new


async def test_a_standby_is_followed_up_to_what_still_runs_on_its_primary(
    primary: TemporaryServer, url: str
) -> None:
    [first] = await store(url, 1)
    follower = Follower()
    session = await asyncpg.connect(url)
    with Standby(primary, url) as standby:
        copy = standby.url_like(url)
        late = session.transaction()
        await late.start()
        await session.execute(INSERT, second := uuid4(), "acme")
        [third] = await store(url, 1)
        standby._run(standby._catch_up())
        assert await follower.catch_up(copy) == [first]

        await late.commit()
        standby._run(standby._catch_up())
        assert await follower.catch_up(copy) == [second, third]
    await session.close()


async def test_dump_and_restore_into_another_cluster_hides_nothing(
    url: str, other_server: TemporaryServer, tmp_path: Path
) -> None:
    await execute(url, SPEND_NUMBERS.format(count=30_000))
    stored = await store(url, 20)
    done, halfway = Follower(), Follower()
    assert await done.catch_up(url) == stored
    async with Engine(Settings(database_url=url)) as engine:
        step = await engine.signals.follow(limit=8)
        halfway.position = step.position

    copy = other_server.create_database()
    dump(url, tmp_path / "dump")
    await restore(tmp_path / "dump", copy)

    assert await Follower().catch_up(copy) == stored
    assert (await done.catch_up(copy), done.server_changed) == ([], False)
    new = await store(copy, 10)
    assert (await done.catch_up(copy), done.server_changed) == (new, True)
    assert await halfway.catch_up(copy) == stored[8:] + new
    assert await Follower().catch_up(copy) == stored + new


async def test_a_restored_dump_that_is_older_than_the_follower_hides_nothing(
    url: str, other_server: TemporaryServer, tmp_path: Path
) -> None:
    await store(url, 5)
    dump(url, tmp_path / "dump")
    follower = Follower()
    await store(url, 10)  # in no dump
    await follower.catch_up(url)

    copy = other_server.create_database()
    await restore(tmp_path / "dump", copy)
    new = await store(copy, 10)
    assert await follower.catch_up(copy) == new


async def test_a_crash_that_lost_commits_hides_nothing(primary: TemporaryServer, url: str) -> None:
    await execute(url, "CHECKPOINT")
    told = await store(url, 20)
    follower = Follower()
    assert await follower.catch_up(url) == told
    primary.kill()
    primary.start()

    new = await store(url, 40)
    assert await follower.catch_up(url) == new
    everything = await Follower().catch_up(url)
    assert everything[-40:] == new
    assert len(everything) < 20 + 40, "nothing was lost, so this shows nothing"


async def test_a_subscriber_that_takes_over_hides_nothing(
    url: str, other_server: TemporaryServer
) -> None:
    await execute(url, SPEND_NUMBERS.format(count=2_000))
    before = await store(url, 10)
    follower = Follower()
    async with Engine(Settings(database_url=url)) as engine:
        follower.position = (await engine.signals.follow(limit=4)).position
    copy = other_server.create_database()
    await migrate(copy)
    await execute(url, "CREATE PUBLICATION moving FOR TABLE syncline.signals")
    subscribe = f"CREATE SUBSCRIPTION moving CONNECTION '{url}' PUBLICATION moving"
    await execute(copy, f"{subscribe} WITH (synchronous_commit = on)")
    before += await store(url, 3)
    await execute(url, "SET synchronous_commit = on; CREATE TABLE flushed ()")

    async with asyncio.timeout(20):
        while len(await Follower().catch_up(copy)) < len(before):
            await pause(0.05)
    await execute(copy, "DROP SUBSCRIPTION moving")
    after = await store(copy, 5)

    assert await follower.catch_up(copy) == before[4:] + after
    assert await Follower().catch_up(copy) == before + after


@pytest.mark.security  # as slow as pg_upgrade is
async def test_pg_upgrade_hides_nothing() -> None:
    older = [found for found in find_binaries() if found.major < find_binaries()[0].major]
    if not older:
        pytest.skip("Postgres of one major version alone was found")
    with TemporaryServer(binaries=older[0]) as server:
        url = server.create_database()
        await migrate(url)
        before = await store(url, 5)
        follower = Follower()
        await follower.catch_up(url)
        before += await store(url, 2)
        server.stop()

        await move_to_newest(server._cluster)
        server._binaries = None
        server.start()
        after = await store(url, 3)
        assert await follower.catch_up(url) == before[5:] + after
        assert await Follower().catch_up(url) == before + after


async def test_starts_are_read_in_their_order_whatever_clocks_say(
    primary: TemporaryServer, url: str
) -> None:
    follower = Follower()
    await store(url, 1)
    await follower.catch_up(url)
    expected = []
    for number in range(3):
        restart(primary)
        ids = await store(url, 2)
        expected += ids
        await note_start(url)
        # As if this server's clock went backwards by a day at every start.
        await execute(
            url,
            "UPDATE syncline.signals SET received_at = received_at - $2::interval"
            " WHERE id = ANY ($1)",
            *(ids, timedelta(days=number + 1)),
        )

    assert await follower.catch_up(url, limit=1) == expected


async def test_starts_that_nobody_numbered_are_read_too(primary: TemporaryServer, url: str) -> None:
    follower = Follower()
    await store(url, 1)
    await follower.catch_up(url)
    expected = []
    for _ in range(3):
        restart(primary)
        expected += await store(url, 2)

    assert await follower.catch_up(url, limit=1) == expected
    await note_start(url)
    assert len(await Follower().catch_up(url, limit=1)) == 7


async def test_positions_of_version_0_1_go_on(primary: TemporaryServer, url: str) -> None:
    stored = await store(url, 6)
    session = await asyncpg.connect(url)
    third = await session.fetchval(
        "SELECT transaction_id::text FROM syncline.signals WHERE id = $1", stored[2]
    )
    horizon = await session.fetchval("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")
    await session.close()
    in_the_middle, at_the_end = Follower(), Follower()
    in_the_middle.position = Position(int(third), stored[2])
    at_the_end.position = Position(int(horizon), UUID(int=0))

    restart(primary)
    new = await store(url, 2)

    assert await in_the_middle.catch_up(url) == stored[3:] + new
    assert await at_the_end.catch_up(url) == new


async def test_now_is_the_end_of_what_can_be_told(primary: TemporaryServer, url: str) -> None:
    async with Engine(Settings(database_url=url)) as engine:
        assert await engine.signals.position() == START
    await store(url, 3)
    restart(primary)

    follower = Follower()
    async with Engine(Settings(database_url=url)) as engine:
        follower.position = await engine.signals.position()
    assert await follower.catch_up(url) == []
    new = await store(url, 2)
    assert await follower.catch_up(url) == new


@pytest.mark.parametrize("found", [1, 0])
async def test_a_position_of_an_unknown_start_is_refused(database_url: str, found: int) -> None:
    await store(database_url, found)
    position = Position(5, uuid4(), datetime(2020, 1, 1, tzinfo=UTC))
    async with Engine(Settings(database_url=database_url)) as engine:
        with pytest.raises(PositionLost, match="start again"):
            await engine.signals.follow(position=position)


async def test_a_late_page_of_a_large_transaction_costs_what_an_early_one_does(
    database_url: str,
) -> None:
    await execute(
        database_url,
        "INSERT INTO syncline.signals (tenant_id, provider_slug, connection_id, kind)"
        " SELECT 'acme', 'github', gen_random_uuid(), 'opened' FROM generate_series(1, 20000)",
    )
    async with Engine(Settings(database_url=database_url)) as engine:
        first = await engine.signals.follow(limit=500)
        late, wanted = first, SignalFilter()
        for _ in range(38):
            late = await engine.signals.follow(wanted, position=late.position, limit=500)

    costs = [await blocks_read(database_url, at) for at in (first.position, late.position)]
    assert not late.is_caught_up
    assert costs[1] < 1.5 * costs[0], costs


async def blocks_read(url: str, position: Position) -> int:
    """Return how many blocks the next page touches."""
    session = await asyncpg.connect(url)
    try:
        await session.execute("SET enable_bitmapscan = off")  # as for whatever people ask
        arguments = (position.server_start, str(position.transaction), position.signal_id)
        [(plan,)] = await session.fetch(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + LOOK.replace("{schema}", "syncline"),
            *(*arguments, str(ALL_TRANSACTIONS), 500, None, None, None, None, None),
        )
    finally:
        await session.close()
    top = json.loads(plan)[0]["Plan"]
    return int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])


def dump(url: str, path: Path) -> None:
    run("pg_dump", "--format=custom", f"--file={path}", f"--dbname={url}")


async def restore(path: Path, url: str) -> None:
    """Restore into a cluster that has the role for requests, as docs/reference/schema.md says."""
    with suppress(asyncpg.DuplicateObjectError):  # roles outlive the database of the test before
        await execute(url, "CREATE ROLE syncline_api NOLOGIN")
    run("pg_restore", f"--dbname={url}", str(path))


def run(program: str, *arguments: str) -> None:
    command = [find_binaries()[0].path(program), *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
