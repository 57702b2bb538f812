"""What becomes of a connection, and of the error, when something goes wrong on it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from syncline.errors import TooSlow
from syncline.store.pool import Pool, Transaction, is_passing


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


async def test_no_plan_is_kept_for_long(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.store.pool.PLANNED_FOR_SECONDS", 0.05)
    pool = Pool(database_url, "syncline", size=1)
    await pool.open()
    asked = "SELECT prepare_time FROM pg_prepared_statements WHERE statement LIKE '%prepare_time%'"
    times = set()
    for _ in range(2):
        async with pool.statement() as tx:
            times.add(await tx.fetchval(asked))
        await asyncio.sleep(0.2)

    assert len(times) == 2
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


async def test_a_question_that_takes_too_long_is_ended(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncline.store.pool.READ_TIMEOUT", timedelta(milliseconds=50))

    with pytest.raises(TooSlow, match="narrow the filter"):
        await pool.reading(lambda tx: tx.fetchval("SELECT pg_sleep(5)"))

    async with pool.transaction() as tx:  # the bound was for that transaction alone
        assert await tx.fetchval("SHOW statement_timeout") == "0"
