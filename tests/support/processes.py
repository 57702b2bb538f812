"""Engines as processes of their own, started as a person would, watched through the database."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg

from support.crash_connectors import LEDGER_VARIABLE, Ledger

TESTS = Path(__file__).parents[1]
# Where the tests were given a copy of the source, what they start runs that copy too.
PATH = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
COMMAND = (sys.executable, "-m", "syncline", "run")
LEASE_SECONDS = 3
SETTINGS = {
    "SYNCLINE_EXECUTOR__LEASE_SECONDS": str(LEASE_SECONDS),
    "SYNCLINE_SCHEDULER__TICK_INTERVAL_SECONDS": "1",
    "SYNCLINE_API__PORT": "0",
}


class Fleet:
    """The processes of one test, its database and its ledger."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.ledger = Ledger(folder / "ledger")
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str, **settings: Any) -> "subprocess.Popen[bytes]":
        """Start `syncline run`, with settings in the form executor__concurrency=1."""
        own = {f"SYNCLINE_{name.upper()}": str(value) for name, value in settings.items()}
        with self._log(len(self._processes)).open("wb") as log:
            process = subprocess.Popen(
                [*COMMAND, "--connectors", "support.crash_connectors", *options],
                env={
                    **os.environ,
                    **SETTINGS,
                    "SYNCLINE_DATABASE_URL": self.url,
                    "PYTHONPATH": PATH,
                    LEDGER_VARIABLE: str(self.ledger.path),
                    **own,
                },
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return process

    def start_worker(self, **settings: Any) -> "subprocess.Popen[bytes]":
        return self.start("--no-scheduler", **settings)

    def start_scheduler(self, **settings: Any) -> "subprocess.Popen[bytes]":
        return self.start("--no-executor", **settings)

    async def start_workers(self, number: int) -> list["subprocess.Popen[bytes]"]:
        """Start workers, and wait until all of them are at work."""
        workers = [self.start_worker() for _ in range(number)]
        await until(lambda: self.logs().count("serving") >= len(self._processes))
        return workers

    def logs(self) -> str:
        """Return the logs of the processes, for the report of a failure."""
        return "\n".join(
            f"--- process {number}, pid {process.pid}, exit {process.poll()}\n"
            + self._log(number).read_text(errors="replace")[-4000:]
            for number, process in enumerate(self._processes)
        )

    async def sql(self, statement: str, *arguments: Any) -> Any:
        """Return the rows of a statement, on a session that lives no longer than it."""
        session = await asyncpg.connect(self.url)
        try:
            return await session.fetch(statement, *arguments)
        finally:
            await session.close()

    async def count(self, table: str, condition: str = "true") -> int:
        rows = await self.sql(f"SELECT count(*) FROM syncline.{table} WHERE {condition}")
        return int(rows[0][0])

    def stop(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGCONT)  # one that is stopped cannot be waited for
            process.kill()
            process.wait()

    def _log(self, number: int) -> Path:
        return self._folder / f"process-{number}.log"


async def until(condition: Callable[[], Any], *, within: float = 15, what: str = "") -> Any:
    """Wait until the condition is true, and return its value."""
    deadline = time.monotonic() + within
    while True:
        found = condition()
        found = await found if inspect.isawaitable(found) else found
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {within} s: {what or condition}"
        await asyncio.sleep(0.05)


async def exit_code(process: "subprocess.Popen[bytes]", *, within: float) -> int:
    await until(lambda: process.poll() is not None, within=within, what="the process ends")
    return process.returncode
