"""The embedded server as several processes share it: the first starts it, the last stops it.

Each process holds a shared lock on `users.lock` while it uses the server. A process that leaves and
can take the lock exclusively is the last one, and stops the server. The kernel releases the lock of
a killed process. Joining, leaving, starting and stopping take turns, under `turn.lock`.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from syncline.clock import monotonic, pause
from syncline.errors import EmbeddedError
from syncline.home import make_home, resolve_home
from syncline.store.embedded.binaries import Binaries
from syncline.store.embedded.cluster import POLL_SECONDS, Cluster
from syncline.store.embedded.filelock import FileLock
from syncline.store.embedded.upgrade import move_to_newest

TURN_SECONDS = 180  # longer than the slowest start or stop


class EmbeddedPostgres:
    """A use of the embedded server: the first to enter starts it, the last to leave stops it."""

    def __init__(
        self,
        home: Path | None = None,
        *,
        server_settings: Mapping[str, str] | None = None,
        binaries: Binaries | None = None,
    ) -> None:
        self._cluster = Cluster(resolve_home(home))
        self._settings = dict(server_settings or {})  # the process that starts the server decides
        self._binaries = binaries
        self._use: FileLock | None = None
        self._url: str | None = None

    @property
    def url(self) -> str:
        """The URL for asyncpg and psql, the same at every start."""
        if self._url is None:
            raise EmbeddedError("the embedded server has no URL until it is entered")
        return self._url

    async def __aenter__(self) -> Self:
        make_home(self._cluster.home)
        async with _turn(self._cluster):
            self._use = await _join(self._cluster)
            try:
                self._url = await self._cluster.start(self._binaries, self._settings)
            except BaseException:
                await _leave(self._cluster, self._use)
                raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._use is not None
        with self._use:
            async with _turn(self._cluster):
                await _leave(self._cluster, self._use)

    async def ensure_running(self) -> None:
        """Restart the server if it died while in use."""
        async with _turn(self._cluster):
            self._url = await self._cluster.start(self._binaries, self._settings)


async def keep_running(home: Path | None = None) -> str:
    """Return the server's URL and keep it running without users until `stop`."""
    async with EmbeddedPostgres(home) as server:
        Cluster(resolve_home(home)).keep_marker.touch()
        return server.url


async def stop(home: Path | None = None) -> bool:
    """End `keep_running` and stop the server; return False if other processes still use it."""
    cluster = Cluster(resolve_home(home))
    if not cluster.home.exists():
        return True
    make_home(cluster.home)
    async with _turn(cluster):
        cluster.keep_marker.unlink(missing_ok=True)
        with FileLock(_users_path(cluster)) as use:
            if not use.try_exclusive():
                return False
            await cluster.stop()
    return True


async def upgrade(home: Path | None = None) -> str:
    """Move the data to the newest Postgres found; return a sentence about it."""
    cluster = Cluster(resolve_home(home))
    make_home(cluster.home)
    async with _turn(cluster):
        with FileLock(_users_path(cluster)) as use:
            if not use.try_exclusive():
                raise EmbeddedError("the embedded database is in use: stop its users first")
            return await move_to_newest(cluster)


async def _join(cluster: Cluster) -> FileLock:
    use = FileLock(_users_path(cluster))
    try:
        await _acquire(use.try_shared)
    except BaseException:
        use.close()
        raise
    return use


async def _leave(cluster: Cluster, use: FileLock) -> None:
    """Release the lock; stop the server if it was the last one and need not be kept running."""
    with use:
        if use.try_exclusive() and not cluster.keep_marker.exists():
            await cluster.stop()


@asynccontextmanager
async def _turn(cluster: Cluster) -> AsyncIterator[None]:
    with FileLock(cluster.home / "turn.lock") as lock:
        await _acquire(lock.try_exclusive)
        yield


async def _acquire(attempt: Callable[[], bool]) -> None:
    deadline = monotonic() + TURN_SECONDS
    while not attempt():
        if monotonic() > deadline:
            raise EmbeddedError(
                "another process has been starting, stopping or upgrading the embedded database "
                f"for {TURN_SECONDS} s"
            )
        await pause(POLL_SECONDS)


def _users_path(cluster: Cluster) -> Path:
    return cluster.home / "users.lock"
