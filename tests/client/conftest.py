from collections.abc import AsyncIterator

import pytest

from support.served import served
from support.world import World
from syncline.client import AsyncClient


@pytest.fixture
async def url(world: World) -> AsyncIterator[str]:
    """Where the world's engine is served."""
    async with served(world) as url:
        yield url


@pytest.fixture
async def client(world: World, url: str) -> AsyncIterator[AsyncClient]:
    """The client of an operator."""
    _, key = await world.engine.access.create_key("ann")
    async with AsyncClient(url, key) as client:
        yield client
