"""The command line as a person uses it: inside this process, or as processes of its own."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
from typer.testing import CliRunner, Result

from syncline.cli.app import app

TESTS = Path(__file__).parents[1]
# Where the tests were given a copy of the source, what they start runs that copy too.
PATH = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
Process = subprocess.Popen[str]


@dataclass
class CommandLine:
    """Runs commands against one database."""

    url: str
    folder: Path
    started: list[Process] = field(default_factory=list)

    def __call__(self, *arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, ["--database-url", self.url, *arguments], input=stdin)

    def json(self, *arguments: str) -> Any:
        """Run a command that must succeed with --json; return its output."""
        result = self(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def add(self, external_id: str = "a-1", *, tenant: str = "acme", provider: str = "demo") -> str:
        """Add a connection and return its id."""
        added: str = self.json("connections", "add", tenant, provider, external_id, "--force")["id"]
        return added

    def sql(self, statement: str, *arguments: Any) -> Sequence[Any]:
        async def fetch() -> Sequence[Any]:
            session = await asyncpg.connect(self.url)
            try:
                return await session.fetch(statement, *arguments)
            finally:
                await session.close()

        return asyncio.run(fetch())

    def start(self, *arguments: str, stdout: Any = subprocess.PIPE, **environment: str) -> Process:
        """Start `python -m syncline …` in the test's own folder."""
        return self.start_program("-m", "syncline", *arguments, stdout=stdout, **environment)

    def start_program(
        self, *arguments: str, stdout: Any = subprocess.PIPE, **environment: str
    ) -> Process:
        """Start Python, in an environment that leads to the database."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env={
                **os.environ,
                "SYNCLINE_DATABASE_URL": self.url,
                "SYNCLINE_API__PORT": "0",
                "PYTHONPATH": PATH,
                **environment,
            },
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        """End the processes that a test left running."""
        for process in self.started:
            with process:
                process.kill()
