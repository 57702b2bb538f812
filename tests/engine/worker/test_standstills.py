"""What somebody holds, or the database cannot take, holds up itself alone."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from support.fakes import eventually
from support.sessions import actor
from support.sessions import claim as claim_due
from support.slow_link import slow_link
from support.world import World, at
from syncline import Connection, Connector, Signal, SyncResult
from syncline.clock import Dice, clock_from, new_id
from syncline.engine.context import EngineContext
from syncline.engine.worker.runs import Runs
from syncline.engine.worker.settle import Settlement, Settler
from syncline.engine.worker.settle_queue import SettleQueue
from syncline.engine.worker.settle_retry import SettleRetry
from syncline.policy.concurrency import FEW_UNSETTLED
from syncline.policy.outcome import Raised
from syncline.sdk.page import Page
from syncline.store.checks.invariants import BROKEN
from syncline.store.data import signals
from syncline.store.errors import PASSING, is_passing
from syncline.store.listener import Listener
from syncline.store.pool import Pool, SessionOptions, Transaction, seconds_for
from syncline.store.queue.claims import Claim
from syncline.store.statements import Statements
from syncline.telemetry.engine import Telemetry

WAITING = """
    SELECT query FROM pg_catalog.pg_stat_activity
     WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


TAKE_FIVE_AT_ONCE = """
    CREATE FUNCTION public.take_five() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF (SELECT count(*) FROM inserted) > 5 THEN
                RAISE EXCEPTION 'canceling statement due to statement timeout'
                    USING ERRCODE = 'query_canceled';
            END IF;
            RETURN NULL;
        END $$;
    CREATE TRIGGER take_five AFTER INSERT ON syncline.sync_jobs
        REFERENCING NEW TABLE AS inserted
        FOR EACH STATEMENT EXECUTE FUNCTION public.take_five()
"""


class Moving(Connector):
    """Brings a new cursor each time, so that each settle needs its connection."""

    provider = "github"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        return SyncResult([Signal("seen", at("11:00"), {})], next_cursor=(cursor or 0) + 1)


async def add_due(world: World, count: int) -> list[UUID]:
    """Add connections with a job that is due, and return their ids."""
    ids = [uuid4() for _ in range(count)]
    await world.sql(
        "INSERT INTO {schema}.connections (id, tenant_id, provider_slug, external_id)"
        " SELECT id, 'acme', 'github', id::text FROM unnest($1::uuid[]) AS id",
        ids,
    )
    await world.sql(
        "INSERT INTO {schema}.sync_jobs (tenant_id, provider_slug, connection_id, scheduled_at)"
        " SELECT 'acme', 'github', id, $2 FROM unnest($1::uuid[]) AS id",
        ids,
        world.clock(),
    )
    return ids


async def count_unsettled(world: World, ids: Sequence[UUID]) -> int:
    [[count]] = await world.sql(
        "SELECT count(*) FROM {schema}.sync_jobs"
        " WHERE connection_id = ANY ($1) AND status <> 'succeeded'",
        ids,
    )
    return int(count)


async def test_rows_that_somebody_holds_hold_up_nobody_else(world: World) -> None:
    """E1, S8: more held connections than may wait to be settled, and a pool of ten."""
    count = FEW_UNSETTLED + 25
    held = await add_due(world, count)
    world.clock.advance(1)  # the others come after all of them
    free = await add_due(world, 40)
    async with world.another_engine([Moving()], executor={"concurrency": 10}) as worker:
        async with actor(world) as person:
            await person.sql(
                "SELECT FROM {schema}.connections WHERE id = ANY ($1) FOR UPDATE", held
            )
            running = asyncio.create_task(worker.engine.run_due())
            await eventually(lambda: nothing_left(world, free))
            assert await count_unsettled(world, held) == count
        await running

    assert await count_unsettled(world, held) == 0
    assert await world.engine.verify() == []


async def nothing_left(world: World, ids: Sequence[UUID]) -> bool:
    return await count_unsettled(world, ids) == 0


