from collections.abc import AsyncIterator

import httpx2
import pytest

from support.http import client_of
from support.world import World
from syncline import Engine, Settings
from syncline.testing.database import TemporaryServer


@pytest.fixture
async def local(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    """Somebody on the machine itself, where no key was made yet."""
    async with client_of(world.engine) as client:
        yield client


@pytest.fixture
async def operator(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    _, secret = await world.engine.access.create_key("ann")
    async with client_of(world.engine, secret) as client:
        yield client


@pytest.fixture
async def acme(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    """The holder of a key that sees the tenant "acme" alone."""
    _, secret = await world.engine.access.create_key("acme's own", tenant_id="acme")
    async with client_of(world.engine, secret) as client:
        yield client


@pytest.fixture
async def client_of_lost_database(server: TemporaryServer) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an engine whose database was there when it was opened, and then no more."""
    url = server.create_database()
    async with Engine(Settings(database_url=url)) as engine, client_of(engine) as client:
        server.drop_database(url)
        yield client
