"""A connection's config and metadata may be large: it holds up itself, and no claim or tick."""

import json
import random
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from support.slow_link import slow_link
from support.world import World, open_world
from syncline import Connection, Connector, SyncResult
from syncline.policy.lines import Lines
from syncline.store.pool import Pool
from syncline.store.queue import claims
from syncline.store.queue.claims import ClaimRequest, Lease

MEGABYTE = 1_000_000
SLOW_DOWN = """
    CREATE FUNCTION {schema}.slow_down() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END $$
"""
EACH_UPDATE = """
    CREATE TRIGGER slow_down BEFORE UPDATE ON {schema}.connections
       FOR EACH ROW EXECUTE FUNCTION {schema}.slow_down()
"""


def noise(size: int) -> str:
    """Return text that Postgres cannot compress by much."""
    return random.Random(size).randbytes(size // 2).hex()


async def add_large(world: World, count: int, size: int) -> None:
    """Add connections with so many bytes of metadata, with a job that is due."""
    ids = [uuid4() for _ in range(count)]
    await world.sql(
        "INSERT INTO {schema}.connections (id, tenant_id, provider_slug, external_id, metadata)"
        " SELECT id, 'acme', 'github', id::text, $2 FROM unnest($1::uuid[]) AS id",
        *(ids, json.dumps({"notes": noise(size), "sync": {"cursor": 1}})),
    )
    await world.sql(
        "INSERT INTO {schema}.sync_jobs (tenant_id, provider_slug, connection_id, scheduled_at)"
        " SELECT 'acme', 'github', id, $2 FROM unnest($1::uuid[]) AS id",
        *(ids, world.clock()),
    )


class Reader(Connector):
    """Notes how much metadata it was given, and from where it was asked to go on."""

    provider = "github"

    def __init__(self) -> None:
        self.seen: dict[UUID, tuple[int, Any]] = {}

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        self.seen[connection.id] = len(connection.metadata.get("notes", "")), cursor
        return SyncResult(next_cursor=cursor + 1 if cursor else 1)


@pytest.mark.parametrize("size", [1900, 2100, MEGABYTE])
async def test_a_connector_sees_all_of_its_connection(world: World, size: int) -> None:
    reader = Reader()
    await add_large(world, 3, size)
    async with world.another_engine([reader]) as worker:
        assert await worker.engine.run_due() == 3

    assert list(reader.seen.values()) == [(size, 1)] * 3
    rows = await world.sql("SELECT metadata FROM {schema}.connections")
    assert [json.loads(row["metadata"])["sync"]["cursor"] for row in rows] == [2] * 3
    assert await world.engine.verify() == []


async def test_a_claim_leaves_large_metadata_out(world: World) -> None:
    """2000 such jobs would be an answer that never arrives in time."""
    await add_large(world, 2, 100)
    await add_large(world, 3, 10_000)
    pool = Pool(world.url, world.settings.schema, size=1)
    await pool.open()
    lease = Lease(uuid4(), world.clock(), timedelta(seconds=30))
    try:
        async with pool.statement() as tx:
            lines = Lines(["github"]).columns(from_start=True)
            request = ClaimRequest(["github"], 10, 1, flight_by_type=False, lines=lines)
            rows = (await claims.claim(tx, request, lease)).jobs
    finally:
        await pool.close()

    assert tuple(rows[0].keys()) == claims.COLUMNS, "else they are read at thrice the cost"
    claimed = claims.read_claims(rows, lease.token)
    assert sorted(claim.is_large for claim in claimed) == [False] * 2 + [True] * 3
    for claim in claimed:
        assert (claim.metadata is None) == (claim.stored_cursor is None) == claim.is_large


async def test_a_connection_that_cannot_be_read_in_time_holds_up_no_other(world: World) -> None:
    await add_large(world, 1, MEGABYTE)
    await add_large(world, 3, 100)
    reader = Reader()
    async with (
        slow_link(world.url, megabits=2) as url,
        open_world(
            url, clock=world.clock, connectors=[reader], executor={"max_run_seconds": 1}
        ) as worker,
    ):
        await worker.engine.run_due()

    assert [size for size, _ in reader.seen.values()] == [100] * 3
    [[error]] = await world.sql(
        "SELECT error FROM {schema}.sync_jobs WHERE status = 'queued' AND attempts = 1"
    )
    assert "config and metadata could not be read" in json.loads(error)["message"]


@pytest.mark.security
async def test_large_connections_run_over_a_slow_link(world: World) -> None:
    """In one answer they would take twice the time that a command has."""
    await add_large(world, 25, MEGABYTE)
    reader = Reader()
    async with (
        slow_link(world.url, megabits=10) as url,
        open_world(url, clock=world.clock, connectors=[reader]) as worker,
    ):
        assert await worker.engine.run_due() == 25

    assert len(reader.seen) == 25


@pytest.mark.security
async def test_connections_that_take_too_long_together_are_scheduled_in_parts(
    world: World,
) -> None:
    """As a hundred with five megabytes of metadata do: the whole batch is beyond the timeout, and
    the session that tried it must have let go of them before the parts are tried."""
    for _ in range(40):
        await world.connection()
    await world.sql(SLOW_DOWN)
    try:
        await world.sql(EACH_UPDATE)
        assert (await world.tick("12:00")).scheduled == 40
    finally:
        await world.sql("DROP FUNCTION {schema}.slow_down CASCADE")
