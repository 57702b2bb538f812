"""uvicorn's HTTP protocol with limits on header size, open clients and slow reads."""

import asyncio
import re
from collections import Counter
from typing import Any, NoReturn

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from syncline.api.problems import Problem
from syncline.api.timeouts import Timeouts
from syncline.policy.rate_limit import network_of
from syncline.settings import ApiSettings
from syncline.telemetry.api import ApiTelemetry, Refusal

LARGEST_HEAD = 16_384
MOST_HEADERS = 100
END_OF_HEAD = re.compile(rb"\n\r?\n")


class Clients:
    """Counts the open sockets of one server, in all and by address."""

    def __init__(self, settings: ApiSettings, telemetry: ApiTelemetry) -> None:
        self._most = settings.max_clients
        self._most_per_address = settings.max_clients_per_address
        self._telemetry = telemetry
        self._open = 0
        self._by_address: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Count a client and return True; return False if there are too many."""
        if self._open >= self._most or self._by_address[address] >= self._most_per_address:
            self.refused(Refusal.CLIENTS)
            return False
        self._open += 1
        self._by_address[address] += 1
        return True

    def leave(self, address: str) -> None:
        self._open -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def refused(self, reason: Refusal) -> None:
        self._telemetry.request_refused(reason)


class BoundedConnection(h11.Connection):
    """Limits the head of a request before it is parsed.

    h11 limits only an incomplete head: one that arrives in a single piece may have any size.
    """

    problem = Problem(400, "unreadable", "this is not a valid HTTP request")

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:
            self._check_head(self.trailing_data[0])
        return super().next_event()

    def _check_head(self, received: bytes) -> None:
        end = END_OF_HEAD.search(received, 0, LARGEST_HEAD)
        lines = received.count(b"\n", 0, end.start() if end else len(received))
        if lines > MOST_HEADERS:
            self._refuse(f"a request may have at most {MOST_HEADERS} headers")
        if end is None and len(received) > LARGEST_HEAD:
            self._refuse(
                f"the target and headers of a request may have at most {LARGEST_HEAD} bytes"
            )

    def _refuse(self, why: str) -> NoReturn:
        self.problem = Problem(400, "headers", why)
        raise h11.RemoteProtocolError(why)


class BoundedProtocol(H11Protocol):
    """One client: counted, and cut off if it sends its headers or reads its answer too slowly."""

    clients: Clients  # both set in a subclass per server, because uvicorn creates the instances
    timeouts: Timeouts
    conn: BoundedConnection

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = BoundedConnection(h11.SERVER, LARGEST_HEAD)
        self._address: str | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        peer = transport.get_extra_info("peername")
        address = network_of(peer[0]) if isinstance(peer, tuple) else "unknown"
        if not self.clients.enter(address):
            transport.abort()  # an answer would cost more than it is worth
            return
        self._address = address
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is None:
            return
        self.clients.leave(self._address)
        self._head_timer = _cancel(self._head_timer)
        self._read_timer = _cancel(self._read_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._address is None:
            return
        super().data_received(data)
        self._expect_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is not h11.IDLE:  # the rest of a body that is not read
            self._expect_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(self.timeouts.read_seconds, self._cut_off)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read_timer = _cancel(self._read_timer)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  (uvicorn's own message)
        """Answer a malformed or too large request with a problem document."""
        response = self.conn.problem.response()
        headers = [*response.raw_headers, (b"connection", b"close")]
        for event in (
            h11.Response(status_code=response.status_code, headers=headers),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size():  # it closes once the client has read the rest
            self.pause_writing()

    def _expect_head(self) -> None:
        """Start the timer for the head of a request; stop it while a request is answered."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering or self.transport.is_closing():
            self._head_timer = _cancel(self._head_timer)
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.timeouts.head_seconds, self._cut_off)

    def _cut_off(self) -> None:
        self.clients.refused(Refusal.SLOW)
        self.transport.abort()


def bounded_protocol(
    settings: ApiSettings, telemetry: ApiTelemetry, timeouts: Timeouts
) -> type[BoundedProtocol]:
    """Return the protocol class of one server, whose clients are counted together."""
    own = {"clients": Clients(settings, telemetry), "timeouts": timeouts}
    return type("BoundedProtocol", (BoundedProtocol,), own)


def _cancel(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None
