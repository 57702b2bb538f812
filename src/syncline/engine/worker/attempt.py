"""One attempt: call the connector with the effective cursor and check what it returns."""

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from syncline.engine.secrets.token_refresh import TokenRefresher
from syncline.http.credentials import Credentials
from syncline.model import Connection, SyncResult
from syncline.policy.cursor import effective_cursor
from syncline.sdk.connector import Connector
from syncline.sdk.json_text import decode_json
from syncline.sdk.page import (
    NOTHING_NEW,
    Page,
    PageLimits,
    PageReader,
    is_nothing_new,
    read_page,
)
from syncline.store.queue.claims import Claim

T = TypeVar("T")

# What is more than these is checked in a thread, so that the loop goes on.
MANY_SIGNALS, MANY_BYTES = 1000, 500_000


@dataclass(frozen=True, slots=True)
class PageStream:
    """What a connector returns that has many pages: they are had one by one, not yet checked."""

    results: AsyncIterator[Any]
    cursor: Any


@dataclass(frozen=True, slots=True)
class Caller:
    """A connector's `sync`, and how it is to be called."""

    sync: Callable[[Connection, Any], Any]
    is_coroutine: bool
    is_stream: bool

    @classmethod
    def of(cls, connector: Connector) -> "Caller":
        sync = connector.sync
        return cls(sync, inspect.iscoroutinefunction(sync), inspect.isasyncgenfunction(sync))


class Attempted(Protocol):
    """What an attempt needs of its run."""

    claim: Claim

    @property
    def threads(self) -> "Threads": ...


async def attempt(
    caller: Caller, run: Attempted, checker: "PageChecker", token_refresher: TokenRefresher
) -> Page | PageStream:
    """Return the connector's page, checked, or its stream; raise whatever kept it back."""
    connection = read_claimed_connection(run.claim, token_refresher.open_for_run(run.claim))
    stored = connection.metadata.get("sync")
    cursor = effective_cursor(
        run.claim.job_type,
        decode_json(run.claim.cursor, where="the job's cursor"),
        stored.get("cursor") if isinstance(stored, dict) else None,
    )
    if caller.is_coroutine:
        result = await caller.sync(connection, cursor)
    elif caller.is_stream:
        return PageStream(caller.sync(connection, cursor), cursor)
    else:
        result = await run.threads.run(lambda: caller.sync(connection, cursor))
        if inspect.isawaitable(result):
            result = await result
    if is_nothing_new(result):
        return NOTHING_NEW
    if isinstance(result, AsyncIterator):
        return PageStream(result, cursor)
    return await checker.check(result, cursor, run.threads)


class PageChecker:
    """Checks what connectors return; what is large of it in a thread, one page at a time.

    Threads that are busy take the interpreter from the event loop in turns of 5 ms each: forty
    pages of 25 MB, all checked at once, held it for 9 s.
    """

    def __init__(self, limits: PageLimits) -> None:
        self._limits = limits
        self._turn = asyncio.Semaphore()

    async def check(self, result: Any, cursor: Any, threads: "Threads") -> Page:
        """Return the page, or raise what is wrong with it."""
        limits = self._limits
        if not _is_list(result):
            # To have its signals runs the connector's own code, which may wait for anything.
            return await threads.run(lambda: read_page(result, cursor=cursor, limits=limits))
        if len(result.signals) > MANY_SIGNALS:
            async with self._turn:
                return await threads.run(lambda: read_page(result, cursor=cursor, limits=limits))
        reader = PageReader(result, cursor=cursor, limits=limits)
        if not reader.read_some(MANY_BYTES):
            async with self._turn:
                await threads.run(lambda: reader.read_some(limits.page_bytes))
        return reader.page


def read_claimed_connection(claim: Claim, credentials: Credentials | None = None) -> Connection:
    """Return the connection as its connector sees it; what is no object counts as an empty one."""
    config = decode_json(claim.config, where="the connection's config")
    metadata = decode_json(claim.metadata, where="the connection's metadata")
    # Filled at once: what is frozen sets its fields one by one, 1.7 µs a run instead of 0.5.
    connection = object.__new__(Connection)
    vars(connection).update(
        id=claim.connection_id,
        tenant_id=claim.tenant_id,
        provider_slug=claim.provider_slug,
        external_id=claim.external_id,
        status=claim.connection_status,
        config=config if isinstance(config, dict) else {},
        metadata=metadata if isinstance(metadata, dict) else {},
        credentials=credentials,
    )
    return connection


def _is_list(result: Any) -> bool:
    """Return whether the page's signals are had without running foreign code."""
    return isinstance(result, SyncResult) and isinstance(result.signals, list | tuple)


class Threads:
    """Threads of one attempt; they cannot be stopped, and never hold up an exit."""

    def __init__(self, on_idle: Callable[[], None]) -> None:
        self.alive = 0
        self._on_idle = on_idle

    async def run(self, function: Callable[[], T]) -> T:
        """Return what the function returns, called in a thread of its own."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()

        def deliver(result: T | None, error: BaseException | None) -> None:
            self.alive -= 1
            if not done.done():
                done.set_result((result, error))
            if not self.alive:
                self._on_idle()

        def work() -> None:
            result: T | None = None
            failure: BaseException | None = None
            try:
                result = function()
            except BaseException as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop has closed; nobody waits any more
                loop.call_soon_threadsafe(deliver, result, failure)

        context = contextvars.copy_context()
        threading.Thread(
            target=context.run, args=(work,), daemon=True, name="syncline-connector"
        ).start()
        self.alive += 1
        result, failure = await done
        if failure is not None:
            raise failure
        return result  # type: ignore[return-value]  # without a failure there is a result
