"""What becomes of a connection, and of the error, when something goes wrong on it."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from syncline.store.pool import Pool, is_passing


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


async def come_to_grief(pool: Pool, error: BaseException, *, is_lost: bool) -> None:
    async with pool.connection() as connection:
        if is_lost:
            connection.terminate()
        raise error


async def session_id(pool: Pool) -> int:
    async with pool.connection() as connection:
        pid: int = connection.get_server_pid()
        return pid
