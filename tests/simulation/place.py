"""Where a process lives through its seeds: a server of its own, a fresh database for each."""

import asyncio
import logging
import multiprocessing
import os
import threading

from simulation.life import Report, live
from syncline import Engine, Settings
from syncline.testing.database import TemporaryServer

# The server does nothing of its own accord, and ends deadlocks at once.
QUIET_SERVER = {"autovacuum": "off", "deadlock_timeout": "50ms", "max_connections": "200"}


class _Place:
    server: TemporaryServer
    template: str


def prepare() -> None:
    """Start this process' server; it ends with the process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for chatty in ("syncline", "opentelemetry", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.CRITICAL)
    _Place.server = TemporaryServer(server_settings=QUIET_SERVER)
    _Place.server.start()
    _Place.template = _Place.server.create_database()
    asyncio.run(migrate(_Place.template))


def _end_with_parent() -> None:
    """End this process even if its parent was killed and could not end it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def live_in_it(seed: int) -> Report:
    url = _Place.server.create_database(template=_Place.template)
    try:
        return live(seed, url)
    finally:
        _Place.server.drop_database(url)


async def migrate(url: str) -> None:
    async with Engine(Settings(database_url=url)) as engine:
        await engine.migrate()
