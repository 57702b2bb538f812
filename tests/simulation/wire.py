"""As much of Postgres' wire protocol as it takes to tell one call from the next."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import unpack_from

CANCEL_REQUEST = 80877102
ONE_ROW = "one row"  # all that was asked for; the server does not say what else it did
WRITES = ("INSERT", "UPDATE", "DELETE", ONE_ROW)


@dataclass(slots=True)
class Request:
    """What a client sent in one go: the statement it is about, and how its answer will end."""

    label: str
    ends_with: bytes  # any of these messages; nothing where no answer comes
    is_commit: bool = False

    @property
    def kind(self) -> str:
        return "COMMIT" if self.is_commit else "a call"


class Requests:
    """Reads what one client sends; remembers its prepared statements by their names."""

    def __init__(self) -> None:
        self._statements: dict[bytes, str] = {}
        self._has_begun = False
        self._is_open = False  # between BEGIN and COMMIT

    def read(self, data: bytes) -> Request:
        if not self._has_begun:
            self._has_begun = True
            if unpack_from("!I", data, 4)[0] == CANCEL_REQUEST:
                return Request("cancel", b"")
            return Request("connect", b"Z")
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
        return Request(label or "synchronise", b"Z", label == "COMMIT;" or stands_alone)

    def _label(self, kind: bytes, body: bytes) -> str:
        """Return what a message is about, where it says so."""
        if kind == b"Q":
            return _shorten(body.rstrip(b"\0").decode())
        if kind == b"P":
            name, statement, _ = body.split(b"\0", 2)
            self._statements[name] = _shorten(statement.decode())
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

    @property
    def wrote(self) -> bool:
        """Whether a statement of the answer may have touched rows."""
        return any(tag.startswith(WRITES) and not tag.endswith(" 0") for tag in self.tags)


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
