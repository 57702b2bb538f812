"""What Singer taps and Airbyte manifests share: a connector that runs a program of others.

The program runs in a sandbox, whose only way out is a proxy that refuses what the HTTP client
would refuse. Without a sandbox it runs only where the operator named its provider.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from syncline.children.process import Child, start
from syncline.children.sandbox import needed_by, start_sandboxed, why_unavailable
from syncline.connectors.foreign.host import MAX_LINE, Redact, Running, listen
from syncline.errors import Transient
from syncline.home import resolve_home
from syncline.sdk.connector import Connector

SETTING = "foreign.unsandboxed"
ENVIRONMENT = {"PYTHONUNBUFFERED": "1"}

Command = Sequence[str | Path]
Started = tuple[Child, list[str]]  # and the addresses that it was refused, as they come


class ForeignConnector(Connector):
    """Runs one program, a process for each sync."""

    local = True

    def __init__(self, executable: str, environment: Iterable[str] = ()) -> None:
        self._executable = executable
        self._environment = tuple(environment)  # further folders that the program reads
        self.probe: Callable[[], str | None] = why_unavailable

    def why_not_for_tenants(self) -> str | None:
        if not self.sandboxed:
            return f"{self.provider} runs outside of the sandbox, because {SETTING} names it"
        reason = self.probe()
        return None if reason is None else f"this host cannot sandbox {self.provider}: {reason}"

    @asynccontextmanager
    async def running(
        self, arguments: Sequence[str | Path], *, inputs: Path, redact: Redact
    ) -> AsyncIterator[Running]:
        """Lend the program, started with arguments; its input lies in a folder of ours.

        However the block ends, so does the program.
        """
        command = (self._executable, *arguments)
        starting = (
            self._start_sandboxed(command, inputs) if self.sandboxed else self._start(command)
        )
        async with (
            starting as (child, refusals),
            listen(child, redact, self.provider) as running,
        ):
            running.refusals = refusals
            yield running

    @asynccontextmanager
    async def _start(self, command: Command) -> AsyncIterator[Started]:
        limits, environment = self.child_limits, ENVIRONMENT
        async with start(
            command, environment=environment, limits=limits, max_line=MAX_LINE
        ) as child:
            yield child, []

    @asynccontextmanager
    async def _start_sandboxed(self, command: Command, inputs: Path) -> AsyncIterator[Started]:
        from syncline.http.egress_proxy import serve_proxy
        from syncline.http.environment import HttpEnvironment

        await self._require_sandbox()
        async with (
            start_sandboxed(
                command,
                inputs=inputs,
                readable=[*needed_by(self._executable), *self._environment],
                hidden=[str(resolve_home())],
                environment=ENVIRONMENT,
                limits=self.child_limits,
                max_line=MAX_LINE,
            ) as (child, listener),
            serve_proxy(
                listener, self.http_environment or HttpEnvironment(), self.provider
            ) as proxy,
        ):
            yield child, proxy.refusals

    async def _require_sandbox(self) -> None:
        # Another worker may have what this one lacks, so that the job is worth another attempt.
        reason = await asyncio.to_thread(self.probe)
        if reason is not None:
            raise Transient(
                f"{self.provider} runs in a sandbox only, which this host does not allow "
                f"({reason}); name it in {SETTING} to run it without one"
            )
