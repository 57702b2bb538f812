"""The only source of time and chance: the database's clock, or a test's.

A pass of the engine asks `now` once, inside its transaction, and hands it down. Pauses and
deadlines inside a process count real monotonic time, also under an injected clock.
"""

import asyncio
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from typing import Protocol
from uuid import UUID


class Queryable(Protocol):
    async def database_time(self) -> datetime: ...


class Clock(Protocol):
    async def now(self, tx: Queryable) -> datetime: ...

    def instant(self) -> datetime | None:
        """The time for a single statement; None means the database's own."""


class DatabaseClock:
    """The server's own time, so that hosts whose clocks disagree behave alike."""

    async def now(self, tx: Queryable) -> datetime:
        return await tx.database_time()

    def instant(self) -> datetime | None:
        return None


class InjectedClock:
    """A callable that returns an aware datetime, for tests and simulations."""

    def __init__(self, read: Callable[[], datetime]) -> None:
        self._read = read

    async def now(self, tx: Queryable) -> datetime:  # noqa: ARG002  (the other clock needs it)
        return self.instant()

    def instant(self) -> datetime:
        now = self._read()
        if now.tzinfo is None:
            raise ValueError("the injected clock returned a time without a zone")
        return now.astimezone(UTC)


def clock_from(read: Callable[[], datetime] | None) -> Clock:
    return DatabaseClock() if read is None else InjectedClock(read)


Rng = random.Random


class Dice:
    """Chance: a roll is a number in [0, 1)."""

    def __init__(self, rng: Rng | None = None) -> None:
        self._rng = rng or Rng()

    def roll(self) -> float:
        return self._rng.random()


def host_time() -> datetime:
    """This host's time, for a provider's answer that does not say its own time."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds that never go back, for deadlines inside this process."""
    return time.monotonic()


def processor_time() -> float:
    """Seconds that this process has computed, on all of its threads."""
    return time.process_time()


async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


LOW_BITS = 1 << 62  # what fits below the variant of a UUID


class IdMaker:
    """Makes time-ordered ids (UUID version 7) that strictly increase within a process.

    The 74 bits below the millisecond start at random and then count up, so ids made in the same
    millisecond, or after the host's clock went back, still increase.
    """

    def __init__(self) -> None:
        self._milliseconds = 0
        self._tail = 0

    def __call__(self) -> UUID:
        milliseconds = time.time_ns() // 1_000_000
        if milliseconds > self._milliseconds:
            self._milliseconds = milliseconds
            self._tail = random.getrandbits(73)  # the top bit stays free for counting up
        else:
            self._tail += 1 + random.getrandbits(32)
            if self._tail >> 74:
                self._milliseconds += 1
                self._tail = random.getrandbits(73)
        return self._kind(self._number().to_bytes(16))

    def many(self, count: int) -> list[UUID]:
        """Return ids in a row, at a third of the cost of one at a time."""
        if not count:
            return []
        first = self()
        start, make = self._number(), self._kind
        if self._tail % LOW_BITS + count >= LOW_BITS:  # once in a long while
            return [first, *(self() for _ in range(count - 1))]
        self._tail += count - 1
        return [first, *(make((start + n).to_bytes(16)) for n in range(1, count))]

    def _number(self) -> int:
        high, low = divmod(self._tail, LOW_BITS)
        return self._milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low

    @cached_property
    def _kind(self) -> Callable[[bytes], UUID]:
        """The driver's own UUID class, which costs half as much to make and send as a plain one."""
        from asyncpg.pgproto import pgproto

        return pgproto.UUID


new_id = IdMaker()
