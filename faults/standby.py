"""Base backups of a running server, and a real standby that streams from it until it is cut off."""

import subprocess
from pathlib import Path

import asyncpg

from syncline.clock import monotonic, pause
from syncline.store.embedded.address import PORT, Postmaster, make_socket_folder, url_of
from syncline.store.embedded.binaries import find_binaries
from syncline.store.embedded.filelock import FileLock
from syncline.store.embedded.launcher import choose_launcher, environment
from syncline.testing.database import TemporaryServer

PATIENCE_SECONDS = 20


def back_up(url: str, server: TemporaryServer, folder: Path, *options: str) -> None:
    """Copy the running server at a URL into a folder that another server can be started on."""
    binaries = server._binaries or find_binaries()[0]
    launcher = choose_launcher(binaries, folder.parent)
    command = [*launcher.prefix, binaries.path("pg_basebackup"), "--dbname", url]
    command += ["--pgdata", str(folder), "--checkpoint", "fast", "--no-sync", *options]
    done = subprocess.run(command, env=environment(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


class Standby(TemporaryServer):
    """Streams from a primary. Its databases have the names that they have there."""

    def __init__(self, primary: TemporaryServer, primary_url: str) -> None:
        super().__init__(binaries=primary._binaries, server_settings=primary._settings)
        self._primary_url = primary_url

    def start(self) -> None:
        """Copy the primary, and wait until the copy streams from it; once promoted, just start."""
        if self._cluster.data.exists():
            super().start()
            return
        back_up(self._primary_url, self, self._cluster.data, "--write-recovery-conf")
        self._run(self._launch())

    def url_like(self, primary_url: str) -> str:
        """Return the URL on the standby of a database that has this URL on the primary."""
        return self._url_of(primary_url.partition("?")[0].rpartition("/")[2])

    def cut_off(self) -> None:
        """Stop replication once everything committed so far has arrived."""
        self._run(self._catch_up())
        self._run(self._execute("ALTER SYSTEM SET primary_conninfo = ''"))
        self._run(self._execute("SELECT pg_reload_conf()"))
        self._run(self._wait_for("SELECT count(*) = 0 FROM pg_stat_wal_receiver"))

    def promote(self) -> None:
        self._run(self._execute("SELECT pg_promote()"))

    async def _launch(self) -> None:
        cluster = self._cluster
        with FileLock(cluster.lock_path) as lock:
            assert lock.try_exclusive()
            await cluster._launch(lock, self._binaries, self._settings)
        sockets = make_socket_folder(cluster.home)
        self._url = url_of(Postmaster(0, PORT, sockets, is_ready=True), "postgres")
        await self._wait_for("SELECT count(*) = 1 FROM pg_stat_wal_receiver")

    async def _catch_up(self) -> None:
        primary = await asyncpg.connect(self._primary_url)
        end = await primary.fetchval("SELECT pg_current_wal_insert_lsn()::text")
        # A commit that waits for the disk; everything before it is then sent too.
        await primary.execute("SET synchronous_commit = on; CREATE TEMPORARY TABLE flushed ()")
        await primary.close()
        await self._wait_for(f"SELECT pg_last_wal_replay_lsn() >= '{end}'")

    async def _wait_for(self, question: str) -> None:
        deadline = monotonic() + PATIENCE_SECONDS
        while not await self._is_true(question):
            assert monotonic() < deadline, f"in vain: {question}"
            await pause(0.02)

    async def _is_true(self, question: str) -> bool:
        try:
            session = await asyncpg.connect(self._url_of("postgres"))
        except (OSError, asyncpg.PostgresError):
            return False  # it is still starting
        try:
            return bool(await session.fetchval(question))
        finally:
            await session.close()
