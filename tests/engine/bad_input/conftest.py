"""Streets of connections: their connectors run in the event loop, or each in a thread."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.street import Answering, AnsweringInThread, Street, street_of


@pytest.fixture(params=[Answering, AnsweringInThread], ids=["async", "blocking"])
async def street(
    request: pytest.FixtureRequest, database_url: str, engine_settings: dict[str, Any]
) -> AsyncIterator[Street]:
    async with street_of(database_url, request.param(), **engine_settings) as world:
        yield Street(world)
