"""Real servers as processes of a test, which can be killed and started again."""

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

START_SECONDS = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A program that listens on a port, in a folder that outlives its process."""

    def __init__(
        self,
        command: Sequence[str | Path],
        folder: Path,
        port: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command, self.folder, self.port = command, folder, port
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self.folder, env=self._environment, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS
        while not _listens(self.port):
            assert self._process.poll() is None, f"it ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"it does not listen:\n{self.log()}"
            time.sleep(0.1)

    def run_to_its_end(self) -> None:
        """Run the command to its end; it only prepares something."""
        done = subprocess.run(
            self._command, cwd=self.folder, env=self._environment, capture_output=True, timeout=120
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")[-4000:]

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Stop it; kill it if it does not end in time."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        self.kill()

    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")[-4000:]


@contextmanager
def running(server: Server) -> Iterator[Server]:
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Toll:
    """A proxy that delays every answer, so that a test can act in between."""

    def __init__(self, port: int, *, seconds: float) -> None:
        self._target, self._seconds = port, seconds
        self.port = 0
        self.answers = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> "Toll":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        try:
            there = asyncio.ensure_future(self._pass_on(reader, far_writer, 0))
            back = asyncio.ensure_future(self._pass_on(far_reader, writer, self._seconds))
            await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in (there, back):
                pump.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
            writer.transport.abort()
            far_writer.transport.abort()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
    ) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(65536):
                if seconds:
                    self.answers += 1
                    await asyncio.sleep(seconds)
                writer.write(chunk)
                await writer.drain()
