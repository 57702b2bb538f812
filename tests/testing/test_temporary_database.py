"""A database to throw away."""

import os
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from support.world import at
from syncline import Engine, Settings, SyncResult
from syncline.testing import ManualClock, ScriptedConnector, temporary_database


async def test_it_is_empty_works_and_leaves_nothing_behind() -> None:
    connector = ScriptedConnector("tickets", [SyncResult(next_cursor=1)])
    async with temporary_database() as url:
        session = await asyncpg.connect(url)
        folder = await session.fetchval("SHOW data_directory")
        await session.close()
        assert is_there(url)
        clock = ManualClock(at("12:00"))
        async with Engine(Settings(database_url=url), [connector], clock) as engine:
            assert await engine.migrate() != [], "it was empty"
            connection = await engine.connections.create(
                tenant_id="acme", provider_slug="tickets", external_id="a-1"
            )
            assert (await engine.tick()).scheduled == 1
            assert await engine.run_due() == 1

    assert connector.calls == [(connection.id, None)]
    assert not is_there(url)
    assert not exists(os.path.dirname(folder))
    with pytest.raises(OSError, match=r"No such file|refused"):
        await asyncpg.connect(url)


async def test_it_ends_with_an_error_too() -> None:
    with pytest.raises(KeyError):
        async with temporary_database() as url:
            raise KeyError

    assert not is_there(url)


def is_there(url: str) -> bool:
    """Return whether the server's socket folder exists."""
    return exists(parse_qs(urlsplit(url).query)["host"][0])


def exists(path: str) -> bool:
    return os.path.exists(path)
