"""Database sessions that take turns in a written order, and proof that one of them waits."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from uuid import UUID, uuid4

import asyncpg

from support.fakes import HeldRun, HeldStream, eventually
from support.world import World
from syncline import Connection
from syncline.policy.lines import Lines
from syncline.store.pool import Transaction
from syncline.store.queue import claims
from syncline.store.queue.claims import Claim, ClaimRequest, Lease
from syncline.store.statements import Statements

PATIENCE_SECONDS = 10
Result = TypeVar("Result")

COUNT_WAITING = """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


class Actor:
    """A session with an open transaction, which ends when the test says so."""

    def __init__(self, session: Any, world: World) -> None:
        self._session = session
        self._qualified = world.qualified
        self.tx = Transaction(session, Statements(world.settings.schema))

    async def begin(self, isolation: str = "READ COMMITTED") -> None:
        await self._session.execute(f"BEGIN ISOLATION LEVEL {isolation}")

    async def sql(self, statement: str, *arguments: Any) -> Any:
        return await self._session.fetch(self._qualified(statement), *arguments)

    async def script(self, statements: str) -> None:
        """Run several statements, without arguments."""
        await self._session.execute(self._qualified(statements))

    async def lock(self, connection: Connection) -> None:
        """Take the lock that everybody takes who touches a connection and its jobs."""
        await self.sql(
            "SELECT FROM {schema}.connections WHERE id = $1 FOR NO KEY UPDATE", connection.id
        )

    async def lock_job(self, job_id: UUID) -> None:
        """Let whoever settles the job come as far as its row, with the connection in hand."""
        await self.sql("SELECT FROM {schema}.sync_jobs WHERE id = $1 FOR NO KEY UPDATE", job_id)

    async def insert_job(self, connection: Connection) -> None:
        """Insert a job as a person would, with its key columns alone."""
        await self.sql(
            "INSERT INTO {schema}.sync_jobs (tenant_id, provider_slug, connection_id)"
            " VALUES ($1, $2, $3)",
            *(connection.tenant_id, connection.provider_slug, connection.id),
        )

    async def commit(self) -> None:
        await self._session.execute("COMMIT")

    async def rollback(self) -> None:
        await self._session.execute("ROLLBACK")


@asynccontextmanager
async def actor(world: World, isolation: str = "READ COMMITTED") -> AsyncIterator[Actor]:
    """Yield a session with an open transaction; roll it back if the test leaves it open."""
    async with world.session() as session:
        acting = Actor(session, world)
        await acting.begin(isolation)
        yield acting


async def made_to_wait(world: World, work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
    """Start the work, and return it once it waits for a lock.

    Locks are granted in the order in which they were asked for, so of two pieces of work that
    were made to wait for one row, the first goes on first.
    """
    waiting = await count_waiting(world)
    task = asyncio.create_task(work)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await count_waiting(world) <= waiting:
            assert not task.done(), "it did not have to wait"
    return task


async def ended_into_waiting(world: World, run: HeldRun | HeldStream) -> None:
    """Let a run end, and return once its settle waits for a lock that somebody holds."""
    waiting = await count_waiting(world)
    run.let_go.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await count_waiting(world) <= waiting:
            pass


async def ended_into_being_held(run: HeldRun) -> None:
    """Let a run end, and return once its settle has found the connection locked."""
    assert run.engine is not None
    settle_queue = run.engine._worker.settle_queue
    run.let_go.set()
    await eventually(lambda: settle_queue.blocked == 1)


async def count_waiting(world: World) -> int:
    [row] = await world.sql(COUNT_WAITING)
    count: int = row["count"]
    return count


async def due_connection(world: World, **given: Any) -> tuple[Connection, UUID]:
    """Add a connection with a job that is due."""
    connection = await world.connection(**given)
    return connection, await world.job(connection)


async def claim(tx: Transaction, world: World, *, limit: int = 10) -> list[Claim]:
    """Claim as the world's engine would, in a transaction that the test owns."""
    lease = Lease(uuid4(), world.clock(), world.settings.executor.lease)
    flight_by_type = world.settings.executor.single_flight == "job_type"
    lines = Lines(["github"]).columns(from_start=True)
    request = ClaimRequest(["github"], limit, 1, flight_by_type, lines)
    found = await claims.claim(tx, request, lease)
    return claims.read_claims(found.jobs, lease.token)


async def take_over(tx: Transaction, world: World) -> list[Claim]:
    """Take lapsed leases over as the reaper of the world's engine would."""
    lease = Lease(uuid4(), world.clock(), world.settings.executor.lease)
    return await claims.take_over(tx, lease, now=world.clock(), limit=10)


async def count_deadlocks(url: str, *, waiting: bool = True) -> int:
    """Return how many deadlocks the database has seen, by default once all engines have left.

    A session reports what it has seen when it leaves, if not before.
    """
    session = await asyncpg.connect(url)
    others = """
        SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()
           AND application_name LIKE 'syncline%'
    """
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while waiting and await session.fetchval(others):
                pass
        await session.execute("SELECT pg_stat_clear_snapshot()")
        count: int = await session.fetchval(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
    finally:
        await session.close()
    return count
