"""Parse documents in child processes, because the libraries cannot limit time or memory.

A few processes are kept and reused, so that most documents need no new interpreter. They start at
their first use, and end with the engine, with this process, or at a document's deadline.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from syncline.children.parser_process import ANSWER, HEADER
from syncline.children.process import PASSED_ON
from syncline.errors import Permanent, Transient
from syncline.json_bounds import JsonBounds, TooComplex, parse_json
from syncline.offload import in_thread

PROGRAM = Path(__file__).with_name("parser_process.py")
MAX_PROCESSES = 4
MAX_DOCUMENTS = 500  # per process; libraries leak memory
MEMORY_BYTES = 768 * 2**20  # of address space
MAX_ANSWER_BYTES = 64_000_000
SECONDS = 30.0


class ParserFailed(Exception):
    """The library raised; `kind` is the name of its exception."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message = kind, message


class _Gone(Exception):
    """The process ended before it answered."""


class _Parser:
    """One process, used by one thread at a time."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  (our own program)
                [
                    sys.executable,
                    "-I",
                    PROGRAM,
                    *map(str, (theirs.fileno(), MEMORY_BYTES)),
                    *_path(),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=_environment(),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self.documents = 0

    def parse(self, request: dict[str, Any], document: bytes) -> tuple[bool, bytes]:
        """Return whether the function returned, and its JSON; raise TimeoutError or `_Gone`."""
        self.documents += 1
        head = json.dumps(request).encode()
        self._channel.settimeout(request["seconds"] + 5)  # the alarm in the process comes first
        try:
            self._channel.sendall(HEADER.pack(len(head), len(document)) + head)
            self._channel.sendall(document)
            worked, size = ANSWER.unpack(self._receive(ANSWER.size))
            if size > MAX_ANSWER_BYTES:
                raise Permanent(f"the parsed document has more than {MAX_ANSWER_BYTES} bytes")
            return worked, self._receive(size)
        except (BrokenPipeError, ConnectionError):
            self.end()
            if self._process.returncode == -signal.SIGALRM:
                raise TimeoutError from None
            raise _Gone from None
        except BaseException:
            self.end()
            raise

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self._channel.recv(min(size - len(received), 2**20))
            if not piece:
                raise ConnectionError
            received += piece
        return bytes(received)

    def end(self) -> None:
        self._channel.close()
        with suppress(ProcessLookupError):
            self._process.kill() if self._process.poll() is None else None
        self._process.wait()


class Parsers:
    """A pool of parser processes."""

    def __init__(self, most: int = MAX_PROCESSES, seconds: float = SECONDS) -> None:
        self.seconds = seconds  # the longest time for a document
        self._places = threading.BoundedSemaphore(most)
        self._idle: list[_Parser] = []
        self._lock = threading.Lock()

    async def parse(
        self,
        function: str,
        document: bytes,
        arguments: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `module:function` with a document in another process; return its result."""
        request = {
            "function": function,
            "seconds": self.seconds,
            "arguments": dict(arguments or {}),
        }
        return await in_thread(self._parse, request, document)

    def close(self) -> None:
        """End the idle processes; the next document starts a new one."""
        with self._lock:
            idle, self._idle = self._idle, []
        for parser in idle:
            parser.end()

    def _parse(self, request: dict[str, Any], document: bytes) -> Any:
        with self._places:
            try:
                worked, text = self._ask(request, document)
            except TimeoutError:
                limit = request["seconds"]
                raise Transient(f"the document took longer than {limit:g} s to parse") from None
            except _Gone:
                raise Transient("the process that parsed the document ended unexpectedly") from None
            return _result(worked, text)

    def _ask(self, request: dict[str, Any], document: bytes) -> tuple[bool, bytes]:
        with self._lock:
            parser = self._idle.pop() if self._idle else None
        if parser is not None:
            with suppress(_Gone):  # it may have ended while it was idle
                return self._use(parser, request, document)
        return self._use(_Parser(), request, document)

    def _use(self, parser: _Parser, request: dict[str, Any], document: bytes) -> tuple[bool, bytes]:
        worked, text = parser.parse(request, document)
        if worked and parser.documents < MAX_DOCUMENTS:
            with self._lock:
                self._idle.append(parser)
        else:  # the state after an exception is unknown
            parser.end()
        return worked, text


def _result(worked: bool, text: bytes) -> Any:
    try:
        result = parse_json(text, JsonBounds(depth=64))
    except TooComplex as error:
        raise Permanent(f"the parsed document is too complex: it has {error}") from None
    if worked:
        return result
    if result["kind"] == "MemoryError":
        raise Transient(f"parsing the document takes more than {MEMORY_BYTES} bytes of memory")
    raise ParserFailed(result["kind"], result["message"])


def _path() -> list[str]:
    """Return our import path as absolute folders, because the process starts elsewhere."""
    return [os.path.abspath(folder) for folder in sys.path]


def _environment() -> dict[str, str]:
    """Return the environment variables that a parser gets."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith("LC_")
    }


PARSERS = Parsers()
atexit.register(PARSERS.close)
