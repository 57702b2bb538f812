"""The two clients. The plain one runs the asynchronous one on a thread with a loop of its own."""

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from syncline.client.answers import Page
from syncline.client.calls import Async, Call, Plain
from syncline.client.follow import Follower, PlainFollower
from syncline.client.nouns import (
    Actions,
    Audit,
    Budgets,
    Caps,
    Connections,
    Jobs,
    Keys,
    Overview,
    Pauses,
    Providers,
    Signals,
    Tenants,
    Workers,
)
from syncline.client.transport import Options, Transport

T = TypeVar("T")
END = object()


class AsyncClient:
    """A client for asyncio: `async with AsyncClient(url, key) as client: …`.

    Calls that may pass are tried again, `attempts` times at most; each attempt takes at most
    `timeout` seconds. What must happen once carries an idempotency key, and happens once.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 60.0,
        attempts: int = 5,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        options = Options(_checked(url), key, timeout, attempts, tls)
        self._transport = Transport(options)
        self.audit = Audit[Async](self)
        self.budgets = Budgets[Async](self)
        self.actions = Actions[Async](self)
        self.caps = Caps[Async](self)
        self.connections = Connections[Async](self)
        self.jobs = Jobs[Async](self)
        self.keys = Keys[Async](self)
        self.pauses = Pauses[Async](self)
        self.providers = Providers[Async](self)
        self.signals = Signals[Async](self)
        self.stats = Overview[Async](self)
        self.tenants = Tenants[Async](self)
        self.workers = Workers[Async](self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    def perform(self, call: Call[T]) -> Coroutine[Any, Any, T]:
        return self._transport.send(call)

    async def iterate(self, call: Call[T]) -> AsyncIterator[T]:
        """Iterate over the items of all pages."""
        while True:
            page = await self._transport.send(cast(Call[Page[T]], call))
            for item in page.items:
                yield item
            if page.next_page is None:
                return
            call = replace(call, query={**call.query, "page": page.next_page})

    def follow(self, query: Mapping[str, Any], position: str) -> Follower:
        return Follower(self._transport, query, position)


class Client:
    """A client for code without asyncio: `with Client(url, key) as client: …`.

    Calls that may pass are tried again, `attempts` times at most; each attempt takes at most
    `timeout` seconds. What must happen once carries an idempotency key, and happens once. Threads
    may share a client.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 60.0,
        attempts: int = 5,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._client = AsyncClient(url, key, timeout=timeout, attempts=attempts, tls=tls)
        self._loop = _LoopThread()
        self.audit = Audit[Plain](self)
        self.budgets = Budgets[Plain](self)
        self.actions = Actions[Plain](self)
        self.caps = Caps[Plain](self)
        self.connections = Connections[Plain](self)
        self.jobs = Jobs[Plain](self)
        self.keys = Keys[Plain](self)
        self.pauses = Pauses[Plain](self)
        self.providers = Providers[Plain](self)
        self.signals = Signals[Plain](self)
        self.stats = Overview[Plain](self)
        self.tenants = Tenants[Plain](self)
        self.workers = Workers[Plain](self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._loop.close(self._client.close)

    def perform(self, call: Call[T]) -> T:
        return self._loop.run(self._client.perform(call))

    def iterate(self, call: Call[T]) -> Iterator[T]:
        """Iterate over the items of all pages."""
        return self._iterator(self._client.iterate(call))

    def follow(self, query: Mapping[str, Any], position: str) -> PlainFollower:
        return PlainFollower(self._client.follow(query, position), self._iterator)

    def _iterator(self, items: AsyncIterator[T]) -> Iterator[T]:
        async def step() -> Any:
            return await anext(items, END)

        while (item := self._loop.run(step())) is not END:
            yield item


class _LoopThread:
    """An event loop in a thread, which starts with the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the result of a coroutine; an interrupt cancels it."""
        try:
            loop = self._started()
        except RuntimeError:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        finally:
            future.cancel()  # does nothing once it is done

    def close(self, last: Any) -> None:
        with self._lock:
            self._is_closed, loop, thread = True, self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return

        async def finish() -> None:
            await last()
            await loop.shutdown_asyncgens()

        asyncio.run_coroutine_threadsafe(finish(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the client is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                name = "syncline client"
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name=name, daemon=True
                )
                self._thread.start()
            return self._loop


def _checked(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"url is {url!r}; it must begin with http:// or https://")
    return url.rstrip("/")
