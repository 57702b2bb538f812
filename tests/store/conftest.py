"""What the store's tests share: the database must not see a deadlock, whoever meets whom."""

from collections.abc import AsyncIterator

import pytest

from support.sessions import count_deadlocks


@pytest.fixture
async def no_deadlock(database_url: str) -> AsyncIterator[None]:
    """Compare the database's own count of deadlocks, once the engines of the test have left."""
    before = await count_deadlocks(database_url)
    yield
    assert await count_deadlocks(database_url) == before
