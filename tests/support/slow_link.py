"""A TCP port that leads to Postgres over a link of few bytes a second."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

CHUNK = 16_384


class SlowLink:
    """All connections share the link; the two directions do not."""

    def __init__(self, socket_path: str, megabits: float) -> None:
        self._socket_path = socket_path
        self._bytes_per_second = megabits * 1_000_000 / 8
        self._pumps: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(self._socket_path)
        up = asyncio.create_task(self._pump(reader, server_writer, self._up))
        down = asyncio.create_task(self._pump(server_reader, writer, self._down))
        pumps = {up, down}
        self._pumps |= pumps
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        self._pumps -= pumps
        for end in (writer, server_writer):
            end.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, turn: asyncio.Lock
    ) -> None:
        with suppress(OSError):
            while chunk := await reader.read(CHUNK):
                async with turn:
                    await asyncio.sleep(len(chunk) / self._bytes_per_second)
                writer.write(chunk)
                await writer.drain()

    async def __aenter__(self) -> "SlowLink":
        self._up, self._down = asyncio.Lock(), asyncio.Lock()
        self._server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port


@asynccontextmanager
async def slow_link(url: str, *, megabits: float) -> AsyncIterator[str]:
    """Yield a URL of the same database over a link with this many Mbit/s."""
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    socket_path = f"{query['host']}/.s.PGSQL.{query['port']}"
    async with SlowLink(socket_path, megabits) as link:
        user = parts.username or query["user"]
        yield f"postgresql://{user}@127.0.0.1:{link.port}{parts.path}?sslmode=disable"
