"""Workers and schedulers: processes of the command line, each with its own link to Postgres."""

import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from faults.connector import PROVIDER_VARIABLE
from faults.process import Popen, Process, Role, environment_of, spawn
from faults.proxy import Link

REFUSAL = "syncline: the database "  # the error of a start without Postgres
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


class Member(Process):
    """A running worker or scheduler with its own link to Postgres."""

    def __init__(self, role: Role, popen: Popen, link: Link, log: Path) -> None:
        super().__init__(role, popen, log)
        self.link = link


class Fleet:
    """All processes of a run; the permanent ones are replaced when a fault has ended them."""

    def __init__(self, database: str, upstream: str, provider_url: str, logs: Path) -> None:
        self.processes: list[Member] = []
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
    ) -> Member:
        """Start a process, by default with its own link to Postgres."""
        link = Link(self._upstream)
        await link.open()
        settings = {
            "DATABASE_URL": link.url.format(database=self._database),
            **SETTINGS,
            **(settings or {}),
        }
        environment = {
            **environment_of(settings),
            PROVIDER_VARIABLE: self._provider_url,
            **(environment or {}),
        }
        log = self._logs / f"{len(self.processes) + 1:03}-{role}.log"
        log.unlink(missing_ok=True)  # an earlier run's
        command = [sys.executable, *prefix, *COMMAND, connectors, OPTIONS[role]]
        process = Member(role, spawn(command, environment, log), link, log)
        self.processes.append(process)
        return process

    def running(self, role: Role | None = None) -> list[Member]:
        return [
            process
            for process in self.processes
            if process.is_running and role in (None, process.role) and not process.may_end
        ]

    def by_pid(self, pid: int) -> Member:
        return next(process for process in self.processes if process.pid == pid)

    def complaining(self) -> list[Member]:
        """Return the processes whose log shows an uncaught exception, each only once."""
        found = [
            process
            for process in self.processes
            if not process.has_complained and process.has_failed()
        ]
        for process in found:
            process.has_complained = True
        return found

    def ended_unasked(self) -> list[Member]:
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
