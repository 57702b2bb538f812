"""PgBouncer in transaction mode, if the program is installed."""

import asyncio
import os
import shutil
import socket
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

import asyncpg

from faults.process import Popen, spawn
from faults.stage import NotFound
from faults.waiting import until
from syncline.store.embedded.binaries import find_binaries
from syncline.store.embedded.launcher import choose_launcher

CONFIGURATION = """
[databases]
* = host={host} port={server_port} user=syncline pool_size=8
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
"""


class PgBouncer:
    """A pooler in front of a server, from enter to exit."""

    def __init__(self, server_url: str, folder: Path) -> None:
        self._server = urlsplit(server_url)
        self._folder = folder
        self._port = free_port()
        self._popen: Popen | None = None

    @property
    def url(self) -> str:
        return f"postgresql://syncline@127.0.0.1:{self._port}{self._server.path}?sslmode=disable"

    async def __aenter__(self) -> Self:
        program = shutil.which(
            "pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
        )
        if program is None:
            raise NotFound("pgbouncer")
        place = parse_qs(self._server.query)
        configuration = self._folder / f"pgbouncer-{self._port}.ini"
        configuration.write_text(
            CONFIGURATION.format(
                host=place["host"][0], server_port=place["port"][0], port=self._port
            )
        )
        # It refuses root, as Postgres does.
        launcher = await asyncio.to_thread(choose_launcher, find_binaries()[0], self._folder)
        command = [*launcher.prefix, program, str(configuration)]
        self._popen = spawn(command, os.environ, self._folder / "pgbouncer.log")
        await until(self._answers, within=10, what="pgbouncer answers")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._popen is not None:
            self._popen.kill()
            await asyncio.to_thread(self._popen.wait)

    async def _answers(self) -> bool:
        try:
            session = await asyncpg.connect(self.url, timeout=2, statement_cache_size=0)
        except (OSError, asyncpg.PostgresError):
            return False
        await session.close()
        return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
