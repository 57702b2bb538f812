from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2
import pytest

from support.http import client_of
from support.world import World

MakeClient = Callable[[str | None], Awaitable[httpx2.AsyncClient]]


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
