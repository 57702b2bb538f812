"""A running third-party program: its output, its log, and what its exit means.

Its arguments and its environment have no secrets. It gets them in files that only this user can
read, in a folder that is removed after the run.
"""

import asyncio
import json
import logging
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncline.children.process import Child
from syncline.errors import Permanent, RateLimited, SyncError, Transient, Unauthorized

LOG = logging.getLogger("syncline.connectors.foreign")
MAX_LINE = 8 * 2**20  # bytes; a signal's payload has at most 1 MB
LONGEST_LOG_LINE = 2000
LEVEL = re.compile(r"\b(CRITICAL|ERROR|WARNING|INFO|DEBUG)\b")
# What programs print on stderr about failures that a retry does not fix.
COMPLAINTS: tuple[tuple[type[SyncError], re.Pattern[str]], ...] = (
    (Unauthorized, re.compile(r"\b401 (Client Error|Unauthorized)|invalid_(grant|client)")),
    (RateLimited, re.compile(r"\b429 (Client Error|Too Many)|rate limit exceeded")),
    (Permanent, re.compile(r"Config validation (error|failed)|ConfigValidationError")),
)
FILE_TOO_LARGE = re.compile(r"\bFile too large\b")
OUT_OF_MEMORY = re.compile(r"\bMemoryError\b|Cannot allocate memory|bad_alloc")

Redact = Callable[[str], str]


@dataclass(slots=True, eq=False)
class Running:
    """A running program; it ends with the block that started it."""

    child: Child
    listening: "asyncio.Task[None]"
    complaints: "deque[str]"
    refusals: list[str] = field(default_factory=list)  # of addresses that it tried to reach

    async def next_line(self, patience_seconds: float) -> bytes | None:
        """Return the next line of output: empty at the end, None if there is none in time."""
        try:
            async with asyncio.timeout(patience_seconds):
                return await self.child.stdout.readline()
        except TimeoutError:
            return None
        except ValueError:
            raise Transient(f"the program wrote a line of more than {MAX_LINE} bytes") from None

    async def failure(self, reported: SyncError | None = None) -> SyncError | None:
        """Wait for the program; return the error that its exit code and stderr imply, or None.

        `reported` is an error from the program's own messages, which takes precedence. The last
        lines on stderr are noted on the error: they are the trace that its attempt keeps.
        """
        code = await self.child.process.wait()
        await self.listening
        error = reported if code == 0 else self._error_of(code, reported)
        if error is not None and self.complaints:
            error.add_note("stderr ended with\n" + "\n".join(self.complaints))
        return error

    def _error_of(self, code: int, reported: SyncError | None) -> SyncError:
        words = "\n".join(self.complaints)
        if limit := self._exceeded(words):
            return Transient(
                f"{limit}; the next run continues from its last state: {words[-1000:]}"
            )
        said = f"exit code {code}: {words[-1500:] or 'no output on stderr'}"
        if self.refusals:
            return Permanent(f"{self.refusals[0]} ({reported or said})")
        return reported or next(
            (kind for kind, text in COMPLAINTS if text.search(words)), Transient
        )(said)

    def _exceeded(self, words: str) -> str | None:
        if OUT_OF_MEMORY.search(words):
            return f"it needed more than {self.child.limits.memory_bytes} bytes of memory"
        if FILE_TOO_LARGE.search(words):  # a program may ignore the signal
            return f"it wrote a file of more than {self.child.limits.file_bytes} bytes"
        return self.child.exceeded()


@asynccontextmanager
async def listen(child: Child, redact: Redact, name: str) -> AsyncIterator[Running]:
    """Yield a running program, and log its stderr as it is written."""
    complaints: deque[str] = deque(maxlen=20)
    listening = asyncio.create_task(_listen(child, complaints, redact, name))
    try:
        yield Running(child, listening, complaints)
    finally:
        await child.end()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def _listen(child: Child, complaints: "deque[str]", redact: Redact, name: str) -> None:
    """Log each line of the program's stderr, without secrets."""
    while True:
        try:
            line = await child.stderr.readline()
        except ValueError:
            continue  # the line is too long; its rest follows
        if not line:
            return
        text = redact(line.decode(errors="replace").strip())
        level = LEVEL.search(text[:200])
        LOG.log(logging.getLevelNamesMapping()[level[1] if level else "INFO"], "%s: %s", name, text)
        if text:
            complaints.append(text)


def write_json(path: Path, value: Any) -> Path:
    """Write a new file that only this user can read."""
    # A new file, because the program could have put a link in its place.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(value, file)
    return path


def redactor(*secrets: Any) -> Redact:
    """Return a function that masks these values in text and shortens it."""
    from syncline.redaction import Scrubber, secrets_in

    scrub = Scrubber(set().union(*(secrets_in(one, besides=frozenset()) for one in secrets)))
    return lambda text: scrub(text, LONGEST_LOG_LINE)
