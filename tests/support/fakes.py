"""Chance and time that a test decides: loaded dice, and runs that last as long as it wants."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from syncline import Connection, Engine, Settings, SyncResult


class LoadedDice(random.Random):
    """Chance that a test decides: every roll is `value`; what is rolled for can be interrupted."""

    value = 0.5
    on_roll: Callable[[], None] | None = None

    def random(self) -> float:
        if self.on_roll is not None:
            self.on_roll()
        return self.value


class HeldRun:
    """A line of a script that stays in the connector until it is let go, and then ends as told."""

    def __init__(self, ending: SyncResult | BaseException) -> None:
        self.started = asyncio.Event()
        self.let_go = asyncio.Event()
        self.was_stopped = False
        self.worker: asyncio.Task[int] | None = None
        self.engine: Engine | None = None
        self._ending = ending

    async def __call__(self, connection: Connection, cursor: Any) -> SyncResult:
        self.started.set()
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.was_stopped = True
            raise
        if isinstance(self._ending, BaseException):
            raise self._ending
        return self._ending

    async def finish(self) -> None:
        """Let the run end, and wait until its worker has settled it."""
        self.let_go.set()
        if self.worker is not None:
            await self.worker


class HeldStream:
    """A line of a script that is held before its first page, and again after it."""

    def __init__(self, *pages: SyncResult) -> None:
        self.started = asyncio.Event()
        self.let_go = asyncio.Event()
        self.go_on = asyncio.Event()
        self._pages = pages

    async def __call__(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        self.started.set()
        await self.let_go.wait()
        for page in self._pages:
            yield page
            await self.go_on.wait()


class IllEngine(Engine):
    """An engine whose database is ill, for the reason that it is given."""

    def __init__(self, settings: Settings, illness: str) -> None:
        super().__init__(settings)
        self._illness = illness

    async def health(self) -> dict[str, str]:
        return {"database": self._illness}


async def eventually(happened: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until a condition holds; the test's own timeout is the limit."""
    while True:
        answer = happened()
        if await answer if isinstance(answer, Awaitable) else answer:
            return
        await asyncio.sleep(0.005)
