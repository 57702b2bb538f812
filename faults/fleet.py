"""Workers and schedulers: processes of the command line, each with its own link to Postgres."""

import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from faults.connector import PROVIDER_VARIABLE
from faults.proxy import Link
from faults.waiting import until

Popen = subprocess.Popen[bytes]
Role = Literal["worker", "scheduler"]
ROOT = Path(__file__).parents[1]
REFUSAL = "syncline: the database "  # the error of a start without Postgres
RECORD_BEGINS = re.compile(r"^(?=\d{4}-\d\d-\d\d )", re.MULTILINE)
CONNECTORS_OWN = "executor.connector_raised"  # what a fault made the connector do
LEASE_SECONDS = 3
GRACE_SECONDS = 2
SETTINGS = {
    "EXECUTOR__LEASE_SECONDS": LEASE_SECONDS,
    "EXECUTOR__MAX_RUN_SECONDS": 4,
    "EXECUTOR__CONCURRENCY": 6,  # few, so that every worker is needed
    "EXECUTOR__SHUTDOWN_GRACE_SECONDS": GRACE_SECONDS,
    "SCHEDULER__TICK_INTERVAL_SECONDS": 1,
    "SCHEDULER__DEFAULT_INTERVAL_SECONDS": 60,
    "RATE_LIMIT__BASE_SECONDS": 0.2,
    "RATE_LIMIT__MAX_SECONDS": 2,
    "API__PORT": 0,
}
COMMAND = ("syncline", "run", "--connectors")
OPTIONS = {"worker": "--no-scheduler", "scheduler": "--no-executor"}


class Process:
    """A running worker or scheduler."""

    def __init__(self, role: Role, popen: Popen, link: Link, log: Path) -> None:
        self.role = role
        self.link = link
        self.log = log
        self.may_end = False
        self.has_complained = False
        self.still_until = 0.0  # it was frozen until then, by time.monotonic()
        self._popen = popen

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._popen.returncode

    def kill(self) -> None:
        self.may_end = True
        self._popen.kill()

    def send(self, number: signal.Signals) -> None:
        self.may_end = self.may_end or number in (signal.SIGTERM, signal.SIGINT)
        if number == signal.SIGSTOP:
            self.still_until = math.inf
        elif number == signal.SIGCONT:
            self.still_until = min(self.still_until, time.monotonic())
        self._popen.send_signal(number)

    async def ended(self, *, within: float) -> int:
        await until(lambda: not self.is_running, within=within, what=f"the end of {self.log.stem}")
        return self._popen.returncode

    def wait(self) -> None:
        self._popen.wait()

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def has_failed(self) -> bool:
        """Whether the log shows an exception that is not a connector's own."""
        records = RECORD_BEGINS.split(self.log.read_text(errors="replace"))
        return any("Traceback" in one and CONNECTORS_OWN not in one for one in records)


class Fleet:
    """All processes of a run; the permanent ones are replaced when a fault has ended them."""

    def __init__(self, database: str, upstream: str, provider_url: str, logs: Path) -> None:
        self.processes: list[Process] = []
        self._standing: dict[Role, int] = {}
        self._database = database
        self._upstream = upstream
        self._provider_url = provider_url
        self._logs = logs

    async def stand(self, *, workers: int, schedulers: int) -> None:
        self._standing = {"worker": workers, "scheduler": schedulers}
        await self.replace_missing()

    async def replace_missing(self) -> None:
        """Bring every link and every process back to normal."""
        for process in self.processes:
            if not process.is_running:
                process.link.close()  # as keepalives would, if the network had swallowed its end
        for process in self.running():
            await process.link.open()
            process.send(signal.SIGCONT)
        for role, number in self._standing.items():
            for _ in range(number - len(self.running(role))):
                await self.start(role)

    async def start(
        self,
        role: Role,
        settings: Mapping[str, object] | None = None,
        *,
        prefix: Sequence[str] = ("-m",),
        environment: Mapping[str, str] | None = None,
        connectors: str = "faults.connector",
    ) -> Process:
        """Start a process, by default with its own link to Postgres."""
        link = Link(self._upstream)
        await link.open()
        settings = {
            "DATABASE_URL": link.url.format(database=self._database),
            **SETTINGS,
            **(settings or {}),
        }
        outside = {name: value for name, value in os.environ.items() if "SYNCLINE_" not in name}
        environment = {
            **outside,
            **{f"SYNCLINE_{name}": str(value) for name, value in settings.items()},
            "PYTHONPATH": str(ROOT),
            PROVIDER_VARIABLE: self._provider_url,
            **(environment or {}),
        }
        log = self._logs / f"{len(self.processes) + 1:03}-{role}.log"
        log.unlink(missing_ok=True)  # an earlier run's
        command = [sys.executable, *prefix, *COMMAND, connectors, OPTIONS[role]]
        process = Process(role, spawn(command, environment, log), link, log)
        self.processes.append(process)
        return process

    def running(self, role: Role | None = None) -> list[Process]:
        return [
            process
            for process in self.processes
            if process.is_running and role in (None, process.role) and not process.may_end
        ]

    def by_pid(self, pid: int) -> Process:
        return next(process for process in self.processes if process.pid == pid)

    def complaining(self) -> list[Process]:
        """Return the processes whose log shows an uncaught exception, each only once."""
        found = [
            process
            for process in self.processes
            if not process.has_complained and process.has_failed()
        ]
        for process in found:
            process.has_complained = True
        return found

    def ended_unasked(self) -> list[Process]:
        """Return the processes that should still run; one may refuse to start without Postgres."""
        return [
            process
            for process in self.processes
            if not process.is_running and not process.may_end and REFUSAL not in process.tail()
        ]

    def close(self) -> None:
        for process in self.processes:
            if process.is_running:
                process.send(signal.SIGCONT)
                process.kill()
            process.wait()
            process.link.close()


def spawn(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Popen:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=log.parent,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the suite, which then ends them all
        )
