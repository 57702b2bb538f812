"""The API of an engine, served on loopback by a thread, with keys and rows to request."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from fastapi.routing import APIRoute

from support.routes import routes_of
from syncline import Engine, Settings
from syncline.api.server import Listener, serving
from syncline.testing import ScriptedConnector

# Rate limits have tests of their own.
UNLIMITED = {
    "port": 0,
    "requests_per_second": 1_000_000,
    "burst": 1_000_000,
    "address_requests_per_second": 1_000_000,
    "address_burst": 1_000_000,
}


@dataclass
class ApiServer:
    """Where a server is, the keys to it, and ids that exist there."""

    url: str = ""
    keys: dict[str, str] = field(default_factory=dict)
    ids: dict[str, list[UUID]] = field(default_factory=dict)
    routes: list[APIRoute] = field(default_factory=list)


@contextmanager
def running_api(database_url: str, **settings: Any) -> Iterator[ApiServer]:
    """Yield a running server with the keys of an operator and of the tenant "acme"."""
    found, is_ready = ApiServer(), threading.Event()
    loop = asyncio.new_event_loop()
    done = asyncio.Event()

    async def serve() -> None:
        chosen = Settings(database_url=database_url, **{"api": UNLIMITED, **settings})
        async with Engine(chosen, connectors=[ScriptedConnector("github")]) as engine:
            await _fill(engine, found)
            found.routes = routes_of(engine)
            with closing(Listener(chosen.api)) as listener:
                async with serving(engine, listener, page=True):
                    found.url = listener.url
                    is_ready.set()
                    await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert is_ready.wait(20)
        yield found
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(20)
        loop.close()


async def _fill(engine: Engine, found: ApiServer) -> None:
    for name, tenant in (("operator", None), ("tenant", "acme")):
        _, found.keys[name] = await engine.access.create_key(name, tenant_id=tenant)
    connections = [
        await engine.connections.create(
            tenant_id=("acme", "birch")[n % 2], provider_slug="github", external_id=f"a-{n}"
        )
        for n in range(40)
    ]
    jobs = [await engine.trigger(connection.id) for connection in connections[:20]]
    found.ids = {
        "connection_id": [connection.id for connection in connections],
        "job_id": [job.id for job in jobs],
    }
