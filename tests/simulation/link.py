"""One session between a simulated process and the real server, as the network lets it pass."""

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from enum import Enum, auto
from typing import Any, Protocol

from simulation.loop import Process, SimulatedLoop
from simulation.timeouts import IDLE, LOCK
from simulation.wire import Answer, Request, Requests, error_message, with_setting

LOCK_TIMED_OUT, CANCELLED = "55P03", "57014"


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

    def has_sent(self, link: "Link", size: int) -> None: ...

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
        self.sent_as = 0  # the number of its last call
        self.loop = loop
        self._timer: asyncio.TimerHandle | None = None  # of the server's timeout
        self._gave_up_lock = False
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
        self.loop.call_soon(self.protocol.connection_made, self, context=self._context)

    def write(self, data: Any) -> None:
        if not self._is_closed:
            self._outbox += data
            self.network.has_sent(self, len(data))

    def next_request(self) -> Request:
        self.name = f"{self.loop.time():.3f} {self.process.name}"
        return self._requests.read(bytes(self._outbox))

    def send(self, request: Request, fate: Fate, number: int, *, read_only: bool = False) -> None:
        """Let the server hear a call; a session that begins may find it read-only."""
        self._outbox = bytearray()
        self.request, self.fate, self.answer = request, fate, Answer(request.ends_with)
        self.sent_as, self._gave_up_lock = number, False
        self.stop_timer()
        data = request.data
        if request.label == "connect" and read_only:
            data = with_setting(data, "default_transaction_read_only", "on")
        self._server.write(data)

    def hear(self, data: bytes) -> None:
        self.answer.feed(data)
        if self.answer.is_complete:
            self.network.has_answered(self)

    def take_status(self) -> bool:
        """Take note of where the session stands; return whether it has just committed a write."""
        answer = self.answer
        if self._gave_up_lock:
            answer.replace_error(CANCELLED, LOCK_TIMED_OUT)
        self.pid = answer.pid or self.pid
        self.status = answer.status or self.status
        self._has_written |= answer.wrote or self.request.writes
        if self.status != "I":
            return False
        undone = bool(answer.errors) or "ROLLBACK" in answer.tags
        has_committed, self._has_written = self._has_written and not undone, False
        return has_committed

    def deliver(self) -> None:
        data = bytes(self.answer.data)
        self.loop.call_soon(self._hand_over, data, context=self._context)

    def refuse(self, code: str, text: str) -> None:
        """End the session as a server does that does not let it in."""
        data = error_message(code, text)
        self.loop.call_soon(self._hand_over, data, context=self._context)
        self._end(ConnectionResetError("the server closed the connection"))

    def wait_for_lock(self, on_timeout: "Callable[[Link], None]") -> None:
        """Count the time that the server gives a call to have its locks."""
        if self._timer is None:  # else it has looked as if it had them, and waits again
            self._start_timer(self._requests.timeouts.seconds(LOCK), on_timeout)

    def stand_idle(self, on_timeout: "Callable[[Link], None]") -> None:
        """Count the time that the server lets a session stand idle inside a transaction."""
        self._start_timer(self._requests.timeouts.seconds(IDLE), on_timeout)

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def give_up_lock(self) -> None:
        """Take note that the call was cancelled because it waited too long for a lock."""
        self._gave_up_lock = True

    def _start_timer(self, seconds: float | None, on_timeout: "Callable[[Link], None]") -> None:
        self.stop_timer()
        if seconds is not None:
            # The server's: it goes on while the client is frozen.
            self._timer = self.loop.call_later(seconds, on_timeout, self, context=Context())

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
            self.stop_timer()
            self._server.abort()
            self.network.forget(self)
            self.loop.call_soon(self.protocol.connection_lost, error, context=self._context)


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
