"""Database sessions and transactions."""

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import asyncpg

from syncline.clock import monotonic, pause
from syncline.errors import TooSlow
from syncline.store.connect import SEARCH_PATH, connect
from syncline.store.errors import is_passing
from syncline.store.plan_settings import PLANNED_FOR_ITSELF, PLANNED_FREELY, PLANNED_ONCE
from syncline.store.statements import Statements, milliseconds, quote_name, quote_text

T = TypeVar("T")

# Another open transaction must not delay us for long. But this is longer than Postgres takes to
# detect a deadlock, because that error says more.
LOCK_TIMEOUT_MILLISECONDS = "2000"
COMMAND_TIMEOUT_SECONDS = 10.0  # a half-open socket is noticed no later than this
SLOWEST_LINK = 50_000  # bytes a second; large statements get time in proportion
TRIES = 6
# The locks and snapshots below are written for this isolation, whatever the server's default is.
ISOLATION = "read committed"
BEGIN = f"BEGIN ISOLATION LEVEL {ISOLATION}"
EVERY_TENANT = "*"
# A request's statements run as another role. A different text keeps Postgres from planning a
# statement again whenever a request and a loop alternate on one session.
OF_A_REQUEST = "-- of a request"


def seconds_for(size: int) -> float:
    """Return how long a statement or an answer of this many bytes may take."""
    return COMMAND_TIMEOUT_SECONDS + size / SLOWEST_LINK


class Transaction:
    """An open transaction; puts the schema's name into each statement the first time it is used."""

    def __init__(self, connection: Any, statements: Statements) -> None:
        self._connection = connection
        self._statements = statements

    async def fetch(self, statement: str, *arguments: Any, timeout: float | None = None) -> Any:
        return await self._connection.fetch(
            self._statements[statement], *arguments, timeout=timeout
        )

    async def fetchrow(self, statement: str, *arguments: Any, timeout: float | None = None) -> Any:
        return await self._connection.fetchrow(
            self._statements[statement], *arguments, timeout=timeout
        )

    async def fetchval(self, statement: str, *arguments: Any, timeout: float | None = None) -> Any:
        return await self._connection.fetchval(
            self._statements[statement], *arguments, timeout=timeout
        )

    async def execute(self, statement: str, *arguments: Any, timeout: float | None = None) -> int:
        """Return how many rows the statement touched."""
        tag = await self._connection.execute(
            self._statements[statement], *arguments, timeout=timeout
        )
        return int(tag.rpartition(" ")[2])

    async def send_large(self, size: int) -> None:
        """Let statements of this many bytes arrive over a slow link.

        To the server, a session whose statement is still arriving is idle in its transaction. The
        server waits longer than we do, so a slow statement ends as a timeout, after which the
        batch is split, and not as a lost session.
        """
        seconds = seconds_for(size)
        await self._connection.execute(
            "SELECT pg_catalog.set_config('idle_in_transaction_session_timeout', $1, true)",
            str(int((seconds + COMMAND_TIMEOUT_SECONDS) * 1000)),
        )

    async def limit(self, *, lock: timedelta, statement: timedelta) -> None:
        """Limit how long each statement of this transaction waits for a lock, and its duration.

        The server ends it, and so releases its locks before the statement is tried again.
        """
        await self._connection.execute(
            "SELECT set_config('lock_timeout', $1, true),"
            " set_config('statement_timeout', $2, true)",
            *(milliseconds(limit) for limit in (lock, statement)),
        )

    def qualified(self, table: str) -> str:
        """Return a table's name, qualified by the schema."""
        return f"{self._statements.schema}.{quote_name(table)}"

    async def notify(self, channel: str) -> None:
        await self._connection.execute("SELECT pg_notify($1, '')", channel)

    async def is_read_only(self) -> bool:
        """Return whether the server is a standby, or set to read-only."""
        mode: str = await self._connection.fetchval("SHOW transaction_read_only")
        return mode == "on"

    async def database_time(self) -> datetime:
        now: datetime = await self._connection.fetchval("SELECT clock_timestamp()")
        return now


SessionLease = Callable[[], AbstractAsyncContextManager[Transaction]]
"""Opens a transaction in the session that its owner keeps."""

Check = Callable[[Transaction], Awaitable[None]]
"""Raises unless the engine can work on the schema."""

FindRole = Callable[[Transaction], Awaitable[str | None]]
"""Returns the role that requests take on; None if there is none."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How the sessions of a pool behave."""

    pgbouncer: bool = False  # a pooler shares sessions, so each transaction sets its own options
    idle_in_transaction: timedelta = timedelta(seconds=10)
    planned_for: timedelta = timedelta(seconds=5)  # how long a plan is used before the next one
    read_timeout: timedelta = timedelta(seconds=5)  # for listings that people ask for
    portable: bool = False  # no setting says how to plan: another node would lose it


