"""The databases of a test session: one of each mode, migrated once, emptied for every test."""

import asyncio
import os
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from support.citus import CitusServer, is_installed
from syncline import Engine, Settings
from syncline.store.embedded.binaries import Binaries, find_binaries
from syncline.testing.database import TemporaryServer

# Deleting a few rows takes a hundredth of the time that truncating their tables does.
EMPTY = "; ".join(
    f"DELETE FROM syncline.{table}"
    for table in (
        "job_attempts",
        "sync_jobs",
        "connections",
        "signals",
        "prune_walks",
        "gates",
        "caps",
        "cap_blocks",
        "tenant_shares",
        "tenant_pauses",
        "bulk_actions",
        "budgets",
        "budget_buckets",
        "gate_reports",
        "limited_connections",
        "provider_starts",
        "figures",
        "audit",
        "figure_reports",
        "schedulers",
        "workers",
        "api_keys",
        "api_requests",
        "tenant_usage",
    )
)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to run the same tests: on which server, and with which of its features."""

    name: str
    portable: bool = False
    binaries: Binaries | None = None
    skip_reason: str = ""
    is_citus: bool = False

    def __str__(self) -> str:
        return self.name


@cache
def modes() -> list[Mode]:
    """Return every mode; one that this machine cannot offer says why.

    `make citus` runs every test in one mode alone: on a cluster.
    """
    system = system_postgres()
    if os.environ.get("TEST_DATABASE") == "citus":
        if system is None or not is_installed(system):
            return [Mode("citus", skip_reason="no system Postgres with the Citus extension")]
        return [Mode("citus", portable=True, binaries=system, is_citus=True)]
    if system is None:
        third = Mode("postgres", skip_reason="no system Postgres of a supported version was found")
    else:
        third = Mode(f"postgres-{system.major}", binaries=system)
    return [Mode("embedded"), Mode("portable", portable=True), third]


def system_postgres() -> Binaries | None:
    """Return the newest system Postgres that the engine supports, if there is one."""
    wheels = Path(asyncpg.__file__).parents[1]
    own = [found for found in find_binaries() if not found.folder.is_relative_to(wheels)]
    return max(own, key=lambda found: found.major, default=None)


class Databases:
    """Servers and databases, each made when a test first asks for it."""

    def __init__(self) -> None:
        self._resources = ExitStack()
        # Its own thread, because a test's event loop may be running in the caller's.
        self._thread = self._resources.enter_context(ThreadPoolExecutor(max_workers=1))
        self._runner = asyncio.Runner()
        self._resources.callback(lambda: self._thread.submit(self._runner.close).result())
        self._servers: dict[Binaries | None, TemporaryServer] = {}
        self._urls: dict[Mode, str] = {}
        self._sessions: dict[str, Any] = {}
        self._templates: dict[tuple[Binaries | None, tuple[str, ...]], str] = {}

    def server(self, mode: Mode) -> TemporaryServer:
        if mode.binaries not in self._servers:
            made = (
                CitusServer(mode.binaries)
                if mode.is_citus
                else TemporaryServer(binaries=mode.binaries)
            )
            self._servers[mode.binaries] = self._resources.enter_context(made)
        return self._servers[mode.binaries]

    def migrated_url(self, mode: Mode) -> str:
        """Return the mode's database, with the schema."""
        if mode not in self._urls:
            self._urls[mode] = self._create(mode, ("syncline",))
        return self._urls[mode]

    @contextmanager
    def lend(self, mode: Mode, *schemas: str) -> Iterator[str]:
        """Lend a database of its own with these schemas; without any, an empty one."""
        server = self.server(mode)
        url = self._create(mode, schemas)
        try:
            yield url
        finally:
            server.drop_database(url)

    def empty(self, url: str) -> None:
        self._run(self._empty(url))

    def close(self) -> None:
        for session in self._sessions.values():
            self._run(session.close())
        self._resources.close()

    def _create(self, mode: Mode, schemas: tuple[str, ...]) -> str:
        server = self.server(mode)
        if schemas and not mode.is_citus:
            return server.create_database(self._template(mode, schemas))
        url = server.create_database()
        for schema in schemas:  # a cluster's database cannot be copied
            self._run(_migrate(url, schema))
        return url

    def _template(self, mode: Mode, schemas: tuple[str, ...]) -> str:
        """Return a database that nobody uses: to copy one is quicker than to migrate one."""
        key = (mode.binaries, schemas)
        if key not in self._templates:
            url = self.server(mode).create_database()
            for schema in schemas:
                self._run(_migrate(url, schema))
            self._templates[key] = url
        return self._templates[key]

    async def _empty(self, url: str) -> None:
        if url not in self._sessions:
            self._sessions[url] = await asyncpg.connect(url)
        await self._sessions[url].execute(EMPTY)

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._thread.submit(self._runner.run, work).result()


async def _migrate(url: str, schema: str) -> None:
    async with Engine(Settings(database_url=url, schema=schema)) as engine:
        await engine.migrate()


def both_of(first: str, second: str) -> str:
    """Return one URL that names both servers."""
    base = first.partition("?")[0]
    parts = [
        dict(pair.split("=", 1) for pair in url.partition("?")[2].split("&"))
        for url in (first, second)
    ]
    hosts, ports = (",".join(part[name] for part in parts) for name in ("host", "port"))
    return f"{base}?host={hosts}&port={ports}"
