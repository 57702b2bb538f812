"""Connectors for processes that die; each writes its calls and stops into a ledger file."""

import asyncio
import ctypes
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from syncline import Connection, Connector, RateLimited, Signal, SyncResult
from syncline.http import Response

LEDGER_VARIABLE = "TEST_LEDGER"
OVERLAP = 2  # records before the cursor that each page delivers once more
PAGE = 5
EPOCH = datetime(2025, 1, 1, tzinfo=UTC)
INTERPRETER_HELD_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that happened to a connector: `called`, `stopped`."""

    event: str
    external_id: str
    pid: int
    cursor: Any = None


class Ledger:
    """A file to which any number of processes append lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, event: str, connection: Connection, cursor: Any = None) -> None:
        line = json.dumps([event, connection.external_id, os.getpid(), cursor]) + "\n"
        with self.path.open("a") as file:
            file.write(line)

    def entries(self, event: str, external_id: str | None = None) -> list[Entry]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        entries = [Entry(*json.loads(line)) for line in lines]
        return [
            entry
            for entry in entries
            if entry.event == event and external_id in (None, entry.external_id)
        ]


def ledger() -> Ledger:
    return Ledger(Path(os.environ[LEDGER_VARIABLE]))


class Paged(Connector):
    """Delivers the records 0 … total in small pages, each with a few of the page before."""

    provider = "paged"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        start = cursor or 0
        ledger().write("called", connection, cursor)
        await asyncio.sleep(connection.config.get("page_seconds", 0))
        total = connection.config["total"]
        end = min(start + PAGE, total)
        records = range(max(0, start - OVERLAP), end)
        signals = [Signal("record", EPOCH, {"number": n}, dedupe_key=str(n)) for n in records]
        return SyncResult(signals, next_cursor=end, has_more=end < total)


class Streamed(Connector):
    """Yields the records 0 … total in small pages; without keys, so that a double would show."""

    provider = "streamed"

    async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        total = connection.config["total"]
        for start in range(cursor or 0, total, PAGE):
            ledger().write("called", connection, start)
            await asyncio.sleep(connection.config.get("page_seconds", 0))
            end = min(start + PAGE, total)
            signals = [Signal("record", EPOCH, {"number": n}) for n in range(start, end)]
            yield SyncResult(signals, next_cursor=end)


class Fragile(Connector):
    """Comes to grief in its first call, in the way its config names; all later calls succeed."""

    provider = "fragile"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        ledger().write("called", connection, cursor)
        if len(ledger().entries("called", connection.external_id)) == 1:
            await MISHAPS[connection.config["first_call"]](connection)
        return SyncResult([Signal("record", EPOCH, {"pid": os.getpid()})], next_cursor="done")


async def hang(connection: Connection) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ledger().write("stopped", connection)


async def exit_process(connection: Connection) -> None:
    os._exit(3)


async def hold_interpreter(connection: Connection) -> None:
    # A PyDLL keeps the interpreter's lock: no thread of this process runs meanwhile.
    ctypes.PyDLL(None).sleep(INTERPRETER_HELD_SECONDS)
    ledger().write("stopped", connection)


MISHAPS: dict[str, Callable[[Connection], Awaitable[None]]] = {
    "hang": hang,
    "os._exit": exit_process,
    "hold the interpreter": hold_interpreter,
}


def of_the_application(response: Response) -> RateLimited | None:
    """Return the error of a 429, which is a limit of the whole application."""
    if response.status_code != 429:
        return None
    seconds = response.headers["retry-after"]
    return RateLimited("slow down", retry_after_seconds=seconds, scope="app")


class Calling(Connector):
    """Yields the records 0 … total, one page for each call to the provider."""

    provider = "calling"

    async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        url = connection.config["url"]
        async with self.http(connection, base_url=url, errors=of_the_application) as http:
            for start in range(cursor or 0, connection.config["total"]):
                await http.get()
                yield SyncResult(
                    [Signal("record", EPOCH, {"number": start})], next_cursor=start + 1
                )
