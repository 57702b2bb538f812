"""As much of Postgres' wire protocol as it takes to tell one call from the next."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import pack, unpack_from

from simulation.timeouts import SET_CONFIG, Timeouts

CANCEL_REQUEST = 80877102
ONE_ROW = "one row"  # all that was asked for; the server does not say what else it did
WRITES = ("INSERT", "UPDATE", "DELETE", ONE_ROW)
WRITING_WITH = re.compile(r'\bWITH\b.*\bUPDATE "', re.DOTALL)  # whose answer says SELECT


@dataclass(slots=True)
class Request:
    """What a client sent in one go: the statement it is about, and how its answer will end."""

    label: str
    ends_with: bytes  # any of these messages; nothing where no answer comes
    is_commit: bool = False
    writes: bool = False  # whatever its answer says
    data: bytes = b""
    cancels: int | None = None  # the process of the server whose call it asks to cancel

    @property
    def kind(self) -> str:
        return "COMMIT" if self.is_commit else "a call"


class Requests:
    """Reads what one client sends; remembers its prepared statements by their names."""

    def __init__(self) -> None:
        self._statements: dict[bytes, str] = {}
        self._timeouts_set: dict[bytes, str] = {}  # which of them a statement sets
        self._writing: set[str] = set()  # what calls are about that write whatever they say
        self._has_begun = False
        self._is_open = False  # between BEGIN and COMMIT
        self.timeouts = Timeouts()

    def read(self, data: bytes) -> Request:
        request = self._read(data) if self._has_begun else self._read_first(data)
        self._has_begun = True
        request.data = self._without_timeouts(data, request)
        return request

    def _read_first(self, data: bytes) -> Request:
        if unpack_from("!I", data, 4)[0] == CANCEL_REQUEST:
            return Request("cancel", b"", cancels=unpack_from("!I", data, 8)[0])
        return Request("connect", b"Z")

    def _read(self, data: bytes) -> Request:
        label, last, executes = "", b"", False
        for last, body in messages(data):
            label = self._label(last, body) or label
            executes = executes or last == b"E"
        if last == b"X":
            return Request("leave", b"")
        if last == b"H":
            return Request(f"prepare {label}", b"TnE")
        stands_alone = executes and not self._is_open
        if last == b"Q":
            self._is_open = label.startswith("BEGIN")
        is_commit = label.rstrip(";") == "COMMIT" or stands_alone
        writes = executes and label in self._writing
        return Request(label or "synchronise", b"Z", is_commit, writes)

    def _without_timeouts(self, data: bytes, request: Request) -> bytes:
        """Return what to send, without the timeouts that are counted here instead."""
        if request.label == "connect":
            return self.timeouts.take_from_startup(data)
        if data[:1] == b"Q":
            return self.timeouts.take_from_script(data)
        if data[:1] == b"B":
            body = next(messages(data))[1]
            if name := self._timeouts_set.get(body.split(b"\0", 2)[1]):
                return self.timeouts.take_from_call(name, body, data)
        return data

    def _label(self, kind: bytes, body: bytes) -> str:
        """Return what a message is about, where it says so."""
        if kind == b"Q":
            return _shorten(body.rstrip(b"\0").decode())
        if kind == b"P":
            name, statement, _ = body.split(b"\0", 2)
            self._statements[name] = _shorten(statement.decode())
            if WRITING_WITH.search(statement.decode()):
                self._writing.add(self._statements[name])
            self._timeouts_set.pop(name, None)
            if sets := SET_CONFIG.search(statement.decode()):
                self._timeouts_set[name] = sets[1]
            return self._statements[name]
        if kind == b"B":
            return self._statements.get(body.split(b"\0", 2)[1], "?")
        return ""


@dataclass(slots=True)
class Answer:
    """What the server sends back, until the message that ends it."""

    ends_with: bytes
    data: bytearray = field(default_factory=bytearray)
    tags: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    status: str = ""  # I: idle, T: in a transaction, E: in a failed one
    pid: int | None = None
    is_complete: bool = False
    _read: int = 0

    def feed(self, data: bytes) -> None:
        self.data += data
        for kind, body in messages(self.data, self._read):
            self._read += 5 + len(body)
            self._note(kind, body)
            self.is_complete = kind in self.ends_with

    def _note(self, kind: bytes, body: bytes) -> None:
        if kind == b"C":
            self.tags.append(body.rstrip(b"\0").decode())
        elif kind == b"s":
            self.tags.append(ONE_ROW)
        elif kind == b"E":
            codes = [part[1:].decode() for part in body.split(b"\0") if part[:1] == b"C"]
            self.errors += codes
        elif kind == b"Z":
            self.status = body.decode()
        elif kind == b"K":
            self.pid = unpack_from("!I", body)[0]

    def replace_error(self, code: str, by: str) -> None:
        self.data = self.data.replace(f"C{code}\0".encode(), f"C{by}\0".encode())
        self.errors = [by if error == code else error for error in self.errors]

    @property
    def wrote(self) -> bool:
        """Whether a statement of the answer may have touched rows."""
        return any(tag.startswith(WRITES) and not tag.endswith(" 0") for tag in self.tags)


def error_message(code: str, text: str) -> bytes:
    """Return what a server says before it ends a session."""
    body = b"".join(
        field.encode() + b"\0" for field in ("SFATAL", "VFATAL", f"C{code}", f"M{text}", "")
    )
    return b"E" + pack("!I", 4 + len(body)) + body


def with_setting(startup: bytes, name: str, value: str) -> bytes:
    """Return the first message of a session, with one setting more."""
    body = startup[4:-1] + name.encode() + b"\0" + value.encode() + b"\0\0"
    return pack("!I", 4 + len(body)) + body


def messages(data: bytes | bytearray, start: int = 0) -> Iterator[tuple[bytes, bytes]]:
    """Yield the complete messages from a place on: their kinds and their bodies."""
    while start + 5 <= len(data):
        length = unpack_from("!I", data, start + 1)[0]
        if start + 1 + length > len(data):
            return
        yield bytes(data[start : start + 1]), bytes(data[start + 5 : start + 1 + length])
        start += 1 + length


def _shorten(statement: str) -> str:
    """Return what a statement says of itself, or how it begins."""
    first = next((line.strip() for line in statement.splitlines() if line.strip()), "")
    return first.removeprefix("-- ")[:60]