async def test_a_job_that_somebody_holds_is_settled_once_it_is_let_go(world: World) -> None:
    started, let_go = asyncio.Event(), asyncio.Event()

    class Waiting(Moving):
        async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
            started.set()
            await let_go.wait()
            return await super().sync(connection, cursor)

    [held, free] = await add_due(world, 2)
    async with world.another_engine([Waiting()]) as worker:
        running = asyncio.create_task(worker.engine.run_due())
        await started.wait()
        async with actor(world) as person:
            await person.sql(
                "SELECT FROM {schema}.sync_jobs WHERE connection_id = $1 FOR UPDATE", held
            )
            let_go.set()
            await eventually(lambda: nothing_left(world, [free]))
        await running

    assert await count_unsettled(world, [held]) == 0


async def test_a_held_page_of_a_stream_keeps_no_session_from_others(world: World) -> None:
    class Streaming(Connector):
        provider = "github"

        async def sync(self, connection: Connection, cursor: Any) -> Any:
            yield SyncResult([Signal("seen", at("11:00"), {})], next_cursor=1)

    held, free = await add_due(world, 30), await add_due(world, 30)
    async with world.another_engine([Streaming()]) as worker:
        async with actor(world) as person:
            await person.sql(
                "SELECT FROM {schema}.connections WHERE id = ANY ($1) FOR UPDATE", held
            )
            running = asyncio.create_task(worker.engine.run_due())
            await eventually(lambda: nothing_left(world, free))
            assert await world.sql(WAITING) == []
        await running

    assert await count_unsettled(world, held) == 0


@pytest.mark.parametrize("table", ["connections", "sync_jobs"])
async def test_a_stream_that_waits_for_a_held_row_lends_its_slot(world: World, table: str) -> None:
    """E1: with one slot, the next job runs beside a stream whose page cannot be committed."""
    started, rows_are_held = asyncio.Event(), asyncio.Event()

    class Streaming(Connector):
        provider = "github"

        async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
            if connection.id == held:
                started.set()
                await rows_are_held.wait()
            yield SyncResult([Signal("seen", at("11:00"), {})], next_cursor=1)

    [held] = await add_due(world, 1)
    async with world.another_engine([Streaming()], executor={"concurrency": 1}) as worker:
        running = asyncio.create_task(worker.engine.run_due())
        await started.wait()
        async with actor(world) as person:
            column = "id" if table == "connections" else "connection_id"
            await person.sql(f"SELECT FROM {{schema}}.{table} WHERE {column} = $1 FOR UPDATE", held)
            rows_are_held.set()
            free = await add_due(world, 3)
            await eventually(lambda: nothing_left(world, free))
            assert await count_unsettled(world, [held]) == 1
        await running

    assert await count_unsettled(world, [held]) == 0


async def test_one_held_row_does_not_delay_the_reaping_of_others(world: World) -> None:
    connections = [await world.connection() for _ in range(5)]
    for connection in connections:
        await world.running_job(connection)
    world.clock.advance(seconds=31)
    async with world.another_engine(connectors=()) as reaper:  # which claims nothing
        async with actor(world) as person:
            await person.lock(connections[2])
            async with asyncio.timeout(2):
                await reaper.run_due()

            queued = await world.sql("SELECT FROM {schema}.sync_jobs WHERE status = 'queued'")
            assert len(queued) == 4
        await reaper.run_due()
    assert await world.sql("SELECT FROM {schema}.sync_jobs WHERE status = 'running'") == []


async def test_a_settle_passes_by_a_job_that_somebody_holds(world: World) -> None:
    """In the reaper, and when rows that were held are tried again: nothing is waited for."""
    [held, free] = await add_due(world, 2)
    async with actor(world) as worker:
        group = [Settlement(one, PAGE) for one in await claim_due(worker.tx, world)]
        await worker.commit()
    async with actor(world) as person, open_pool(world) as pool:
        await person.sql("SELECT FROM {schema}.sync_jobs WHERE connection_id = $1 FOR UPDATE", held)
        clock, dice = clock_from(world.clock), Dice(world.dice)
        settler = Settler(EngineContext(pool, world.settings, clock, dice, Telemetry()))
        async with asyncio.timeout(1):
            await settler.settle_retrying(group)

    assert {one.claim.connection_id: one.is_blocked for one in group} == {held: True, free: False}
    assert await count_unsettled(world, [held, free]) == 1


@asynccontextmanager
async def open_pool(world: World, **options: Any) -> AsyncIterator[Pool]:
    """Lend a pool beside that of the world's engine."""
    pool = Pool(options.pop("url", world.url), world.schema, size=1, **options)
    await pool.open()
    try:
        yield pool
    finally:
        await pool.close()


