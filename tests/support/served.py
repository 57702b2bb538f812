"""A world's engine behind a real port, and signals in it."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime

from support.world import World
from syncline import Connection, Signal, SyncResult
from syncline.api.server import Listener, serving
from syncline.settings import ApiSettings

HAPPENED_AT = datetime(2025, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def served(world: World, port: int = 0) -> AsyncIterator[str]:
    """Yield the URL under which the engine is served, on a free port unless one is given."""
    with closing(Listener(ApiSettings(port=port))) as listener:
        async with serving(world.engine, listener, page=False):
            yield listener.url


async def bring(
    world: World, connection: Connection, numbers: Iterable[int], kind: str = "k"
) -> None:
    """Run a connection once; it returns a signal for each number."""
    signals = [Signal(kind=kind, occurred_at=HAPPENED_AT, payload={"n": n}) for n in numbers]
    world.script(SyncResult(signals=signals))
    await world.engine.trigger(connection.id)
    await world.engine.run_due()
