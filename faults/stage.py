"""The environment of a run: server, provider, fleet and database, and its measurements."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from faults.connector import INTERPRETER_HELD_SECONDS
from faults.database import Database
from faults.fleet import LEASE_SECONDS, Fleet, Member
from faults.process import Role
from faults.provider import Provider, Stream
from faults.record import Record
from faults.waiting import TooLate, until
from syncline import Engine
from syncline.testing.database import TemporaryServer

LIVE_STREAMS = 16
RECORDS_PER_SECOND = 8
NEWCOMER_RECORDS = 12
EVERY_NTH_BLOCKS = 8  # its connector is not async
PATIENCE_SECONDS = 20
LOOK_EVERY_SECONDS = 0.1
RENEWED_SECONDS = LEASE_SECONDS / 3 + 1.5  # live workers have renewed or settled by then


class NotFound(Exception):
    """A program that a kind of fault needs is not installed."""


@dataclass(slots=True)
class Stage:
    server: TemporaryServer
    provider: Provider
    fleet: Fleet
    database: Database
    engine: Engine
    record: Record
    rng: Random
    folder: Path
    is_quick: bool
    ids: dict[str, UUID] = field(default_factory=dict)
    deleted: list[UUID] = field(default_factory=list)
    blocking: set[str] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=count)

    async def add_stream(self, title: str, stream: Stream, *, slug: str = "records") -> str:
        """Add a stream of the provider, and a connection to it; return its name."""
        number = next(self._numbers)
        name = f"{title}-{number}"
        self.provider.add(name, stream)
        if slug == "records" and number % EVERY_NTH_BLOCKS == EVERY_NTH_BLOCKS - 1:
            slug = "blocking-records"
            self.blocking.add(name)
        connection = await self.engine.connections.create(
            tenant_id=f"tenant-{number % 3}", provider_slug=slug, external_id=name
        )
        self.ids[name] = connection.id
        return name

    async def add_live_streams(self) -> None:
        for _ in range(LIVE_STREAMS):
            await self.add_stream("live", Stream(per_second=RECORDS_PER_SECOND))

    async def add_newcomer(self) -> str:
        """Add a connection that only a scheduler can start."""
        return await self.add_stream("newcomer", Stream(records=NEWCOMER_RECORDS))

    async def sync_now(self, name: str) -> None:
        """Trigger a sync with the priority of the interval jobs.

        A live stream always has more, and each follow-up inherits the priority of its parent. With
        a higher one the stream would be preferred for the rest of the suite, and the streams that
        were never triggered would starve whenever slots are short.
        """
        await self.engine.trigger(self.ids[name], priority=0)

    async def until_synced(self, *names: str, within: float = PATIENCE_SECONDS) -> None:
        async def are_synced() -> bool:
            cursors, streams = await self.database.cursors(), self.provider.streams
            return all(cursors.get(name) == streams[name].head() for name in names)

        await until(are_synced, within=within, what=f"{', '.join(names)}: synced")

    async def until_its_turn(
        self, condition: Callable[[], Any], *, within: float, what: str
    ) -> None:
        """Wait for an event in one process, and meanwhile add connections that any may claim.

        The worker that stored a page claims its follow-up at once. Without new connections,
        another worker may wait for minutes until it claims something.
        """
        for left in reversed(range(int(within))):
            await self.add_newcomer()
            try:
                await until(condition, within=1, what=what)
            except TooLate:
                if not left:
                    raise
            else:
                return

    def live_async_stream(self) -> str:
        """Return a live stream whose connector is asynchronous."""
        return self.rng.choice([one for one in self.provider.live() if one not in self.blocking])

    def any(self, role: Role) -> Member:
        """Return a running process; a worker must already have called the provider."""
        return self.rng.choice(
            self.working() if role == "worker" else self.fleet.running("scheduler")
        )

    def working(self) -> list[Member]:
        workers = [w for w in self.fleet.running("worker") if self.provider.calls_by(w.pid)]
        return [w for w in workers if self.provider.in_flight(w.pid)] or workers

    async def busy_worker(self) -> Member:
        """Return a worker in mid-call."""

        def busy() -> list[Member]:
            workers = self.fleet.running("worker")
            return [worker for worker in workers if self.provider.in_flight(worker.pid)]

        workers: list[Member] = await until(
            busy, within=PATIENCE_SECONDS, what="a worker in mid-call"
        )
        return self.rng.choice(workers)

    async def order(self, what: str, name: str | None = None) -> Member:
        """Make a connector misbehave; return the worker in which it does."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            pid = await self.provider.order(name or self.live_async_stream(), what)
        worker = self.fleet.by_pid(pid)
        if what == "holds the interpreter":
            worker.still_until = time.monotonic() + INTERPRETER_HELD_SECONDS
        return worker

    def sort_overlaps(self, *, loses_claims: bool) -> None:
        """Count overlapping calls that are allowed, by reason; complain about the others."""
        for overlap in self.provider.overlaps:
            worker = self.fleet.by_pid(overlap.earlier.pid)
            if overlap.earlier.began < worker.still_until:
                self.record.overlaps["a worker stood still"] += 1
            elif overlap.stream in self.blocking:
                self.record.overlaps["a thread did not stop"] += 1
            elif loses_claims:
                self.record.overlaps["the database forgot the claim"] += 1
            else:
                self.record.overlaps["no reason"] += 1
                self.record.complain(f"two calls of {overlap.stream} at once: {overlap}")
        self.provider.overlaps.clear()

    async def heal(self) -> None:
        """Undo what is left of a fault, and wait until every live stream makes progress."""
        self.provider.trouble = None
        await self.fleet.replace_missing()
        await until(lambda: len(self.working()) > 1, within=60, what="a victim and another")
        await self.until_all_go_on()
        for process in self.fleet.complaining():
            self.record.complain(f"{process.log.stem} raised: {process.tail()[-500:]}")
        for process in self.fleet.ended_unasked():
            process.may_end = True
            self.record.complain(f"{process.log.stem} ended unasked with {process.exit_code}")

    async def until_all_go_on(self) -> None:
        """Wait until every live stream has made progress; complain about those that do not."""
        before = await self.database.cursors()

        async def silent() -> list[str]:
            now = await self.database.cursors()
            return [name for name in self.provider.live() if now.get(name, 0) <= before[name]]

        async def all_go_on() -> bool:
            return not await silent()

        try:
            await until(all_go_on, within=PATIENCE_SECONDS, what="every stream goes on")
        except TooLate:
            self.record.complain(f"these streams fell silent: {', '.join(await silent())}")

    async def until_runs_have_ended(self) -> None:
        """Wait until every current run is settled, including those of an earlier fault."""
        running = {row[:2] for row in await self.database.running()}

        async def ended() -> bool:
            running.intersection_update([row[:2] for row in await self.database.running()])
            return not running

        await until(ended, within=PATIENCE_SECONDS, what="the end of every run")

    async def measure_recovery(self, killed_at: datetime) -> None:
        """Wait until every live stream was claimed after the kill; record how long that took."""
        names = self.provider.live()

        async def claimed() -> dict[str, datetime] | None:
            found = await self.database.claimed_since(names, killed_at)
            return found if len(found) == len(names) else None

        found = await until(claimed, within=PATIENCE_SECONDS, what="every job runs elsewhere")
        self.record.recoveries.append((max(found.values()) - killed_at).total_seconds())

    async def measure_return(self, back_at: datetime) -> None:
        """Record how long after Postgres came back the first job was claimed."""

        async def claimed() -> dict[str, datetime]:
            return await self.database.claimed_since(list(self.ids), back_at)

        found = await until(claimed, within=PATIENCE_SECONDS, what="a claim after the return")
        self.record.returns.append((min(found.values()) - back_at).total_seconds())

    async def count_left_running(self) -> None:
        """Count the running rows that no worker settles or renews: an ended worker left them."""
        suspects = await self.database.running()

        async def cleared() -> bool:
            suspects.intersection_update(await self.database.running())
            return not suspects

        with contextlib.suppress(TooLate):
            await until(cleared, within=RENEWED_SECONDS, what="every row is kept")
        self.record.left_running += len(suspects)

    @contextlib.asynccontextmanager
    async def costs_time_only(self, title: str = "") -> AsyncIterator[None]:
        """Complain if, inside the block, streams with this title have attempts counted or pages
        fetched again.

        If the same happens to other streams, the machine was too busy for any worker to renew.
        """
        await self.until_runs_have_ended()
        attempts, repeated = await self.database.attempts(), self.provider.repeated.copy()
        yield
        await self.until_runs_have_ended()
        counted = await self.database.attempts() - attempts
        again = self.provider.repeated - repeated
        if any(not name.startswith(title) for name in counted):
            return
        if counted or again:
            self.record.complain(f"attempts counted: {dict(counted)}, fetched again: {dict(again)}")

    @contextlib.asynccontextmanager
    async def live_streams_go_on(self) -> AsyncIterator[None]:
        """Record the longest time without progress of any live stream inside the block."""
        began = time.monotonic()
        seen: dict[str, tuple[int, float]] = dict.fromkeys(self.provider.live(), (-1, began))
        pauses: dict[str, float] = dict.fromkeys(seen, 0.0)

        def look(cursors: dict[str, int]) -> None:
            now = time.monotonic()
            for name, (cursor, since) in seen.items():
                pauses[name] = max(pauses[name], now - since)
                if cursors[name] > cursor:
                    seen[name] = (cursors[name], now)

        async def watch() -> None:
            database = Database(self.database.url)
            try:
                while True:
                    look(await database.cursors())
                    await asyncio.sleep(LOOK_EVERY_SECONDS)
            finally:
                database.close()

        task = asyncio.create_task(watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        look(await self.database.cursors())
        self.record.pauses.append(max(pauses.values()))

    @contextlib.asynccontextmanager
    async def newcomers(self, every: float) -> AsyncIterator[None]:
        """Add a connection every few seconds, even while the database is away."""

        async def add() -> None:
            while True:
                await asyncio.sleep(every)
                with contextlib.suppress(Exception):  # another fault has made it unreachable
                    await self.add_newcomer()

        task = asyncio.create_task(add())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
