"""A provider with a ledger, and connectors that do to it all that connectors do.

The ledger is the truth: what it says was emitted must be stored in the end, once each.
"""

import asyncio
import math
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from simulation.applications import Application
from simulation.loop import PROCESS, Process
from syncline import (
    Connection,
    Connector,
    Permanent,
    RateLimited,
    Signal,
    SyncResult,
    Transient,
    Unauthorized,
)

LARGEST_PAGE = 8
LARGEST_OVERLAP = 4
HANGS_SECONDS = 100_000
RECORD_BYTES = (0, 0, 0, 2_000, 8_000, 30_000)  # of text in each record of an account
HUGE_RECORD_BYTES, ONE_IN_HUGE = 950_000, 300  # a page of these is too large to share a settle


@dataclass
class Account:
    """What one connection can sync: records, numbered from 1."""

    has_keys: bool  # without keys, only the cursor keeps a record from being stored twice
    rng: random.Random  # its own, because connectors answer in threads
    record_bytes: int = 0
    huge: set[int] = field(default_factory=set)  # numbers of records
    emitted_at: list[datetime] = field(default_factory=list)
    calls: list["Call"] = field(default_factory=list)

    def page(self, after: int, size: int, overlap: int) -> list[Signal]:
        first = max(after - overlap, 0) if self.has_keys else after
        return [self._signal(number) for number in range(first + 1, self.last(after, size) + 1)]

    def last(self, after: int, size: int) -> int:
        return min(after + size, len(self.emitted_at))

    def emit(self, now: datetime, count: int) -> None:
        first = len(self.emitted_at) + 1
        self.emitted_at += [now] * count
        if self.rng.randrange(ONE_IN_HUGE) == 0:
            self.huge.update(range(first, first + count))

    def bytes_of(self, newest: int) -> int:
        """Return the size of so many of the newest records, or of as many as there are."""
        last = len(self.emitted_at)
        return sum(map(self._size, range(max(last - newest, 0) + 1, last + 1)))

    def _size(self, number: int) -> int:
        return HUGE_RECORD_BYTES if number in self.huge else self.record_bytes

    def _signal(self, number: int) -> Signal:
        return Signal(
            kind="record",
            occurred_at=self.emitted_at[number - 1],
            payload={"number": number, "text": "x" * self._size(number)},
            dedupe_key=f"record {number}" if self.has_keys else None,
        )


@dataclass
class Call:
    """One call of a connector, for as long as its process is alive and awake."""

    process: Process
    began: float
    ended: float | None = None


class Ledger:
    """Every account of the provider, and how well it behaves today."""

    def __init__(
        self,
        rng: random.Random,
        longest_overlap: float,
        applications: Mapping[str, Application],
    ) -> None:
        self._rng = rng
        self.accounts: dict[str, Account] = {}
        self.misbehaviour = 0.0
        self.answers: Counter[str] = Counter()
        self.complaints: list[str] = []
        self._longest_overlap = longest_overlap
        self.applications = applications

    def open_account(self, name: str, *, has_keys: bool) -> None:
        rng = random.Random(self._rng.random())
        self.accounts[name] = Account(has_keys, rng, rng.choice(RECORD_BYTES))

    def emit(self, now: datetime) -> None:
        """Let something happen in one of the accounts."""
        account = self.accounts[self._rng.choice(sorted(self.accounts))]
        account.emit(now, self._rng.randint(1, 2 * LARGEST_PAGE))

    def emit_everywhere(self, now: datetime) -> None:
        for name in sorted(self.accounts):
            self.accounts[name].emit(now, self._rng.randint(1, 2 * LARGEST_PAGE))

    def answer(self, connection: Connection, cursor: Any) -> SyncResult:
        """Return a page, or what a connector returns or raises on a bad day."""
        account = self.accounts[connection.external_id]
        rng = account.rng
        after = 0 if cursor is None else cursor["after"]
        size, overlap = rng.randint(1, LARGEST_PAGE), rng.randint(0, LARGEST_OVERLAP)
        signals = account.page(after, size, overlap)
        last = account.last(after, size)
        if rng.random() < self.misbehaviour:
            return self._misbehave(rng, signals, cursor, last)
        self.answers["page"] += 1
        return SyncResult(
            signals=signals,
            next_cursor={"after": last} if last > 0 else None,
            has_more=last < len(account.emitted_at),
        )

    def begin(self, connection: Connection, now: float) -> Call:
        """Begin a call, unless the provider refuses it for all connections."""
        if refusal := self.applications[connection.provider_slug].refuse(now):
            self.answers[str(refusal)] += 1
            raise refusal
        process = PROCESS.get()
        assert process is not None
        call = Call(process, now)
        self.accounts[connection.external_id].calls.append(call)
        return call

    def end(self, connection: Connection, call: Call, now: float) -> None:
        """Complain of two calls at once, but for the moment in which a frozen worker wakes."""
        call.ended = now
        calls = self.accounts[connection.external_id].calls
        for later in calls[calls.index(call) + 1 :]:
            together = min(now, later.ended or now) - max(later.began, call.process.frozen_until)
            if together > self._longest_overlap:
                self.complaints.append(
                    f"two calls at once for {connection.external_id}, {together:.1f} s long"
                )

    def _misbehave(
        self, rng: random.Random, signals: list[Signal], cursor: Any, last: int
    ) -> SyncResult:
        way = rng.choice(sorted(WAYS))
        self.answers[way] += 1
        result = WAYS[way](signals, cursor, last)
        if isinstance(result, BaseException):
            raise result
        return result  # type: ignore[no-any-return]  # which is the point