async def broken(world: World) -> list[str]:
    """Return the names of the broken invariants, after a second look without a pause."""
    findings = await world.engine.doctor.judge(recheck_after=timedelta())
    return [found.name for found in findings if found.verdict == BROKEN]


async def test_verify_does_not_blame_the_reaper_for_a_row_that_somebody_holds(
    world: World,
) -> None:
    held, other = await world.connection(), await world.connection()
    await world.running_job(held)
    world.clock.advance(seconds=40)
    await world.running_job(other)
    world.clock.advance(seconds=30)
    await world.sql(  # its worker lives
        "UPDATE {schema}.sync_jobs SET lease_expires_at = $2 WHERE connection_id = $1",
        other.id,
        world.clock() + timedelta(seconds=30),
    )
    async with actor(world) as person:
        await person.sql(
            "SELECT FROM {schema}.sync_jobs WHERE connection_id = $1 FOR UPDATE", held.id
        )
        assert await broken(world) == []

    assert await broken(world) == ["lapse_is_reaped"]


async def test_the_server_waits_longer_for_a_large_statement_than_we_do(world: World) -> None:
    """Else it ends the session, and nobody knows that the statement took too long."""
    async with open_pool(world) as pool, pool.transaction() as tx:
        await tx.send_large(200_000)
        shown = await tx.fetchval(
            "SELECT extract(epoch FROM"
            " current_setting('idle_in_transaction_session_timeout')::interval)::float8"
        )

    assert shown >= seconds_for(200_000) + 1


