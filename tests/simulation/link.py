"""One session between a simulated process and the real server, as the network lets it pass."""

import asyncio
from contextvars import Context, copy_context
from enum import Enum, auto
from typing import Any, Protocol

from simulation.loop import Process, SimulatedLoop
from simulation.wire import Answer, Request, Requests


class Fate(Enum):
    """What becomes of a call."""

    PASS = auto()
    CUT_BEFORE = auto()  # the session breaks, the server never heard of it
    CUT_AFTER = auto()  # the session breaks, the server has done it
    KILL_BEFORE = auto()
    KILL_AFTER = auto()


class Network(Protocol):
    """Where a session says what it has to send, what it has heard, and that it has ended."""

    links: list["Link"]

    def has_sent(self, link: "Link") -> None: ...

    def has_answered(self, link: "Link") -> None: ...

    def forget(self, link: "Link") -> None: ...


class Link(asyncio.Transport):
    """A session: the transport that a client writes to, with a real one behind it."""

    def __init__(
        self, network: Network, loop: SimulatedLoop, process: Process, protocol: Any
    ) -> None:
        super().__init__()
        self.network = network
        self.process = process
        self.protocol = protocol
        self.ear = _Ear(self)
        self.name = f"{loop.time():.3f} {process.name}"
        self.pid: int | None = None
        self.status = "I"
        self.fate = Fate.PASS
        self._loop = loop
        self._context: Context = copy_context()
        self._server: Any = None
        self._outbox = bytearray()
        self._requests = Requests()
        self._has_written = False
        self._is_closed = False
        self._is_deaf = False
        self.request = Request("", b"")
        self.answer = Answer(b"")

    def begin(self, server: Any) -> None:
        self._server = server
        self.network.links.append(self)
        self._loop.call_soon(self.protocol.connection_made, self, context=self._context)

    def write(self, data: Any) -> None:
        if not self._is_closed:
            self._outbox += data
            self.network.has_sent(self)

    def next_request(self) -> Request:
        self.name = f"{self._loop.time():.3f} {self.process.name}"
        return self._requests.read(bytes(self._outbox))

    def send(self, request: Request, fate: Fate) -> None:
        data, self._outbox = bytes(self._outbox), bytearray()
        self.request, self.fate, self.answer = request, fate, Answer(request.ends_with)
        self._server.write(data)
        if not request.ends_with:
            self.network.has_answered(self)

    def hear(self, data: bytes) -> None:
        self.answer.feed(data)
        if self.answer.is_complete:
            self.network.has_answered(self)

    def take_status(self) -> bool:
        """Take note of where the session stands; return whether it has just committed a write."""
        answer = self.answer
        self.pid = answer.pid or self.pid
        self.status = answer.status or self.status
        self._has_written |= answer.wrote
        if self.status != "I":
            return False
        undone = bool(answer.errors) or "ROLLBACK" in answer.tags
        has_committed, self._has_written = self._has_written and not undone, False
        return has_committed

    def deliver(self) -> None:
        data = bytes(self.answer.data)
        self._loop.call_soon(self._hand_over, data, context=self._context)

    def cut(self) -> None:
        """Break the session; the client hears of it as soon as it can hear anything."""
        self._end(ConnectionResetError("the connection was cut"))

    def lost(self) -> None:
        """Take note that the server has ended the session."""
        if self.answer.data and not self.answer.is_complete:
            self.deliver()
        self._end(ConnectionResetError("the server closed the connection"))

    def abort(self) -> None:
        self._is_deaf = True
        self._end(None)

    def close(self) -> None:
        self.abort()

    def is_closing(self) -> bool:
        return self._is_closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._server.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """An answer arrives whole, or not at all."""

    def resume_reading(self) -> None:
        pass

    def _hand_over(self, data: bytes) -> None:
        if self._is_deaf:
            return
        try:
            self.protocol.data_received(data)
        except Exception as error:
            # A driver that stumbles over an answer (one that was cancelled while it prepared a
            # statement may) loses its connection, as it would with a real transport.
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._server.abort()
            self.network.forget(self)
            self._loop.call_soon(self.protocol.connection_lost, error, context=self._context)


class _Ear(asyncio.Protocol):
    """The side of a session that hears the real server."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._link.begin(transport)

    def data_received(self, data: bytes) -> None:
        self._link.hear(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._link.lost()
