"""A TCP port in front of a server that can lose answers: the request arrived, and took effect."""

import asyncio
from contextlib import suppress
from types import TracebackType


class CutLink:
    """Leads to a port on this machine; `lose_answers` is how many answers never arrive."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.lose_answers = 0
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> "CutLink":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(OSError):
            above_reader, above = await asyncio.open_connection("127.0.0.1", self._to)
            up = asyncio.create_task(self._up(reader, above))
            while chunk := await above_reader.read(65_536):
                if self.lose_answers:
                    self.lose_answers -= 1
                    break
                writer.write(chunk)
                await writer.drain()
            up.cancel()
            above.transport.abort()
        writer.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, above: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(65_536):
                above.write(chunk)
                await above.drain()
            above.write_eof()
