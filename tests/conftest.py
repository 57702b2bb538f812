"""Real Postgres for every test: one server a session, one migrated database, emptied each time."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from support.world import World, open_world

from syncline import Engine, Settings
from syncline.testing.database import TemporaryServer

TABLES = ("connections", "sync_jobs", "signals", "schedulers")


@pytest.fixture(scope="session", autouse=True)
def no_settings_from_outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the tests from whatever the shell or the home folder says about Syncline."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("SYNCLINE_"):
                patch.delenv(name)
        patch.setenv("SYNCLINE_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[TemporaryServer]:
    """The embedded Postgres of this test session."""
    with TemporaryServer() as server:
        yield server


@pytest.fixture(scope="session")
def migrated_url(server: TemporaryServer) -> str:
    """A database with the schema, shared by the tests and emptied before each."""
    return migrate_new_database(server)


@pytest.fixture
def database_url(migrated_url: str) -> str:
    empty(migrated_url)
    return migrated_url


@pytest.fixture
def engine_settings() -> dict[str, Any]:
    """The settings of the world's engine; a test overrides this fixture to change them."""
    return {}


@pytest.fixture
async def world(database_url: str, engine_settings: dict[str, Any]) -> AsyncIterator[World]:
    async with open_world(database_url, **engine_settings) as world:
        yield world


def migrate_new_database(server: TemporaryServer) -> str:
    url = server.create_database()

    async def migrate() -> None:
        async with Engine(Settings(database_url=url)) as engine:
            await engine.migrate()

    asyncio.run(migrate())
    return url


def empty(url: str) -> None:
    async def truncate() -> None:
        session = await asyncpg.connect(url)
        try:
            tables = ", ".join(f"syncline.{table}" for table in TABLES)
            await session.execute(f"TRUNCATE {tables}")
        finally:
            await session.close()

    asyncio.run(truncate())


def system_postgres() -> Path | None:
    """Return the folder of the newest system Postgres that the engine supports, if there is one."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if beside := shutil.which("postgres"):
        folders.append(Path(beside).resolve().parent)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)
