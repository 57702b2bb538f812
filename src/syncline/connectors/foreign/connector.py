"""What Singer taps and Airbyte manifests share: a connector that runs a third-party program.

The program runs in a sandbox. Its only network is a proxy with the rules of our HTTP client. It
runs without a sandbox only if the operator's settings name its provider.
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
Started = tuple[Child, list[str]]  # the refused addresses, added as they occur


class ForeignConnector(Connector):
    """Runs one program, in a new process for each sync."""

    auth = ("none", "any")  # credentials are settings of the program
    local = True
    runs_programs = True

    def __init__(self, executable: str, environment: Iterable[str] = ()) -> None:
        self._executable = executable
        self._environment = tuple(environment)  # more folders that the program reads
        self.probe: Callable[[], str | None] = why_unavailable

    def why_not_for_tenants(self) -> str | None:
        if not self.sandboxed:
            return f"{self.provider} runs without a sandbox, because {SETTING} includes it"
        reason = self.probe()
        return None if reason is None else f"this host cannot sandbox {self.provider}: {reason}"

    @asynccontextmanager
    async def running(
        self, arguments: Sequence[str | Path], *, inputs: Path, redact: Redact
    ) -> AsyncIterator[Running]:
        """Yield the running program, and end it with the block.

        `inputs` is the folder with its input files.
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
        # Another worker may have a sandbox, so the job should be retried.
        reason = await asyncio.to_thread(self.probe)
        if reason is not None:
            raise Transient(
                f"{self.provider} needs a sandbox, which this host does not allow ({reason}); "
                f"add {self.provider} to {SETTING} to run it without one"
            )
