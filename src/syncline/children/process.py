"""Start a program as a child process with its own environment, folder and limits.

Every child gets
- an environment by allow-list: `PASSED_ON` and what the caller adds;
- a private folder as HOME and TMPDIR, which is removed at its end;
- limits on memory, processor time and the size of files, and no core dumps;
- no file descriptors of this process, except those that the caller names;
- a session of its own, so that its own children end with it. On Linux it also dies with us.
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
from typing import IO, TypedDict, Unpack

from syncline.children.limits import ChildLimits
from syncline.errors import Permanent, Transient

LAUNCHER = Path(__file__).with_name("launcher.py")
PASSED_ON = ("PATH", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")  # and LC_…
FOLDER_PREFIX = "syncline-child-"
MAX_LINE = 2**16
MAX_OUTPUT = 256 * 2**20
MAX_ERROR_OUTPUT = 2**16


class ProgramNotFound(Permanent):
    """The program is not on the PATH of this process."""


class TooMuchOutput(Transient):
    """A program printed more than the caller allows."""


class ChildOptions(TypedDict, total=False):
    """How a program starts; it runs in `folder`, or by default in its private folder."""

    environment: Mapping[str, str] | None
    limits: ChildLimits | None
    stdin: bytes
    folder: Path | None
    pass_fds: Iterable[int]
    max_line: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a child: its exit code, its output, and the end of its error output."""

    code: int
    output: bytes
    error_output: bytes

    @property
    def is_out_of_time(self) -> bool:
        """Whether the program was ended by its limit on processor time."""
        return self.code == -signal.SIGXCPU


@dataclass(slots=True, eq=False)
class Child:
    """A running program; it ends with the block that started it."""

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
        """Return which limit stopped the program, as text."""
        match -(self.process.returncode or 0):
            case signal.SIGXCPU:
                return f"it used more than {self.limits.cpu_seconds} s of processor time"
            case signal.SIGXFSZ:
                return f"it wrote a file of more than {self.limits.file_bytes} bytes"
        return None

    async def end(self) -> None:
        """End the program and everything it started; kill what does not end in time."""
        try:
            if self.process.returncode is None:
                self._signal(signal.SIGTERM)
                async with asyncio.timeout(self.limits.grace_seconds):
                    await self._drain()
        except TimeoutError:
            pass
        finally:
            self._signal(signal.SIGKILL)
            await self._drain()

    async def _drain(self) -> None:
        """Discard the output until the program has ended."""
        with suppress(ValueError):
            while await self.stdout.read(2**16):
                pass
        await self.process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


@asynccontextmanager
async def start(
    command: Sequence[str | Path], **options: Unpack[ChildOptions]
) -> AsyncIterator[Child]:
    """Yield a running program, and end it with the block.

    Its output comes through pipes. Its input is a file: uvloop closes the pipe to a program that
    ends quickly, and then refuses to write to it ("the handler is closed").
    """
    if unknown := options.keys() - ChildOptions.__annotations__.keys():
        raise TypeError(f"a child process has no option {min(unknown)!r}")
    limits = options.get("limits") or ChildLimits()
    with private_folder() as home, _file_with(options.get("stdin", b""), home) as source:
        variables = _environment(home) | dict(options.get("environment") or {})
        program = _find_program(command[0], variables["PATH"])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", LAUNCHER, f"parent={os.getpid()}"),
            *(*limits.arguments(), "--", program, *command[1:]),
            stdin=source,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=options.get("max_line", MAX_LINE) // 2,  # asyncio buffers twice as much
            cwd=options.get("folder") or home,
            env=variables,
            pass_fds=tuple(options.get("pass_fds", ())),
            start_new_session=True,
        )
        child = Child(process, home, limits)
        try:
            yield child
        finally:
            await child.end()


@dataclass(frozen=True, slots=True)
class Printing:
    """A running program whose output is read piece by piece; it waits while nobody reads."""

    child: Child
    _error_output: "asyncio.Task[bytes]"

    async def read(self, size: int) -> bytes:
        """Return the next output, at most this much; nothing at its end."""
        return await self.child.stdout.read(size)

    async def finish(self, output: bytes = b"") -> Finished:
        """Wait until the program has ended, after all of its output was read."""
        code, error_output = await self.child.process.wait(), await self._error_output
        return Finished(code, output, (self.child.exceeded() or "").encode() or error_output)


@asynccontextmanager
async def start_printing(
    command: Sequence[str | Path], **options: Unpack[ChildOptions]
) -> AsyncIterator[Printing]:
    """Yield a program whose output can be read as it comes, and end it with the block."""
    async with start(command, **options) as child:
        reading_errors = asyncio.create_task(_read_end(child.stderr, MAX_ERROR_OUTPUT))
        try:
            yield Printing(child, reading_errors)
        finally:
            reading_errors.cancel()
            await asyncio.gather(reading_errors, return_exceptions=True)


async def run(
    command: Sequence[str | Path],
    *,
    max_output: int = MAX_OUTPUT,
    **options: Unpack[ChildOptions],
) -> Finished:
    """Run a program to its end and return its output; raise `TooMuchOutput` if that is too much."""
    async with start_printing(command, **options) as printing:
        return await printing.finish(await _read_all(printing, max_output))


def _find_program(name: str | Path, path: str) -> str:
    found = shutil.which(name, path=path)
    if found is None:
        raise ProgramNotFound(f"the program {name} was not found on the PATH")
    return os.path.abspath(found)


async def _read_all(printing: Printing, max_output: int) -> bytes:
    output = bytearray()
    while chunk := await printing.read(2**16):
        output += chunk
        if len(output) > max_output:
            raise TooMuchOutput(f"the program printed more than {max_output} bytes")
    return bytes(output)


async def _read_end(stream: asyncio.StreamReader, size: int) -> bytes:
    """Read everything and return the end, where programs say why they failed."""
    kept = b""
    while chunk := await stream.read(2**16):
        kept = (kept + chunk)[-size:]
    return kept


def _environment(home: Path) -> dict[str, str]:
    """Return the allowed variables, without settings of ours, databases, clouds or proxies."""
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
    """Yield a new folder that only this user can enter.

    It is locked before it gets its final name, and until the end of the block. A folder with such
    a name and without a lock was left by a killed process.
    """
    _remove_abandoned_folders(tempfile.gettempdir())
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


@cache  # once per process is enough
def _remove_abandoned_folders(parent: str) -> None:
    for folder in Path(parent).glob(f"{FOLDER_PREFIX}*"):
        with suppress(OSError):
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
