"""A TCP proxy to Postgres, and everything that can go wrong on the way."""

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Literal

ABORT_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of zero: the peer sees a reset, not a close
COMMITS = (b"COMMIT;\0", b"COMMIT\0")
PACKET_SECONDS = 0.01  # how long one packet occupies a limited link
Moment = Literal["before", "after"]


@dataclass(slots=True)
class Trap:
    """What to do at the next COMMIT of a transaction that ran a certain statement."""

    moment: Moment
    about: str
    sprung: "asyncio.Future[None]"
    action: Callable[[], None] | None = None
    holds: bool = False  # the COMMIT never arrives, but the socket stays open


class Direction:
    """One direction of a link; all its connections share the bandwidth."""

    def __init__(self) -> None:
        self.bytes_per_second: float | None = None
        self._is_free_at = 0.0

    async def carry(self, message: bytes, writer: asyncio.StreamWriter) -> None:
        """Send a message, in packets that take turns with those of others."""
        rate = self.bytes_per_second
        size = len(message) if rate is None else max(1, int(rate * PACKET_SECONDS))
        for start in range(0, len(message), size):
            packet = message[start : start + size]
            if rate is not None:
                await self._take_turn(len(packet) / rate)
            writer.write(packet)
            await writer.drain()

    async def _take_turn(self, seconds: float) -> None:
        now = time.monotonic()
        self._is_free_at = max(now, self._is_free_at) + seconds
        await asyncio.sleep(self._is_free_at - now)


class Link:
    """One process's link to Postgres."""

    def __init__(self, upstream: str) -> None:
        self.delay_seconds = 0.0
        self.up, self.down = Direction(), Direction()
        self.trap: Trap | None = None
        self._falls_silent: asyncio.Future[Wire] | None = None
        self._upstream = upstream
        self._passable = asyncio.Event()
        self._passable.set()
        self._wires: set[Wire] = set()
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"postgresql://syncline@127.0.0.1:{self._port}/{{database}}?sslmode=disable"

    async def open(self) -> None:
        """Listen, on the same port as before if there was one."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
            self._port = self._server.sockets[0].getsockname()[1]
        self._passable.set()
        self.delay_seconds = 0.0
        self.limit(None)
        self.trap = None

    def limit(self, bytes_per_second: float | None) -> None:
        """Carry no more than this in either direction; None is no limit."""
        self.up.bytes_per_second = self.down.bytes_per_second = bytes_per_second

    def refuse(self) -> None:
        """Reset open connections and refuse new ones: Postgres is away, loudly."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.reset()

    def reset(self) -> int:
        """Cut every connection; return how many there were."""
        wires = list(self._wires)
        for wire in wires:
            wire.cut()
        return len(wires)

    def silence(self) -> None:
        """Let nothing pass, without an error: Postgres is away, silently."""
        self._passable.clear()

    async def half_open(self) -> "Wire":
        """Silence the next connection that is used, for good, and return it."""
        self._falls_silent = asyncio.get_running_loop().create_future()
        return await self._falls_silent

    def used(self, wire: "Wire") -> None:
        if self._falls_silent is not None and not self._falls_silent.done():
            wire.is_dead = True
            self._falls_silent.set_result(wire)

    def has(self, wire: "Wire") -> bool:
        return wire in self._wires

    def set_trap(
        self,
        moment: Moment,
        about: str,
        action: Callable[[], None] | None = None,
        *,
        holds: bool = False,
    ) -> "asyncio.Future[None]":
        """Make the next such COMMIT go wrong; return a future that is done when it has."""
        sprung = asyncio.get_running_loop().create_future()
        self.trap = Trap(moment, about, sprung, action, holds)
        return sprung

    def close(self) -> None:
        self.refuse()

    async def pass_on(self) -> None:
        """Wait until the link lets messages pass."""
        await self._passable.wait()
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await asyncio.open_unix_connection(self._upstream)
        except OSError:
            writer.transport.abort()
            return
        wire = Wire(self, (reader, writer), upstream)
        self._wires.add(wire)
        with contextlib.suppress(asyncio.CancelledError):  # the end of the run
            await wire.run()
        self._wires.discard(wire)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Wire:
    """One connection; it parses enough of the protocol to know what a transaction does."""

    def __init__(self, link: Link, client: Streams, server: Streams) -> None:
        self.is_dead = False
        self._link = link
        self._client, self._server = client, server
        self._texts: dict[bytes, str] = {}
        self._transaction: list[str] = []
        self._is_open = False  # between BEGIN and COMMIT
        self._trap_after: Trap | None = None

    async def run(self) -> None:
        pumps = [asyncio.ensure_future(self._pump_up()), asyncio.ensure_future(self._pump_down())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.cut()

    def cut(self) -> None:
        for _, writer in (self._client, self._server):
            sock = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT_ON_CLOSE)
            writer.transport.abort()

    async def _pump_up(self) -> None:
        async for message in messages(self._client[0], starts_untyped=True):
            self._link.used(self)
            self._note(message)
            if self._commits(message) and not await self._may_commit():
                return
            await self._forward(message, self._server[1], self._link.up)

    async def _pump_down(self) -> None:
        async for message in messages(self._server[0], starts_untyped=False):
            trap = self._trap_after
            if trap is not None and message[:1] == b"Z":
                spring(trap)
                return
            await self._forward(message, self._client[1], self._link.down)

    async def _forward(
        self, message: bytes, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        await self._link.pass_on()
        if not self.is_dead:
            await direction.carry(message, writer)

    async def _may_commit(self) -> bool:
        """Return whether the COMMIT may pass; a trap may be set for it."""
        trap = self._link.trap
        if trap is None or not any(trap.about in statement for statement in self._transaction):
            return True
        self._link.trap = None
        if trap.moment == "after":
            self._trap_after = trap
            return True
        spring(trap)
        if trap.holds:
            await asyncio.Event().wait()
        return False

    def _commits(self, message: bytes) -> bool:
        """Return whether this ends a transaction: a COMMIT, or a single statement."""
        if message[:1] == b"Q" and message[5:] in COMMITS:
            return True
        return message[:1] == b"S" and not self._is_open and bool(self._transaction)

    def _note(self, message: bytes) -> None:
        """Remember the statements of the transaction in progress."""
        kind, body = message[:1], message[5:]
        if kind == b"P":
            name, text = body.split(b"\0", 2)[:2]
            self._texts[name] = text.decode(errors="replace")
        elif kind == b"B":
            statement = body.split(b"\0", 2)[1]
            if not self._is_open:
                self._transaction = []
            self._transaction.append(self._texts.get(statement, ""))
        elif kind == b"Q":
            self._is_open = body.startswith(b"BEGIN")
            if self._is_open:
                self._transaction = []


def spring(trap: Trap) -> None:
    if trap.action is not None:
        trap.action()
    if not trap.sprung.done():
        trap.sprung.set_result(None)


async def messages(reader: asyncio.StreamReader, *, starts_untyped: bool) -> AsyncIterator[bytes]:
    """Yield the messages of one direction, until it ends; the client's first has no type."""
    typed = not starts_untyped
    with contextlib.suppress(asyncio.IncompleteReadError, OSError):
        while True:
            kind = await reader.readexactly(1) if typed else b""
            size = await reader.readexactly(4)
            body = await reader.readexactly(int.from_bytes(size, "big") - 4)
            typed = True
            yield kind + size + body
