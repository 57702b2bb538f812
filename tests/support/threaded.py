"""A scripted HTTP server in a thread of its own, for tests that have no event loop to share."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from support.httpserver import Answer, HttpServer, http_server


@contextmanager
def threaded_server(answer: Answer) -> Iterator[HttpServer]:
    """Lend a server that goes on answering while the test blocks."""
    started, lent = threading.Event(), []

    async def serve() -> None:
        stopped = asyncio.Event()
        async with http_server(answer) as server:
            lent.append((server, asyncio.get_running_loop(), stopped))
            started.set()
            await stopped.wait()
            await asyncio.sleep(0.01)  # for connections that a client has opened and left
        for _ in range(5):  # so that what was closed is gone before its loop
            await asyncio.sleep(0)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait(10)
    server, loop, stopped = lent[0]
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(10)
