"""A fake provider over HTTP, whose ledger says which records exist: the truth to compare with."""

import asyncio
import contextlib
import json
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlsplit

PAGE = 5
OVERLAP = 3  # records before the cursor that a page repeats
LONGEST_WAIT_SECONDS = 1.0  # for a record that does not exist yet
LATENCY_SECONDS = (0.05, 0.25)
Answer = tuple[int, Any]


@dataclass(slots=True)
class Stream:
    """The records of one connection, numbered from 0; a live stream keeps getting more."""

    records: int = 0
    per_second: float = 0
    redelivers: bool = True
    since: float = 0
    page: int = PAGE
    padding: int = 0  # bytes of text in each record, in addition to its number

    def head(self) -> int:
        return self.records + int((time.monotonic() - self.since) * self.per_second)

    def freeze(self) -> None:
        self.records, self.per_second = self.head(), 0

    @property
    def is_live(self) -> bool:
        return self.per_second > 0


@dataclass(frozen=True, slots=True)
class Call:
    """A call in progress."""

    pid: int
    began: float


@dataclass(frozen=True, slots=True)
class Overlap:
    """A call that came during another call of the same connection."""

    stream: str
    earlier: Call
    later: Call


@dataclass(slots=True)
class Mishap:
    """What the connector must do at its next call, and which process got the order."""

    what: str
    taken_by: "asyncio.Future[int]"


class Provider:
    """Serves pages of records, waits for new ones, and misbehaves when told to."""

    def __init__(self, rng: Random) -> None:
        self.streams: dict[str, Stream] = {}
        self.trouble: str | None = None
        self.calls = 0
        self.overlaps: list[Overlap] = []
        self.repeated: Counter[str] = Counter()  # calls for a page that was already delivered
        self._rng = rng
        self._mishaps: dict[str, Mishap] = {}
        self._in_flight: defaultdict[str, list[Call]] = defaultdict(list)
        self._callers: defaultdict[int, int] = defaultdict(int)
        self._delivered: defaultdict[str, int] = defaultdict(int)
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def add(self, name: str, stream: Stream) -> None:
        """Add a stream; every second one repeats no records and has no dedupe keys."""
        stream.redelivers = len(self.streams) % 2 == 0
        stream.since = time.monotonic()
        self.streams[name] = stream

    def live(self) -> list[str]:
        return [name for name, stream in self.streams.items() if stream.is_live]

    def freeze(self) -> None:
        for stream in self.streams.values():
            stream.freeze()

    def calls_by(self, pid: int) -> int:
        """Return how often a process has called."""
        return self._callers[pid]

    def in_flight(self, pid: int | None = None) -> list[str]:
        """Return the streams with a call in progress, of one process or of any."""
        return [
            name
            for name, calls in self._in_flight.items()
            if any(pid in (None, call.pid) for call in calls)
        ]

    def order(self, name: str, what: str) -> "asyncio.Future[int]":
        """Make a stream's next call go wrong; return a future for the process that makes it."""
        taken_by = asyncio.get_running_loop().create_future()
        self._mishaps[name] = Mishap(what, taken_by)
        return taken_by

    def forgive(self, name: str) -> None:
        """Withdraw an order that no process has carried out."""
        self._mishaps.pop(name, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            request = (await reader.readuntil(b"\r\n\r\n")).decode()
            asked = dict(parse_qsl(urlsplit(request.split()[1]).query))
            name, pid, after = asked["stream"], int(asked["pid"]), int(asked["after"])
            if after < self._delivered[name]:
                self.repeated[name] += 1
            self.calls += 1
            self._callers[pid] += 1
            call = Call(pid, time.monotonic())
            self.overlaps += [Overlap(name, earlier, call) for earlier in self._in_flight[name]]
            self._in_flight[name].append(call)
            try:
                status, body = await self._until_hung_up(reader, name, after, pid)
            finally:
                self._in_flight[name].remove(call)
            text = json.dumps(body)
            head = f"HTTP/1.0 {status} -\r\nContent-Length: {len(text)}\r\n\r\n"
            writer.write((head + text).encode())
            await writer.drain()
        writer.close()

    async def _until_hung_up(
        self, reader: asyncio.StreamReader, name: str, after: int, pid: int
    ) -> Answer:
        """Return the answer, unless the caller disconnects first."""
        answer = asyncio.ensure_future(self._answer(name, after, pid))
        hung_up = asyncio.ensure_future(reader.read())
        await asyncio.wait((answer, hung_up), return_when=asyncio.FIRST_COMPLETED)
        hung_up.cancel()
        if answer.done():
            return answer.result()
        answer.cancel()
        raise ConnectionResetError

    async def _answer(self, name: str, after: int, pid: int) -> Answer:
        if trouble := self.trouble:
            while self.trouble == "hangs":  # noqa: ASYNC110  (it ends when a kind says so)
                await asyncio.sleep(0.05)
            return TROUBLES[trouble]
        if mishap := self._mishaps.pop(name, None):
            if not mishap.taken_by.done():
                mishap.taken_by.set_result(pid)
            return 200, {"mishap": mishap.what}
        stream = self.streams[name]
        await asyncio.sleep(self._rng.uniform(*LATENCY_SECONDS))
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        # Records appear with time: there is no event to wait for.
        while stream.head() <= after and stream.is_live and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        end = max(after, min(after + stream.page, stream.head()))
        first = max(0, after - OVERLAP) if stream.redelivers else after
        self._delivered[name] = end
        return 200, {
            "records": list(range(first, end)),
            "padding": stream.padding,
            "next": end,
            "more": end > after and (stream.is_live or end < stream.head()),
            "keys": stream.redelivers,
        }


TROUBLES: dict[str, Answer] = {
    "limits": (429, {"retry_after": 1}),
    "fails": (503, {}),
    "hangs": (503, {}),
    "talks nonsense": (
        200,
        {"records": "many", "padding": 0, "next": [], "more": "perhaps", "keys": False},
    ),
}
