"""Mixed batches, whose connectors run in the event loop or each in a thread."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.mixed_batch import Answering, AnsweringInThread, MixedBatch, batch_world


@pytest.fixture(params=[Answering, AnsweringInThread], ids=["async", "blocking"])
async def batch(
    request: pytest.FixtureRequest, database_url: str, engine_settings: dict[str, Any]
) -> AsyncIterator[MixedBatch]:
    async with batch_world(database_url, request.param(), **engine_settings) as world:
        yield MixedBatch(world)
