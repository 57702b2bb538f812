"""A Citus cluster for tests: a coordinator and two workers, all temporary servers.

The extension must be installed for a system Postgres; its sources are no part of this project.
"""

import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg

from syncline.store.embedded.binaries import Binaries
from syncline.testing.database import TemporaryServer

WORKERS = 2
SETTINGS = {
    "shared_preload_libraries": "citus",
    "wal_level": "logical",
    "max_prepared_transactions": "200",
    "max_connections": "200",
    "citus.enable_schema_based_sharding": "on",  # each new schema is a cell of its own
}


class CitusServer(TemporaryServer):
    """The coordinator, which brings its workers with it."""

    def __init__(self, binaries: Binaries | None) -> None:
        super().__init__(binaries=binaries, server_settings=SETTINGS)
        self._resources = ExitStack()
        self.workers = [
            TemporaryServer(binaries=binaries, server_settings=SETTINGS) for _ in range(WORKERS)
        ]

    def start(self) -> None:
        super().start()
        for worker in self.workers:
            self._resources.enter_context(worker)

    def close(self) -> None:
        self._resources.close()
        super().close()

    def create_database(self, template: str | None = None) -> str:
        """Return the URL of a new database that spans all nodes; Citus can copy none."""
        assert template is None, "a distributed database cannot be copied"
        urls = [node.create_database() for node in self.workers]
        coordinator = super().create_database()
        self._run(_join(coordinator, urls))
        return coordinator

    def drop_database(self, url: str) -> None:
        super().drop_database(url)
        for node in self.workers:
            node.drop_database(url)  # by its name, which is the same on every node


def is_installed(binaries: Binaries) -> bool:
    """Return whether this Postgres can load the extension."""
    folder = subprocess.run(
        [binaries.path("pg_config"), "--pkglibdir"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return bool(folder) and Path(folder, "citus.so").exists()


async def _join(coordinator: str, workers: list[str]) -> None:
    for url in (*workers, coordinator):
        await _execute(url, "CREATE EXTENSION citus")
    await _execute(coordinator, "SELECT citus_set_coordinator_host($1, $2)", *_address(coordinator))
    for url in workers:
        await _execute(coordinator, "SELECT citus_add_node($1, $2)", *_address(url))


async def _execute(url: str, statement: str, *arguments: Any) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement, *arguments)
    finally:
        await connection.close()


def _address(url: str) -> tuple[str, int]:
    """Return a server's socket folder, which libpq takes for a host, and its port."""
    query = parse_qs(urlsplit(url).query)
    return query["host"][0], int(query["port"][0])