@dataclass(frozen=True, slots=True)
class SchemaChecks:
    """What a pool asks the database before its first use, and before its first request."""

    check: Check | None = None
    find_request_role: FindRole | None = None


OWN_SESSIONS = SessionOptions()
UNCHECKED = SchemaChecks()


@dataclass(slots=True)
class _Found:
    """What a pool, and its copies for requests, know about the database."""

    is_checked: bool = False
    looked_for_role: bool = False
    request_role: str | None = None


class Pool:
    """The connections of one engine to one schema of one database."""

    def __init__(
        self,
        url: str,
        schema: str,
        *,
        size: int,
        options: SessionOptions = OWN_SESSIONS,
        checks: SchemaChecks = UNCHECKED,
    ) -> None:
        self.url = url
        self.schema = schema
        self._size = size
        self._pgbouncer = options.pgbouncer
        self._portable = options.portable
        self._idle_milliseconds = milliseconds(options.idle_in_transaction)
        self._planned_for = options.planned_for
        self._read_timeout = options.read_timeout
        self._statements = Statements(schema)
        self._request_statements = Statements(schema, OF_A_REQUEST)
        self._check = checks.check
        self._find_request_role = checks.find_request_role
        self._found = _Found()
        self._request_tenant: str | None = None  # whose rows a request sees; None: not a request
        self._own: Pool | None = None
        self._pool: Any = None
        self.answered_at = 0.0  # when the server last answered, by monotonic()
        # However many people read, half of the sessions stay free for work.
        self._readers = asyncio.Semaphore(max(1, size // 2))

    async def open(self) -> None:
        """Connect once, so that a wrong address is found at once; more follow as needed."""
        self._pool = await asyncpg.create_pool(  # type: ignore[call-overload]  # of `connect`
            self.url,
            connect=connect,
            min_size=0,  # otherwise the pool would report every outage in its own way
            max_size=self._size,
            command_timeout=COMMAND_TIMEOUT_SECONDS,
            timeout=COMMAND_TIMEOUT_SECONDS,
            statement_cache_size=0 if self._pgbouncer else 100,
            max_cached_statement_lifetime=self._planned_for.total_seconds(),
            server_settings=None if self._pgbouncer else self.session_settings,
            reset=_keep_session,
        )
        async with self.connection():
            pass

    async def close(self) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None

    def for_request(self, tenant_id: str | None) -> "Pool":
        """Return a pool for one request, which sees the rows of a tenant, or with None all rows.

        Its transactions run as the role for requests, if there is one. It shares everything else
        with this pool, which stays as it is.
        """
        if tenant_id == EVERY_TENANT:
            raise ValueError(
                f"a tenant must not be named {EVERY_TENANT!r}, which means all of them"
            )
        pool = copy.copy(self)
        pool._own = self
        pool._request_tenant = EVERY_TENANT if tenant_id is None else tenant_id
        return pool

    @property
    def own(self) -> "Pool":
        """The engine's own pool, also within a request, for queries that show no tenant's data."""
        return self._own or self

    @asynccontextmanager
    async def transaction(self, *, is_bounded: bool = False) -> AsyncIterator[Transaction]:
        """Open a transaction that commits at the end, or rolls back whole."""
        async with self.connection() as connection:
            await self._check_once(connection)
            role = await self._role(connection)
            async with self._begin(connection, role, is_bounded=is_bounded) as tx:
                yield tx

    @asynccontextmanager
    async def _begin(
        self, connection: Any, role: str | None, *, is_bounded: bool = False
    ) -> AsyncIterator[Transaction]:
        try:
            await connection.execute(self._opening(role, is_bounded))
            yield Transaction(connection, self._statements_as(role))
        except Exception as error:
            if not is_passing(error) and not connection.is_closed():
                await connection.execute("ROLLBACK")
            raise
        await connection.execute("COMMIT")

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[Transaction]:
        """Lend a session for one statement, which is its own transaction: one round trip."""
        async with self.session() as lend, lend() as tx:
            yield tx

    @asynccontextmanager
    async def session(self) -> AsyncIterator[SessionLease]:
        """Keep a session for several such statements, one after the other."""
        if self._pgbouncer:  # settings go with each transaction
            yield self.transaction
            return
        async with self.connection() as connection:
            await self._check_once(connection)
            role = await self._role(connection)
            if role is not None:  # a request takes the role on for one transaction
                yield partial(self._begin, connection, role)
                return
            tx = Transaction(connection, self._statements)
            yield lambda: nullcontext(tx)

    async def retrying(
        self, work: Callable[[Transaction], Awaitable[T]], *, alone: bool = False
    ) -> T:
        """Do the work in a transaction, and try again after passing errors.

        With `alone` the work is one statement, which needs no BEGIN and COMMIT.
        """
        return await self._retrying(self.statement if alone else self.transaction, work)

    async def _retrying(self, lend: SessionLease, work: Callable[[Transaction], Awaitable[T]]) -> T:
        for tries_left in reversed(range(TRIES)):
            try:
                async with lend() as tx:
                    return await work(tx)
            except Exception as error:
                if not tries_left or not is_passing(error):
                    raise
            await pause(0.05 * 2 ** (TRIES - tries_left))
        raise AssertionError("unreachable")

    async def reading(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Read for a person: each statement is planned for its own values and has a time limit.

        A listing has many filters; one plan for all of them would suit none.
        """

        async def bounded(tx: Transaction) -> T:
            try:
                return await work(tx)
            except asyncpg.QueryCanceledError:
                raise TooSlow(self._read_timeout) from None

        async with self._readers:
            return await self._retrying(partial(self.transaction, is_bounded=True), bounded)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """Lend a connection; after a passing error it is thrown away.

        A rollback over a dead socket would wait for an answer that never comes.
        """
        pool = self._pool  # it may be closed while the connection is lent
        if pool is None:
            raise RuntimeError("the engine is not open: use `async with Engine(...)`")
        async with asyncio.timeout(COMMAND_TIMEOUT_SECONDS):
            # The pool's own timeout would start a task, which runs after all that are waiting.
            connection = await pool.acquire()
        try:
            yield connection
            self.answered_at = monotonic()
        except BaseException as error:
            if is_passing(error) or not isinstance(error, Exception):
                with suppress(asyncpg.InterfaceError):  # a lost one may have left the pool
                    connection.terminate()
            if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
                # The primary was demoted: its other sessions can store nothing either.
                await pool.expire_connections()
            raise
        finally:
            await pool.release(connection)

    def _statements_as(self, role: str | None) -> Statements:
        return self._statements if role is None else self._request_statements

    def _opening(self, role: str | None, is_bounded: bool) -> str:
        """Return the statements that open a transaction, sent in one message."""
        opening = BEGIN
        if not self._portable:
            opening += PLANNED_FOR_ITSELF if is_bounded else PLANNED_FREELY
        if is_bounded:
            opening += f"; SET LOCAL statement_timeout = {milliseconds(self._read_timeout)}"
        if self._pgbouncer:
            # A pooler shares sessions, so each transaction sets its own options.
            opening += (
                f"; SET LOCAL idle_in_transaction_session_timeout = {self._idle_milliseconds}"
                f"; SET LOCAL lock_timeout = {LOCK_TIMEOUT_MILLISECONDS}"
                f"; SET LOCAL search_path = {SEARCH_PATH}"
            )
        if role is not None and self._request_tenant is not None:
            opening += (
                f"; SET LOCAL syncline.tenant_id = {quote_text(self._request_tenant)}"
                f"; SET LOCAL ROLE {quote_name(role)}"
            )
        return opening

    async def _check_once(self, connection: Any) -> None:
        if not self._found.is_checked and self._check is not None:
            async with self._begin(connection, None) as tx:
                await self._check(tx)
            self._found.is_checked = True

    async def _role(self, connection: Any) -> str | None:
        """Return the role to take on, which is looked up at the first request."""
        if self._request_tenant is None or self._find_request_role is None:
            return None
        found = self._found
        if not found.looked_for_role:
            async with self._begin(connection, None) as tx:
                found.request_role = await self._find_request_role(tx)
            found.looked_for_role = True
        return found.request_role

    @property
    def session_settings(self) -> dict[str, str]:
        return {
            "application_name": f"syncline {self.schema}",
            "idle_in_transaction_session_timeout": self._idle_milliseconds,
            "lock_timeout": LOCK_TIMEOUT_MILLISECONDS,
            "default_transaction_isolation": ISOLATION,
            "search_path": SEARCH_PATH,
            **({} if self._portable else PLANNED_ONCE),
            "jit": "off",  # it costs short statements more than it saves
            # A host that vanished between two packets must not keep its locks for two hours.
            "tcp_keepalives_idle": "15",
            "tcp_keepalives_interval": "5",
            "tcp_keepalives_count": "3",
        }


async def _keep_session(connection: Any) -> None:
    """Skip the reset, which is a round trip: the engine leaves nothing behind in a session."""