def _broken(signals: list[Signal]) -> Iterator[Signal]:
    yield from signals
    raise ValueError("the stream broke")


def _bad_signal(payload: Any) -> Signal:
    return Signal("record", datetime.fromisoformat("2025-01-01T00:00Z"), payload)


WAYS: dict[str, Any] = {
    "transient": lambda *_: Transient("try again"),
    "rate limited": lambda *_: RateLimited("slow down", retry_after_seconds=20),
    "rate limited, no hint": lambda *_: RateLimited("slow down"),
    "unexpected": lambda *_: KeyError("surprise"),
    "system exit": lambda *_: SystemExit(3),
    "permanent": lambda *_: Permanent("gone for good"),
    "unauthorized": lambda *_: Unauthorized("who are you?"),
    "nothing": lambda *_: None,
    "a dict": lambda signals, _, last: {"signals": signals, "next_cursor": last},
    "no cursor to go on from": lambda signals, *_: SyncResult(signals, None, has_more=True),
    "the cursor unchanged": lambda signals, cursor, _: SyncResult(signals, cursor, has_more=True),
    "not a number": lambda signals, _, last: SyncResult(
        [*signals, _bad_signal({"number": math.nan})], {"after": last}
    ),
    "a NUL": lambda signals, _, last: SyncResult(
        [*signals, _bad_signal({"text": "\0"})], {"after": last}
    ),
    "no zone": lambda signals, _, last: SyncResult(
        [*signals, Signal("record", datetime.fromisoformat("2025-01-01T00:00"), {})],
        {"after": last},
    ),
    "a stream that breaks": lambda signals, _, last: SyncResult(_broken(signals), {"after": last}),
}


class Calling(Connector):
    """Waits for the provider at several points; may hang for good."""

    provider = "calling"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        ledger, loop = self._ledger, asyncio.get_running_loop()
        await connection.spend(1)
        call = ledger.begin(connection, loop.time())
        rng = ledger.accounts[connection.external_id].rng
        try:
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(rng.uniform(0, 3))
            if rng.random() < ledger.misbehaviour / 10:
                ledger.answers["hangs"] += 1
                await asyncio.sleep(HANGS_SECONDS)
            return ledger.answer(connection, cursor)
        finally:
            ledger.end(connection, call, loop.time())


class Streaming(Connector):
    """Yields page after page for as long as there are more, waiting for the provider between."""

    provider = "streaming"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        ledger, loop = self._ledger, asyncio.get_running_loop()
        rng = ledger.accounts[connection.external_id].rng
        while True:
            await connection.spend(1)
            call = ledger.begin(connection, loop.time())
            try:
                await asyncio.sleep(rng.uniform(0, 2))
                page = ledger.answer(connection, cursor)
            finally:
                ledger.end(connection, call, loop.time())
            ledger.answers["streamed"] += 1
            yield page  # which calls nobody, however long its commit takes
            if not page.has_more or rng.random() < 0.1:
                return
            cursor = page.next_cursor


class Blocking(Connector):
    """Answers at once, in a thread, as connectors that are not async do."""

    provider = "blocking"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        return self._ledger.answer(connection, cursor)
