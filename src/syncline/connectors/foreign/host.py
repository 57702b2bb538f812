"""Run a foreign program as a process of its own: its lines, its log, and its end for sure.

Nothing secret goes into its arguments or its environment: what it must know stands in files that
only this user can read, in a folder that goes with the run.
"""

import asyncio
import json
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncline.errors import Permanent, RateLimited, SyncError, Transient, Unauthorized

LOG = logging.getLogger("syncline.connectors.foreign")
LAUNCHER = Path(__file__).with_name("launcher.py")
LONGEST_LINE = 8 * 2**20  # bytes; a signal's payload takes 1 MB at most
LONGEST_LOG_LINE = 2000
PATIENCE_SECONDS = 3.0  # to end by itself when asked to
LEVEL = re.compile(r"\b(CRITICAL|ERROR|WARNING|INFO|DEBUG)\b")
# What programs say on stderr about failures that the usual retry will not cure.
COMPLAINTS: tuple[tuple[type[SyncError], re.Pattern[str]], ...] = (
    (Unauthorized, re.compile(r"\b401 (Client Error|Unauthorized)|invalid_(grant|client)")),
    (RateLimited, re.compile(r"\b429 (Client Error|Too Many)|rate limit exceeded")),
    (Permanent, re.compile(r"Config validation (error|failed)|ConfigValidationError")),
)

Redact = Callable[[str], str]


@dataclass(slots=True, eq=False)
class Running:
    """A program that runs, as long as the block that started it lasts."""

    process: asyncio.subprocess.Process
    listening: "asyncio.Task[None]"
    complaints: "deque[str]" = field(default_factory=lambda: deque(maxlen=20))

    async def next_line(self, patience_seconds: float) -> bytes | None:
        """Return the next line of its output, empty at the end, or None if it stays silent."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(patience_seconds):
                return await self.process.stdout.readline()
        except TimeoutError:
            return None
        except ValueError:
            raise Transient(f"a line of more than {LONGEST_LINE} bytes") from None

    async def failure(self) -> SyncError | None:
        """Wait for its end; return what its exit code and its last words ask for."""
        code = await self.process.wait()
        await self.listening
        if code == 0:
            return None
        words = "\n".join(self.complaints)
        kind = next((kind for kind, said in COMPLAINTS if said.search(words)), Transient)
        return kind(f"exit code {code}: {words[-1500:] or 'it said nothing'}")


@asynccontextmanager
async def running(
    command: Sequence[str | Path], *, folder: Path, redact: Redact, name: str
) -> AsyncIterator[Running]:
    """Lend a program that was started in a folder; however the block ends, so does the program."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        LAUNCHER,
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LONGEST_LINE // 2,  # the reader takes twice as much before it holds the program up
        cwd=folder,
        env=_environment(),
        start_new_session=True,  # so that what it starts can be ended with it
    )
    complaints: deque[str] = deque(maxlen=20)
    listening = asyncio.create_task(_listen(process, complaints, redact, name))
    try:
        yield Running(process, listening, complaints)
    finally:
        await _end(process)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a program with all that it started; what will not go is killed."""
    try:
        if process.returncode is None:
            _signal_group(process, signal.SIGTERM)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await _wait(process)
    except TimeoutError:
        pass
    finally:
        _signal_group(process, signal.SIGKILL)
        await _wait(process)


async def _wait(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of a program whose output nobody wants any more."""
    assert process.stdout is not None
    with suppress(ValueError):
        while await process.stdout.read(2**16):
            pass
    await process.wait()


def _signal_group(process: asyncio.subprocess.Process, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _listen(
    process: asyncio.subprocess.Process, complaints: "deque[str]", redact: Redact, name: str
) -> None:
    """Hand what the program says on stderr to our log, a line each, without secrets."""
    assert process.stderr is not None
    while True:
        try:
            line = await process.stderr.readline()
        except ValueError:
            continue  # one too long to be read; the rest of it follows
        if not line:
            return
        text = redact(line.decode(errors="replace").strip())
        level = LEVEL.search(text[:200])
        LOG.log(logging.getLevelNamesMapping()[level[1] if level else "INFO"], "%s: %s", name, text)
        if text:
            complaints.append(text)


def _environment() -> dict[str, str]:
    """Return the environment without what concerns Syncline and its database alone."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SYNCLINE_", "PG", "PYTHON"))
    } | {"PYTHONUNBUFFERED": "1"}


@contextmanager
def run_folder(base: Path) -> Iterator[Path]:
    """Lend a folder that only this user can read; what dead processes left behind goes as well."""
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in base.glob("run-*"):
        if not _is_alive(left.name.split("-")[1]):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(
        prefix=f"run-{os.getpid()}-", dir=base, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True


def write_json(path: Path, value: Any) -> Path:
    """Write a file that only this user can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(value, file)
    return path


def redactor(*secrets: Any) -> Redact:
    """Return what takes these values, wherever they stand in a text, out of it and cuts it."""
    from syncline.redaction import Scrubber, secrets_in

    scrub = Scrubber(set().union(*(secrets_in(one, besides=frozenset()) for one in secrets)))
    return lambda text: scrub(text, LONGEST_LOG_LINE)