class NotingSession:
    """A session that notes how many signals each statement stores, and how long it may take."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.inserted: list[tuple[int, float | None]] = []

    async def execute(self, query: str, *arguments: Any, timeout: float | None = None) -> Any:
        if "INSERT INTO" in query:
            self.inserted.append((len(arguments[8]), timeout))
        return await self._session.execute(query, *arguments, timeout=timeout)


async def test_a_page_of_many_bytes_is_stored_in_many_statements(world: World) -> None:
    """Each of them arrives in time over a slow link, and is encoded in a few milliseconds."""
    connection = await world.connection()
    sizes = [100_000, 0, 300_000, 900_000, 0, 200_000]
    async with world.session() as session, session.transaction():
        noting = NotingSession(session)
        tx = Transaction(noting, Statements(world.schema))
        assert await signals.insert(tx, columns_of(connection, sizes)) == len(sizes)

    assert [count for count, _ in noting.inserted] == [2, 1, 1, 2]  # the small ones go together
    # A single one beyond the bound gets the time that a slow link needs for it.
    assert [timeout and round(timeout) for _, timeout in noting.inserted] == [None, 16, 28, None]
    stored = [len(signal.payload["t"]) for signal in await world.signals(connection)]
    assert stored == sizes


async def test_signals_of_several_jobs_keep_their_job_when_they_are_split(world: World) -> None:
    connections = [await world.connection() for _ in range(3)]
    columns, jobs = signals.Columns(), {}
    for connection in connections:
        one = columns_of(connection, [100_000] * 3)
        (claim, count), *_ = one.jobs
        columns.add(claim, one.page, one.ids)
        jobs[connection.id] = claim.id, count
    async with world.session() as session, session.transaction():
        noting = NotingSession(session)
        await signals.insert(Transaction(noting, Statements(world.schema)), columns)

    assert [count for count, _ in noting.inserted] == [2, 2, 2, 2, 1]  # across their bounds
    for connection in connections:
        stored = await world.signals(connection)
        assert ({signal.job_id for signal in stored}, len(stored)) == (
            {jobs[connection.id][0]},
            jobs[connection.id][1],
        )


@pytest.mark.parametrize("size", [50_000, 400_000], ids=["one statement", "two"])
async def test_a_statement_that_is_long_on_its_way_is_not_idle(world: World, size: int) -> None:
    """The server sees no difference; many sessions may share a slow link."""
    columns = columns_of(await world.connection(), [size // 2] * 2)
    impatient = SessionOptions(idle_in_transaction=timedelta(seconds=0.1))
    async with (
        slow_link(world.url, megabits=2) as url,
        open_pool(world, url=url, options=impatient) as pool,
        pool.transaction() as tx,
    ):
        assert await signals.insert(tx, columns) == 2


def columns_of(connection: Connection, sizes: Sequence[int]) -> signals.Columns:
    """Return signals with payloads of these sizes."""
    count = len(sizes)
    payloads = [json.dumps({"t": "x" * size}) for size in sizes]
    claim = replace(claimed(), tenant_id=connection.tenant_id, connection_id=connection.id)
    columns = signals.Columns()
    page = Page(["seen"] * count, [at("11:00")] * count, payloads, [None] * count)
    columns.add(claim, page, new_id.many(count))
    return columns


class ScriptedSettler:
    """Settles but for some connections, as a slow or stubborn database would."""

    server_answered_at = float("inf")

    def __init__(self, refusals: dict[UUID, Exception]) -> None:
        self.refusals = refusals
        self.groups: list[int] = []
        self.settled: dict[UUID, Any] = {}

    async def settle(self, group: Sequence[Settlement], *, lock_jobs: bool = False) -> None:
        self.groups.append(len(group))
        for one in group:
            refusal = self.refusals.get(one.claim.connection_id)
            if refusal is not None and isinstance(one.ending, Page):
                raise refusal
        for one in group:
            self.settled[one.claim.connection_id] = one.ending


class Ending:
    """Runs that end with a page, and the queue that settles them."""

    def __init__(self, settler: ScriptedSettler, **options: Any) -> None:
        telemetry = Telemetry(tenant_label=False, cell="test")
        given: dict[str, Any] = {"lease_seconds": 30, **options}
        self.settle_queue = SettleQueue(settler, telemetry, **given)  # type: ignore[arg-type]
        self.runs = Runs(self.settle_queue, asyncio.Event(), asyncio.Event())

    def end(self, claim: Claim, page: Page) -> None:
        run = self.runs.add(claim, leased_since=0)
        run.end(page)
        self.settle_queue.put(run)

    async def settle_all(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self.end(claim, PAGE)
        await self.runs.wait_until_settled()


def claimed() -> Claim:
    values: dict[str, Any] = dict.fromkeys(Claim.__slots__, 0)
    return Claim(**{**values, "id": uuid4(), "connection_id": uuid4(), "provider_slug": "github"})


PAGE = Page(
    kinds=["seen"],
    occurred_at=[at("11:00")],
    payloads=["{}"],
    dedupe_keys=[None],
    payload_bytes=2,
)


async def test_the_queue_knows_the_size_of_the_pages_that_wait() -> None:
    ending = Ending(ScriptedSettler({}))
    claims = [claimed() for _ in range(3)]
    for claim in [*claims, claims[0]]:  # the last one has to wait for the first one's group
        ending.end(claim, replace(PAGE, payload_bytes=1000))
    assert ending.settle_queue.waiting_bytes == 4000

    await ending.runs.wait_until_settled()
    assert ending.settle_queue.waiting_bytes == 0


async def test_a_group_that_takes_too_long_is_split_and_the_culprit_fails() -> None:
    claims = [claimed() for _ in range(20)]
    culprit = claims[11].connection_id
    settler = ScriptedSettler({culprit: TimeoutError()})
    ending = Ending(settler)

    await ending.settle_all(claims)

    refused = {id_ for id_, ending in settler.settled.items() if isinstance(ending, Raised)}
    assert refused == {culprit}
    assert len(settler.settled) == 20
    assert "return smaller pages" in str(settler.settled[culprit].error)


async def test_a_timeout_while_nobody_is_answered_is_an_outage() -> None:
    retry = SettleRetry(lease_seconds=30)
    for _ in range(30):
        assert not retry.must_end(TimeoutError(), server_answered_at=0)


async def test_an_unknown_error_keeps_the_page_for_as_long_as_a_lease() -> None:
    """E9: what nobody has heard of may pass; a page is not thrown away for it at once."""
    [claim] = claims = [claimed()]
    settler = ScriptedSettler({claim.connection_id: asyncpg.InsufficientPrivilegeError("revoked")})
    ending = Ending(settler, lease_seconds=0.4)

    await ending.settle_all(claims)

    assert len(settler.groups) >= 3
    assert isinstance(settler.settled[claim.connection_id], Raised)


async def test_large_pages_do_not_keep_small_ones_waiting() -> None:
    large, small = [claimed() for _ in range(3)], [claimed() for _ in range(3)]
    unlocked = asyncio.Event()

    class Slow(ScriptedSettler):
        async def settle(self, group: Sequence[Settlement], *, lock_jobs: bool = False) -> None:
            if group[0].claim in large:
                await unlocked.wait()
            await super().settle(group, lock_jobs=lock_jobs)

    settler = Slow({})
    ending = Ending(settler)
    for claim in large:
        page = Page(kinds=["seen"], payloads=["{}"], payload_bytes=20_000_000)
        ending.end(claim, page)
    for claim in small:
        ending.end(claim, PAGE)
    await eventually(lambda: len(settler.settled) == 3)

    assert settler.settled.keys() == {claim.connection_id for claim in small}
    unlocked.set()
    await ending.runs.wait_until_settled()


class Waiting(ScriptedSettler):
    """Does not settle the first group until it is told to."""

    def __init__(self) -> None:
        super().__init__({})
        self.may_go_on = asyncio.Event()

    async def settle(self, group: Sequence[Settlement], *, lock_jobs: bool = False) -> None:
        if not self.groups:
            self.groups.append(len(group))
            await self.may_go_on.wait()
        await super().settle(group, lock_jobs=lock_jobs)


async def test_a_group_that_is_stuck_does_not_keep_the_others_waiting() -> None:
    first, *others = [claimed() for _ in range(4)]
    settler = Waiting()
    ending = Ending(settler)
    ending.end(first, PAGE)
    await eventually(lambda: settler.groups == [1])
    for claim in others:
        ending.end(claim, PAGE)
    await eventually(lambda: len(settler.settled) == 3)

    assert first.connection_id not in settler.settled
    settler.may_go_on.set()
    await ending.runs.wait_until_settled()


async def test_the_few_runs_that_end_during_a_group_are_settled_together() -> None:
    settler = Waiting()
    ending = Ending(settler)
    ending.end(claimed(), PAGE)
    await eventually(lambda: settler.groups == [1])
    for _ in range(4):
        ending.end(claimed(), PAGE)
        await asyncio.sleep(0)
    settler.may_go_on.set()
    await ending.runs.wait_until_settled()

    assert settler.groups == [1, 1, 4]


async def test_no_other_group_waits_for_a_lock_that_somebody_holds() -> None:
    held, free = claimed(), claimed()
    waited: dict[UUID, bool] = {}

    class Noting(ScriptedSettler):
        async def settle(self, group: Sequence[Settlement], *, lock_jobs: bool = False) -> None:
            waited.update((one.claim.connection_id, not lock_jobs) for one in group)
            await super().settle(group, lock_jobs=lock_jobs)

    settler = Noting({held.connection_id: asyncpg.LockNotAvailableError("held")})
    ending = Ending(settler)
    ending.end(held, PAGE)
    await eventually(lambda: ending.settle_queue.blocked == 1)
    ending.end(free, PAGE)
    await eventually(lambda: free.connection_id in settler.settled)
    settler.refusals.clear()
    await ending.runs.wait_until_settled()

    assert waited[free.connection_id] is False


async def test_held_pages_do_not_fill_the_memory() -> None:
    """They excuse nobody once they are too large: then nothing more is claimed."""
    held = [claimed() for _ in range(6)]
    is_held = asyncpg.LockNotAvailableError("held")
    settler = ScriptedSettler({claim.connection_id: is_held for claim in held})
    ending = Ending(settler, max_blocked_bytes=4 * PAGE.payload_bytes)
    for claim in held[:4]:
        ending.end(claim, PAGE)
    await eventually(lambda: ending.settle_queue.excused == 4)

    for claim in held[4:]:
        ending.end(claim, PAGE)
    await eventually(lambda: ending.settle_queue.blocked == 6)
    assert ending.settle_queue.excused == 0
    settler.refusals.clear()
    await ending.runs.wait_until_settled()
    assert ending.settle_queue.blocked == 0


async def test_a_group_is_bounded_by_bytes() -> None:
    claims = [claimed() for _ in range(6)]
    settler = ScriptedSettler({})
    ending = Ending(settler)
    for claim in claims:
        page = Page(kinds=["seen"], payloads=["{}"], payload_bytes=3_000_000)
        ending.end(claim, page)
    await ending.runs.wait_until_settled()

    assert max(settler.groups) == 2


@pytest.mark.parametrize("code", ["28000", "28P01", "55000", "25006", "57P03", "53300", "08006"])
async def test_a_refusal_by_the_server_passes(code: str) -> None:
    """E9: logins that are refused, a server that is read-only or not ready, cost time only."""
    error = asyncpg.PostgresError.new({"C": code, "M": "refused", "S": "FATAL"})

    assert is_passing(error)
    assert all(PASSING.values())


async def test_a_batch_that_is_too_much_for_the_server_is_scheduled_in_parts(world: World) -> None:
    connections = [await world.connection() for _ in range(20)]
    async with world.session() as session:
        await session.execute(TAKE_FIVE_AT_ONCE)
        try:
            assert (await world.tick("12:00")).scheduled == len(connections)
        finally:
            await session.execute("DROP FUNCTION public.take_five CASCADE")


async def test_connections_with_large_metadata_are_scheduled_with_the_others(
    world: World,
) -> None:
    heavy = [await world.connection() for _ in range(3)]
    await world.sql(
        "UPDATE {schema}.connections SET metadata = $1",
        json.dumps({"notes": ["a note " * 20] * 30_000}),
    )
    light = [await world.connection() for _ in range(3)]

    assert (await world.tick("12:00")).scheduled == len(heavy + light)


@pytest.mark.parametrize("pgbouncer", [False, True], ids=["own sessions", "behind a pooler"])
async def test_the_isolation_is_ours_whatever_the_server_says(
    database_url: str, pgbouncer: bool
) -> None:
    session = await asyncpg.connect(database_url)
    name = await session.fetchval("SELECT quote_ident(current_database())")
    default = "default_transaction_isolation"
    await session.execute(f"ALTER DATABASE {name} SET {default} = 'serializable'")
    pool = Pool(database_url, "syncline", size=1, options=SessionOptions(pgbouncer))
    await pool.open()
    try:
        async with pool.transaction() as tx:
            assert await tx.fetchval("SHOW transaction_isolation") == "read committed"
        async with pool.statement() as tx:
            assert await tx.fetchval("SHOW transaction_isolation") == "read committed"
    finally:
        await pool.close()
        await session.execute(f"ALTER DATABASE {name} RESET {default}")
        await session.close()


async def test_jobs_whose_backoff_has_ended_stand_in_line_with_fresh_ones(world: World) -> None:
    """E1: by priority, time and id, however they came to be due."""
    order = [
        {"priority": 5, "scheduled_at": at("11:50"), "retry_after": at("11:59")},
        {"priority": 5, "scheduled_at": at("11:55")},
        {"priority": 0, "scheduled_at": at("10:00"), "retry_after": at("11:58")},
        {"priority": 0, "scheduled_at": at("11:00")},
        {"priority": 0, "scheduled_at": at("11:30"), "retry_after": at("11:31")},
    ]
    expected: list[UUID] = []
    for columns in reversed(order):
        connection = await world.connection()
        await world.job(connection, attempts=1, **columns)
        expected.insert(0, connection.id)
    still_waiting = await world.connection()
    await world.job(still_waiting, attempts=1, retry_after=at("12:01"))
    world.script(*[SyncResult()] * len(order))

    assert await world.run_due("12:00") == len(order)

    assert [connection_id for connection_id, _ in world.connector.calls] == expected
    assert (await world.pending(still_waiting)).retry_after == at("12:01")


async def test_the_delay_of_a_retry_counts_from_the_end_of_its_wait(world: World) -> None:
    connection = await world.connection()
    await world.job(connection, attempts=1, scheduled_at=at("11:00"), retry_after=at("11:59:50"))
    world.script(SyncResult())

    await world.run_due("12:00")

    delay = world.engine.telemetry.registry.get_sample_value(
        "sync_executor_claim_delay_seconds_sum", {"provider_slug": "github"}
    )
    assert delay == 10


async def test_a_scheduler_that_was_stopped_ticks_again(world: World) -> None:
    """Also where it could not say so, because the database was away, or where none had run."""
    await world.connection()
    world.engine.stop()
    await world.engine.run(handle_signals=False, scheduler=False)

    assert (await world.tick("12:00")).scheduled == 1


async def test_listening_that_failed_at_first_is_tried_again(world: World) -> None:
    heard: list[str] = []
    settings = {"application_name": "listener"}
    listener = Listener(world.url, "", heard.append, settings)  # no channel has an empty name
    with pytest.raises(asyncpg.PostgresError):
        await listener.keep_listening()
    with pytest.raises(asyncpg.PostgresError):
        await listener.keep_listening()

    listener.close()
