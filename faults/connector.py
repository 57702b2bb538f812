"""The connectors of the fake provider; on request they misbehave."""

import asyncio
import ctypes
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from faults.process import end_with_the_suite
from syncline import Connection, Connector, RateLimited, Signal, SyncResult, Transient

PROVIDER_VARIABLE = "FAULTS_PROVIDER"
EPOCH = datetime(2025, 1, 1, tzinfo=UTC)
INTERPRETER_HELD_SECONDS = 5  # longer than a lease
EXIT_CODE = 7


class Records(Connector):
    """Reads a stream of records, page by page."""

    provider = "records"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        status, answer = await ask(connection.external_id, cursor or 0)
        if "mishap" in answer:
            await MISHAPS[answer["mishap"]]()
        return read_page(status, answer)


class BlockingRecords(Connector):
    """The same without `async`: it runs in a thread, which cannot be stopped."""

    provider = "blocking-records"

    def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        status, answer = asyncio.run(ask(connection.external_id, cursor or 0))
        if "mishap" in answer:
            threading.Event().wait()
        return read_page(status, answer)


async def ask(stream: str, after: int) -> tuple[int, Any]:
    """Return the provider's status and answer."""
    url = urlsplit(os.environ[PROVIDER_VARIABLE])
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        query = f"stream={stream}&after={after}&pid={os.getpid()}"
        writer.write(f"GET /records?{query} HTTP/1.0\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    if not body:
        raise Transient("the provider hung up")
    return int(head.split()[1]), json.loads(body)


def read_page(status: int, answer: Any) -> SyncResult:
    if status == 429:
        raise RateLimited("slow down", retry_after_seconds=answer["retry_after"])
    if status != 200:
        raise Transient(f"the provider answered {status}")
    extra = {"padding": "x" * answer["padding"]} if answer["padding"] else {}
    signals = [
        Signal(
            "record",
            EPOCH,
            {"number": n, **extra},
            dedupe_key=str(n) if answer["keys"] else None,
        )
        for n in answer["records"]
    ]
    return SyncResult(signals, next_cursor=answer["next"], has_more=answer["more"])


async def exit_process() -> None:
    os._exit(EXIT_CODE)


async def exit_interpreter() -> None:
    sys.exit(EXIT_CODE)


async def interrupt() -> None:
    raise KeyboardInterrupt


async def raise_base_exception() -> None:
    raise BaseException("not even an Exception")


async def hold_interpreter() -> None:
    # A PyDLL keeps the interpreter's lock: no thread of this process runs meanwhile.
    ctypes.PyDLL(None).sleep(INTERPRETER_HELD_SECONDS)


async def never_return() -> None:
    await asyncio.Event().wait()


MISHAPS: dict[str, Callable[[], Awaitable[None]]] = {
    "exits the process": exit_process,
    "exits the interpreter": exit_interpreter,
    "raises KeyboardInterrupt": interrupt,
    "raises BaseException": raise_base_exception,
    "holds the interpreter": hold_interpreter,
    "never returns": never_return,
}


if PROVIDER_VARIABLE in os.environ:
    end_with_the_suite()
