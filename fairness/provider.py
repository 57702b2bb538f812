"""A provider in a process of its own, which counts its calls and can limit, fail, hang and refuse.

python -m fairness.provider APP …

It prints the port of each application, and then answers orders: one line of JSON in, one out.
"""

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from faults.process import end_with_the_suite

from syncline import eventloop

END = b"\r\n\r\n"
REASONS = {200: "OK", 429: "Too Many Requests", 503: "Service Unavailable"}


def main() -> None:
    end_with_the_suite()
    eventloop.run(serve(sys.argv[1:]))


async def serve(names: list[str]) -> None:
    applications = {name: Application() for name in names}
    for application in applications.values():
        await application.open()
    print(json.dumps({name: one.port for name, one in applications.items()}), flush=True)
    loop = asyncio.get_running_loop()
    while order := await loop.run_in_executor(None, sys.stdin.readline):
        name, what, arguments = json.loads(order)
        answer = await getattr(applications[name], what)(**arguments)
        print(json.dumps(answer), flush=True)


@dataclass(slots=True)
class Limit:
    """At most so many calls in any span of time, for the whole application."""

    calls: int
    per_seconds: float
    _taken: deque[float] = field(default_factory=deque)

    def wait(self, now: float) -> float:
        """Count a call; return how long to wait if it was one too many, otherwise 0."""
        while self._taken and self._taken[0] <= now - self.per_seconds:
            self._taken.popleft()
        if len(self._taken) >= self.calls:
            return self._taken[0] + self.per_seconds - now
        self._taken.append(now)
        return 0.0


@dataclass(slots=True)
class Application:
    """One application at the provider, with a port of its own."""

    port: int = 0
    mode: str = "answers"  # or fails, hangs, refuses
    pages: int = 1
    latency_seconds: float = 0.02
    limit: Limit | None = None
    limited_next: list[tuple[float, str]] = field(default_factory=list)  # wait and scope
    calls: list[tuple[float, str, int, int]] = field(default_factory=list)
    conversations: set["Conversation"] = field(default_factory=set)
    server: asyncio.Server | None = None

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(
            lambda: Conversation(self), "127.0.0.1", self.port, backlog=1024
        )
        self.port = self.server.sockets[0].getsockname()[1]

    async def behave(self, mode: str) -> float:
        """Change how calls are answered from now on; return when."""
        if mode == "refuses" and self.server is not None:
            self.server.close()
            self.server = None
        elif mode != "refuses" and self.server is None:
            await self.open()
        if self.mode == "hangs" or mode == "refuses":
            for conversation in list(self.conversations):
                conversation.abort()
        self.mode = mode
        return time.time()

    async def limit_to(self, calls: int, per_seconds: float) -> None:
        self.limit = Limit(calls, per_seconds)

    async def limit_next(self, times: int, seconds: float, scope: str) -> float:
        """Limit the next calls; return when that was said."""
        self.limited_next += [(seconds, scope)] * times
        return time.time()

    async def have(self, pages: int, latency_seconds: float) -> None:
        self.pages, self.latency_seconds = pages, latency_seconds

    async def tell(self, first: int) -> list[tuple[float, str, int, int]]:
        """Return the calls from this one on: time, connection, page and status."""
        return self.calls[first:]

    def answer(self, target: str, reply: Callable[[bytes], None]) -> None:
        """Count a call, and answer it after a while."""
        now, url = time.time(), urlsplit(target)
        page = int(dict(parse_qsl(url.query)).get("after", 0))
        status, body, headers = self._decide(page, now)
        self.calls.append((now, url.path.removeprefix("/"), page, status))
        if self.mode != "hangs":
            asyncio.get_running_loop().call_later(
                self.latency_seconds, reply, as_bytes(status, body, headers)
            )

    def _decide(self, page: int, now: float) -> tuple[int, Any, dict[str, str]]:
        if self.mode != "answers":
            return 503, {}, {}
        wait, scope = self.limited_next.pop() if self.limited_next else (0.0, "")
        if not wait and self.limit is not None:
            wait, scope = self.limit.wait(now), "app"
        if wait:
            return 429, {}, {"Retry-After": f"{wait:.3f}", "X-Limit-Scope": scope}
        return 200, {"more": page + 1 < self.pages}, {}


class Conversation(asyncio.Protocol):
    """One socket of a client, which may ask several times."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._application.conversations.add(self)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._application.conversations.discard(self)

    def data_received(self, data: bytes) -> None:
        *requests, self._rest = (self._rest + data).split(END)
        for request in requests:
            self._application.answer(request.split(b" ", 2)[1].decode(), self._reply)

    def abort(self) -> None:
        self._transport.abort()

    def _reply(self, answer: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(answer)


def as_bytes(status: int, body: Any, headers: dict[str, str]) -> bytes:
    content = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} {REASONS[status]}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(content)}")
    return "\r\n".join(lines).encode() + END + content


if __name__ == "__main__":
    main()
