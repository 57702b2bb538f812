"""Real Postgres for tests: a server in a temporary folder."""

import asyncio
import itertools
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import unquote, urlsplit

import asyncpg

from syncline.store.embedded import Binaries
from syncline.store.embedded.address import make_socket_folder
from syncline.store.embedded.cluster import Cluster

Result = TypeVar("Result")

# Test data need not survive a crash, so nothing waits for the disk.
FAST_AND_UNSAFE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
# Waits until the pipe from this process closes, however it ends, and then cleans up.
CLEANUP_SCRIPT = """
    read _
    kill -QUIT "$(head -n 1 "$0/postgres/postmaster.pid")"
    for try in 1 2 3 4 5 6 7 8 9; do test -e "$0/postgres/postmaster.pid" && sleep 0.1; done
    rm -rf "$0" "$1"
"""


@asynccontextmanager
async def temporary_database() -> AsyncIterator[str]:
    """Yield the URL of a fresh empty database on a server of its own, removed afterwards."""
    server = TemporaryServer()
    try:
        await asyncio.to_thread(server.start)
        yield await asyncio.to_thread(server.create_database)
    finally:
        await asyncio.to_thread(server.close)


class TemporaryServer:
    """A Postgres server for a test session; it ends with the session, even a killed one.

    The methods block, so that plain fixtures can call them; inside an event loop they work too.
    """

    def __init__(
        self,
        *,
        binaries: Binaries | None = None,
        server_settings: Mapping[str, str] | None = None,
    ) -> None:
        self._binaries = binaries
        self._settings = {**FAST_AND_UNSAFE, **(server_settings or {})}
        self._cluster = Cluster(Path(tempfile.mkdtemp(prefix="syncline-")).resolve())
        self._cleanup = _start_cleanup(self._cluster.home)
        self._names = (f"test_{number}" for number in itertools.count(1))
        self._thread = ThreadPoolExecutor(
            max_workers=1
        )  # the caller's thread may have a running loop
        self._runner = asyncio.Runner()
        self._url: str | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the server; after `stop` or `kill`, start it again with the same data and URLs."""
        self._url = self._run(self._cluster.start(self._binaries, self._settings))

    def stop(self) -> None:
        """Shut the server down cleanly and keep its data."""
        self._run(self._cluster.stop())

    def kill(self) -> None:
        """Kill the server like a crash and keep its data."""
        self._run(self._cluster.stop(signal.SIGKILL))

    def close(self) -> None:
        """End the server and remove every trace of it."""
        try:
            self._run(self._cluster.stop(signal.SIGQUIT))
        finally:
            self._thread.submit(self._runner.close).result()
            self._thread.shutdown()
            self._cleanup.communicate()  # it removes the folders

    def create_database(self, template: str | None = None) -> str:
        """Return the URL of a new database: empty, or a copy of the database at `template`."""
        name = next(self._names)
        source = f" TEMPLATE {_quoted_name(template)}" if template else ""
        self._run(self._execute(f'CREATE DATABASE "{name}"{source}'))
        return self._url_of(name)

    def drop_database(self, url: str) -> None:
        """Drop a database, ending the connections it still has."""
        self._run(self._execute(f"DROP DATABASE IF EXISTS {_quoted_name(url)} WITH (FORCE)"))

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self._url_of("postgres"))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    def _url_of(self, name: str) -> str:
        assert self._url is not None, "start the server first"
        return urlsplit(self._url)._replace(path=f"/{name}").geturl()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._thread.submit(self._runner.run, work).result()


def _start_cleanup(home: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603  (a fixed script and paths of our own)
        ["/bin/sh", "-c", CLEANUP_SCRIPT, home, make_socket_folder(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # so that Ctrl-C does not end it
    )


def _quoted_name(url: str) -> str:
    name = unquote(urlsplit(url).path.removeprefix("/"))
    return '"' + name.replace('"', '""') + '"'
