"""What the suite works with: a server, a full database, a provider, workers and a dashboard."""

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from fairness.connector import URLS_VARIABLE
from fairness.stage import Provider
from faults.database import Database
from faults.process import Process, environment_of, spawn
from faults.waiting import until

from fleet.fill import CONNECTIONS, PROVIDERS, fill
from syncline import Engine, Settings
from syncline.testing.database import TemporaryServer

SERVER_SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
}
SETTINGS: dict[str, object] = {
    "API__PORT": 0,
    "EXECUTOR__CONCURRENCY": 50,
    "SCHEDULER__TICK_INTERVAL_SECONDS": 5,
    "HTTP__ALLOW_PRIVATE": "*",
    "HTTP__TIMEOUT_SECONDS": 5,
}
WORKERS = 2
START_SECONDS = 60
LISTENS = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(slots=True)
class Stage:
    url: str
    folder: Path
    provider: Provider
    processes: list[Process] = field(default_factory=list)
    address: str = ""  # of the dashboard and the API
    database: Database = field(init=False)

    def __post_init__(self) -> None:
        self.database = Database(self.url)

    def start(self, name: str, *arguments: str) -> Process:
        """Start `syncline run` with these arguments."""
        log = self.folder / f"{name}.log"
        log.unlink(missing_ok=True)  # an earlier run's
        command = [sys.executable, "-m", "syncline", "--connectors", "fleet.connector", "run"]
        popen = spawn([*command, *arguments], self.environment(), log)
        self.processes.append(Process("worker", popen, log))
        return self.processes[-1]

    async def start_all(self) -> None:
        """Start the workers, and a process that only serves; wait until it answers."""
        for number in range(1, WORKERS + 1):
            self.start(f"worker-{number}")
        server = self.start("server", "--no-scheduler", "--no-executor", "--dashboard")

        def listens() -> str:
            found = LISTENS.search(server.log.read_text(errors="replace"))
            return found.group() if found else ""

        self.address = await until(listens, within=START_SECONDS, what="the server listens")

    def environment(self) -> dict[str, str]:
        return {
            **environment_of({"DATABASE_URL": self.url, **SETTINGS}),
            URLS_VARIABLE: json.dumps(self.provider.urls),
        }

    def complaints(self) -> list[str]:
        """Return what the logs show of exceptions that are no connector's."""
        return [
            f"{one.log.name}: {one.tail()[-400:]}" for one in self.processes if one.has_failed()
        ]

    async def close(self) -> None:
        for process in self.processes:
            if process.is_running:
                process.kill()
            await asyncio.to_thread(process.wait)
        self.database.close()
        await self.provider.close()


@contextlib.asynccontextmanager
async def open_stage(folder: Path, connections: int = CONNECTIONS) -> AsyncIterator[Stage]:
    """Open a stage on a server of its own, whose database is full; nothing runs yet."""
    server = TemporaryServer(server_settings=SERVER_SETTINGS)
    try:
        await asyncio.to_thread(server.start)
        url = await asyncio.to_thread(server.create_database)
        async with Engine(Settings(database_url=url)) as engine:
            await engine.migrate()
        await fill(url, connections)
        stage = Stage(url, folder, await Provider.start(list(PROVIDERS)))
        try:
            yield stage
        finally:
            await stage.close()
    finally:
        await asyncio.to_thread(server.close)
