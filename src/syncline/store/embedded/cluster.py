"""One data folder and the Postgres server on it: create, start, stop.

Every process of the server inherits, and so holds, `server.lock`. Whether any is still alive is
asked of that lock, never of a process id, which may be stale, a zombie's, or reused.
"""

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from syncline.clock import monotonic, pause
from syncline.errors import EmbeddedError
from syncline.store.embedded.address import (
    PORT,
    USER,
    Postmaster,
    make_socket_folder,
    reach,
    read_postmaster,
    socket_folder_name,
)
from syncline.store.embedded.binaries import Binaries, choose_binaries, find_binaries
from syncline.store.embedded.filelock import FileLock
from syncline.store.embedded.launcher import Launcher, choose_launcher, environment, take_over

POLL_SECONDS = 0.02
START_SECONDS = 60
STOP_SECONDS = 60
LOG_BYTES = 5_000_000
LOG_TAIL_LINES = 15
DATA_PATH_BYTES = 900  # Postgres truncates paths at 1023 bytes, also those of files in the folder
# The shell ends at once, so the server has no parent here: it outlives us and leaves no zombie.
DETACH = '"$@" </dev/null >>"$0" 2>&1 &'


class Cluster:
    """The data folder of a home, and the server on it while one runs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.data = home / "postgres"
        self.unfinished = home / "postgres.new"  # may be deleted at any time
        self.upgraded = home / "postgres.upgraded"  # complete, about to become the data folder
        self.keep_marker = home / "keep"
        self.lock_path = home / "server.lock"
        self._log = home / "postgres.log"
        self._log_start = 0

    async def start(
        self, binaries: Binaries | None = None, settings: Mapping[str, str] | None = None
    ) -> str:
        """Start the server unless it is running, and return its URL once it answers."""
        launched = False
        deadline = monotonic() + START_SECONDS
        while (url := await reach(self.data)) is None:
            self._end_interrupted_upgrade()
            with FileLock(self.lock_path) as lock:
                is_ours = lock.try_exclusive()
                if is_ours and launched:
                    raise self._failure("the embedded Postgres did not start")
                if is_ours:
                    await self._launch(lock, binaries, settings or {})
                    launched, deadline = True, monotonic() + START_SECONDS
            if monotonic() > deadline:
                raise self._failure(f"the embedded Postgres gave no answer in {START_SECONDS} s")
            await pause(POLL_SECONDS)
        return url

    async def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Signal the server to shut down and wait until all of its processes have ended."""
        signalled: list[Postmaster] = []
        deadline = monotonic() + STOP_SECONDS
        while self.is_alive():
            signalled = signalled or self._signal(self._postmasters(), how)
            if monotonic() > deadline:
                raise self._failure(f"the embedded Postgres did not stop in {STOP_SECONDS} s")
            await pause(POLL_SECONDS)
        for postmaster in signalled:
            if postmaster.socket_folder.name == socket_folder_name(self.home):
                with suppress(OSError):  # the next start removes the socket of a killed server
                    postmaster.socket_folder.rmdir()

    def is_alive(self) -> bool:
        """Return whether any process of a server is still running."""
        with FileLock(self.lock_path) as lock:
            return not lock.try_exclusive()

    def major(self) -> int | None:
        """Return the major version that wrote the data, or None if there is no data yet."""
        if not self.data.exists():
            return None
        try:
            return int((self.data / "PG_VERSION").read_text())
        except (OSError, ValueError):
            raise EmbeddedError(
                f"{self.data} is no Postgres data folder (its PG_VERSION is missing or broken): "
                "move it away, or set SYNCLINE_HOME to another folder"
            ) from None

    def finish_upgrade(self) -> None:
        """Complete an upgrade that was interrupted between its last two renames."""
        if self.upgraded.exists() and not self.data.exists():
            self.upgraded.rename(self.data)

    async def discard_unfinished(self) -> None:
        await asyncio.to_thread(shutil.rmtree, self.unfinished, ignore_errors=True)

    async def create(
        self, lock: FileLock, binaries: Binaries, launcher: Launcher, *options: str
    ) -> None:
        """Create an empty data folder, named as unfinished."""
        if len(os.fsencode(self.data)) > DATA_PATH_BYTES:
            raise EmbeddedError(f"SYNCLINE_HOME is too long a path for Postgres: {self.home}")
        locale = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if binaries.major < 17:
            locale = ["--locale=C.UTF-8"]
        target = [f"--pgdata={self.unfinished}", f"--username={USER}", "--auth=trust"]
        initdb = [binaries.path("initdb"), *target, "--encoding=UTF8", *locale, *options]
        await self.run([*launcher.prefix, *initdb], lock)

    async def run(self, command: list[str], lock: FileLock) -> str:
        """Run a program that holds the lock, as the server does, and return its output."""
        done = await asyncio.to_thread(
            subprocess.run,
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(),
            cwd=self.home,
            pass_fds=(lock.fileno(),),
            start_new_session=True,  # so that Ctrl-C in the terminal does not reach it
            check=False,
        )
        said = done.stdout.decode(errors="replace").strip()
        if done.returncode != 0:
            raise EmbeddedError(f"{shlex.join(command)} failed:\n{said}")
        return said

    async def _launch(
        self, lock: FileLock, binaries: Binaries | None, settings: Mapping[str, str]
    ) -> None:
        self.finish_upgrade()
        await self.discard_unfinished()
        found = [binaries] if binaries else await asyncio.to_thread(find_binaries)
        fitting = choose_binaries(found, self.major())
        launcher = await asyncio.to_thread(choose_launcher, fitting, self.home)
        if not self.data.exists():
            unsafe = ["--no-sync"] if settings.get("fsync") == "off" else []
            await self.create(lock, fitting, launcher, "--data-checksums", *unsafe)
            self.unfinished.rename(self.data)
        await asyncio.to_thread(take_over, self.data, launcher)
        sockets = make_socket_folder(self.home)
        self._clear_remains(sockets)
        self._open_log()
        settings = {"listen_addresses": "", "unix_socket_permissions": "0700", **settings}
        server = [fitting.path("postgres"), "-D", str(self.data), "-k", str(sockets)]
        server += ["-p", str(PORT), *(f"--{name}={value}" for name, value in settings.items())]
        await self.run(["/bin/sh", "-c", DETACH, str(self._log), *launcher.prefix, *server], lock)

    def _clear_remains(self, sockets: Path) -> None:
        """Remove files of a killed server that Postgres would take for those of a running one.

        The lock shows that no server runs. If one was started by other means, Postgres itself
        refuses to start a second, because of the shared memory.
        """
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        for remains in sockets.glob(".s.PGSQL.*"):
            remains.unlink()
        self.keep_marker.unlink(missing_ok=True)  # it belonged to the server that is gone

    def _open_log(self) -> None:
        if self._log.exists() and self._log.stat().st_size > LOG_BYTES:
            self._log.replace(self._log.with_name(f"{self._log.name}.1"))
        self._log.touch(mode=0o600)
        self._log_start = self._log.stat().st_size

    def _end_interrupted_upgrade(self) -> None:
        """Stop the server that a killed upgrade left running; its port identifies it."""
        if self.is_alive():
            left = [postmaster for postmaster in self._postmasters() if postmaster.port != PORT]
            self._signal(left, signal.SIGINT)

    def _postmasters(self) -> list[Postmaster]:
        folders = (self.data, self.unfinished)
        return [found for folder in folders if (found := read_postmaster(folder)) is not None]

    def _signal(self, postmasters: list[Postmaster], how: signal.Signals) -> list[Postmaster]:
        for postmaster in postmasters:
            with suppress(ProcessLookupError):
                os.kill(postmaster.pid, how)
        return postmasters

    def _failure(self, what: str) -> EmbeddedError:
        """Return the error, with what the server logged since it was started."""
        with suppress(FileNotFoundError), self._log.open(errors="replace") as log:
            log.seek(self._log_start)
            lines = log.read().splitlines()[-LOG_TAIL_LINES:]
            return EmbeddedError("\n  ".join([f"{what}; the end of {self._log}:", *lines]))
        return EmbeddedError(what)
