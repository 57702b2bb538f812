"""Start a program as a child process: its environment, its folder, its limits and its end.

Every child gets
- an environment by allow-list: `PASSED_ON` and what the caller adds, nothing else;
- a private folder as HOME and TMPDIR, which is removed with it;
- limits on memory, processor time and the size of files, and no core dumps;
- no descriptor of this process but the ones that the caller names;
- a session of its own, so that what it starts ends with it. On Linux it also dies with us.
"""

import asyncio
import fcntl
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from syncline.children.limits import ChildLimits
from syncline.errors import Permanent, Transient

LAUNCHER = Path(__file__).with_name("launcher.py")
PASSED_ON = ("PATH", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")  # and LC_…
FOLDER_PREFIX = "syncline-child-"
PATIENCE_SECONDS = 3.0  # for a child to end when asked to
LONGEST_LINE = 2**16
MAX_OUTPUT = 256 * 2**20
MAX_ERROR_OUTPUT = 2**16


class ProgramNotFound(Permanent):
    """No such program is on the PATH of this process."""


class TooMuchOutput(Transient):
    """A program printed more than the caller was ready to take."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of a child: its exit code, its output, and the last of its complaints."""

    code: int
    output: bytes
    complaint: bytes


@dataclass(slots=True, eq=False)
class Child:
    """A program that runs as long as the block that started it lasts."""

    process: asyncio.subprocess.Process
    folder: Path
    limits: ChildLimits

    @property
    def stdout(self) -> asyncio.StreamReader:
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def stderr(self) -> asyncio.StreamReader:
        assert self.process.stderr is not None
        return self.process.stderr

    def exceeded(self) -> str | None:
        """Return which limit the ended program was stopped by, in words."""
        match -(self.process.returncode or 0):
            case signal.SIGXCPU:
                return f"it used more than {self.limits.cpu_seconds} s of processor time"
            case signal.SIGXFSZ:
                return f"it wrote a file of more than {self.limits.file_bytes} bytes"
        return None

    async def end(self) -> None:
        """End the program with all that it started; what will not go is killed."""
        try:
            if self.process.returncode is None:
                self._signal(signal.SIGTERM)
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._drain()
        except TimeoutError:
            pass
        finally:
            self._signal(signal.SIGKILL)
            await self._drain()

    async def _drain(self) -> None:
        """Wait for the end of a program whose output nobody wants any more."""
        with suppress(ValueError):
            while await self.stdout.read(2**16):
                pass
        await self.process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


@asynccontextmanager
async def start(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    limits: ChildLimits | None = None,
    stdin: bytes = b"",
    folder: Path | None = None,
    pass_fds: Iterable[int] = (),
    longest_line: int = LONGEST_LINE,
) -> AsyncIterator[Child]:
    """Lend a running program; however the block ends, so does the program.

    It runs in `folder`, or else in its private one. Its output comes by pipes, its input from a
    file: uvloop closes the pipe to a program that ends quickly, and then refuses to write to it
    ("the handler is closed").
    """
    limits = limits or ChildLimits()
    with private_folder() as home, _file_with(stdin, home) as source:
        variables = _environment(home) | dict(environment or {})
        program = _find_program(command[0], variables["PATH"])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", LAUNCHER, f"parent={os.getpid()}"),
            *(*limits.arguments(), "--", program, *command[1:]),
            stdin=source,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=longest_line // 2,  # the reader takes twice as much before it holds a program up
            cwd=folder or home,
            env=variables,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
        child = Child(process, home, limits)
        try:
            yield child
        finally:
            await child.end()


async def run(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    limits: ChildLimits | None = None,
    stdin: bytes = b"",
    folder: Path | None = None,
    pass_fds: Iterable[int] = (),
    max_output: int = MAX_OUTPUT,
) -> Finished:
    """Run a program to its end; return what it printed, or raise where that is too much."""
    async with start(
        command,
        environment=environment,
        limits=limits,
        stdin=stdin,
        folder=folder,
        pass_fds=pass_fds,
    ) as child:
        complaining = asyncio.create_task(_read_end(child.stderr, MAX_ERROR_OUTPUT))
        try:
            output = bytearray()
            while chunk := await child.stdout.read(2**16):
                output += chunk
                if len(output) > max_output:
                    raise TooMuchOutput(f"the program printed more than {max_output} bytes")
            code, complaint = await child.process.wait(), await complaining
        finally:
            complaining.cancel()
            await asyncio.gather(complaining, return_exceptions=True)
        return Finished(code, bytes(output), (child.exceeded() or "").encode() or complaint)


def _find_program(name: str | Path, path: str) -> str:
    found = shutil.which(name, path=path)
    if found is None:
        raise ProgramNotFound(f"the program {name} was not found on the PATH")
    return os.path.abspath(found)


async def _read_end(stream: asyncio.StreamReader, size: int) -> bytes:
    """Read to the end, and keep only so much: programs say last what they failed of."""
    kept = b""
    while chunk := await stream.read(2**16):
        kept = (kept + chunk)[-size:]
    return kept


def _environment(home: Path) -> dict[str, str]:
    """Return the allow-list: never our own settings, a database's, a cloud's or a proxy's."""
    passed_on = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith("LC_")
    }
    return {"PATH": os.defpath} | passed_on | {"HOME": str(home), "TMPDIR": str(home)}


@contextmanager
def _file_with(content: bytes, folder: Path) -> Iterator[IO[bytes] | int]:
    if not content:
        yield asyncio.subprocess.DEVNULL
        return
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(content)
        file.seek(0)
        yield file


@contextmanager
def private_folder() -> Iterator[Path]:
    """Lend a new folder that only this user can enter.

    It is locked before it gets its name and as long as it is lent: a folder of that name that
    nobody locks was left by a process that was killed.
    """
    _remove_abandoned_folders()
    made = Path(tempfile.mkdtemp(prefix="syncline-new-"))
    descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        named = made.with_name(f"{FOLDER_PREFIX}{made.name.removeprefix('syncline-new-')}")
        made = made.rename(named)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(descriptor)


@cache  # once a process is enough
def _remove_abandoned_folders() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
