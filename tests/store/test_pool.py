"""What becomes of a connection, and of the error, when something goes wrong on it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import asyncpg
import pytest

from support.databases import both_of
from support.fakes import eventually
from syncline.errors import TooSlow
from syncline.store.errors import is_passing
from syncline.store.pool import Pool, SessionOptions, Transaction
from syncline.testing.database import TemporaryServer


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    pool = Pool(database_url, "syncline", size=1)
    await pool.open()
    yield pool
    await pool.close()


@pytest.mark.parametrize("error", [asyncio.CancelledError(), OSError("the cable was cut")])
async def test_a_lost_connection_hides_no_error(pool: Pool, error: BaseException) -> None:
    with pytest.raises(type(error)) as raised:
        await come_to_grief(pool, error, is_lost=True)

    assert raised.value is error
    async with pool.transaction() as tx:
        assert await tx.fetchval("SELECT 1") == 1


async def test_a_connection_that_is_out_of_step_is_thrown_away(pool: Pool) -> None:
    error = asyncpg.InternalClientError("cannot switch to state 15")
    before = await session_id(pool)

    with pytest.raises(asyncpg.InternalClientError):
        await come_to_grief(pool, error, is_lost=False)

    assert is_passing(error)
    assert await session_id(pool) != before


async def test_a_read_only_answer_gives_up_every_session(server: TemporaryServer) -> None:
    """The primary was demoted: none of its sessions will store anything, however long they stay."""
    url = server.create_database()
    pool = Pool(url, "syncline", size=3)
    write = "INSERT INTO public.written DEFAULT VALUES"
    await execute(url, "CREATE TABLE written ()")
    await execute(url, "ALTER DATABASE {name} SET default_transaction_read_only = on")
    await pool.open()
    async with pool.connection(), pool.connection(), pool.connection():
        pass
    await execute(url, "ALTER DATABASE {name} RESET default_transaction_read_only")

    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        async with pool.transaction() as tx:
            await tx.execute(write)

    async with pool.transaction() as one, pool.transaction() as two, pool.transaction() as three:
        for tx in (one, two, three):
            assert await tx.execute(write) == 1
    await pool.close()


async def test_of_many_hosts_one_is_taken_that_can_store(server: TemporaryServer) -> None:
    with TemporaryServer() as other:
        read_only = on_the_database_postgres(other.create_database())
        await execute(read_only, "ALTER DATABASE {name} SET default_transaction_read_only = on")
        url = both_of(read_only, on_the_database_postgres(server.create_database()))
        pool = Pool(url, "syncline", size=1)
        await pool.open()
        async with pool.transaction() as tx:
            assert not await tx.is_read_only()
        await pool.close()


async def test_a_statement_sent_alone_is_planned_for_any_values_and_in_a_transaction_for_its_own(
    pool: Pool,
) -> None:
    asked = "SELECT current_setting('plan_cache_mode') || current_setting('enable_seqscan')"

    async with pool.statement() as tx:
        assert await tx.fetchval(asked) == "force_generic_planoff"
    async with pool.transaction() as tx:
        assert await tx.fetchval(asked) == "autoon"
    async with pool.statement() as tx:
        assert await tx.fetchval(asked) == "force_generic_planoff"


async def test_portable_sessions_leave_the_planning_to_the_server(database_url: str) -> None:
    """P6: another node would not have the setting, and Citus plans nothing without its values."""
    pool = Pool(database_url, "syncline", size=1, options=SessionOptions(portable=True))
    await pool.open()
    asked = (
        "SELECT string_agg(name, ' ') FROM pg_settings"
        " WHERE source IN ('session', 'client') AND category LIKE 'Query Tuning%' AND name <> 'jit'"
    )

    async def settings_of(tx: Transaction) -> str | None:
        found: str | None = await tx.fetchval(asked)
        return found

    async with pool.statement() as tx:
        assert await settings_of(tx) is None
    async with pool.transaction() as tx:
        assert await settings_of(tx) is None
    assert await pool.reading(settings_of) is None
    await pool.close()


async def test_no_plan_is_kept_for_long(database_url: str) -> None:
    options = SessionOptions(planned_for=timedelta(milliseconds=20))
    pool = Pool(database_url, "syncline", size=1, options=options)
    await pool.open()

    async def planned_at() -> datetime:
        async with pool.statement() as tx:
            found: datetime = await tx.fetchval(
                "SELECT prepare_time FROM pg_prepared_statements"
                " WHERE statement LIKE '%prepare_time%'"
            )
            return found

    async def is_planned_anew() -> bool:
        return await planned_at() != first

    first = await planned_at()
    await eventually(is_planned_anew)
    await pool.close()


async def come_to_grief(pool: Pool, error: BaseException, *, is_lost: bool) -> None:
    async with pool.connection() as connection:
        if is_lost:
            connection.terminate()
        raise error


async def session_id(pool: Pool) -> int:
    async with pool.connection() as connection:
        pid: int = connection.get_server_pid()
        return pid


async def test_however_many_look_some_connections_stay_free_for_work(database_url: str) -> None:
    pool = Pool(database_url, "syncline", size=2)
    await pool.open()
    looked = asyncio.Event()

    async def look(tx: Transaction) -> None:
        await tx.fetchval("SELECT 1")
        await looked.wait()

    lookers = [asyncio.create_task(pool.reading(look)) for _ in range(5)]
    async with asyncio.timeout(5), pool.transaction() as tx:
        assert await tx.fetchval("SELECT 1") == 1
    looked.set()
    await asyncio.gather(*lookers)
    await pool.close()


async def test_a_question_that_takes_too_long_is_ended(database_url: str) -> None:
    options = SessionOptions(read_timeout=timedelta(milliseconds=20))
    pool = Pool(database_url, "syncline", size=1, options=options)
    await pool.open()

    with pytest.raises(TooSlow, match="narrow the filter"):
        await pool.reading(lambda tx: tx.fetchval("SELECT pg_sleep(60)"))

    async with pool.transaction() as tx:  # the bound was for that transaction alone
        assert await tx.fetchval("SHOW statement_timeout") == "0"
    await pool.close()


async def execute(url: str, statement: str) -> None:
    can_write = {"default_transaction_read_only": "off"}
    session = await asyncpg.connect(url, server_settings=can_write)
    try:
        name = await session.fetchval("SELECT quote_ident(current_database())")
        await session.execute(statement.format(name=name))
    finally:
        await session.close()


def on_the_database_postgres(url: str) -> str:
    """Return the URL of the database that every server has under the same name."""
    return urlsplit(url)._replace(path="/postgres").geturl()
