"""Ordinary operation for a while: many connections, each with its interval, one process.

`steady` runs connectors that bring nothing. `mixed` is life-like: some runs bring signals, some
fail and are retried, and the engine deletes what is older than a few minutes.
"""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median
from typing import Any
from uuid import UUID

from bench.measure import Figures, cpu_seconds, resident_megabytes, server_cpu_seconds
from bench.workloads.case import Case, Counted, begin_measuring, running
from bench.workloads.data import Past, add_used_connections
from bench.workloads.signals import BODY, OCCURRED_AT
from syncline import Connection, Signal, SyncResult, Transient
from syncline.settings import RetentionSettings

LATENESS_P50, LATENESS_P99 = "lateness p50, s", "lateness p99, s"
GROWTH = "tables, end ÷ a third"
FILLED_PER_SECOND = 5000  # how fast the preparation is assumed to be; the first slot comes after it
TABLES = ("connections", "sync_jobs", "signals")
WINDOWS = 12  # sizes are compared over a twelfth of the time each
SAMPLES_A_WINDOW = 15
MINUTE = 60.0
LONGEST_AHEAD = timedelta(minutes=15)  # a job exists for less than this before it is due

LATENESS = """
    -- How late jobs started that were due from $1 to $2, in hundredths of a second, by first
    -- attempts: a retry has a due time of its own. Those that have not started yet are late until
    -- $2. Ids are in the order of time, so older rows ($3) are not read.
    SELECT floor(100 * extract(epoch FROM coalesce(started_at, $2) - scheduled_at))::int AS late,
           count(*) AS jobs
      FROM syncline.sync_jobs
     WHERE id > $3 AND scheduled_at > $1::timestamptz AND scheduled_at <= $2::timestamptz
       AND attempts = 0
     GROUP BY 1
"""
SIZE = """
    SELECT pg_table_size($1::text::regclass) / 1e6::float8 AS heap,
           pg_indexes_size($1::text::regclass) / 1e6::float8 AS indexes
"""
WAL_BYTES = "SELECT (pg_current_wal_lsn() - '0/0')::float8"
Sizes = dict[str, float]
"""Megabytes of each table, and of its indexes, at one moment."""


class Mixed(Counted):
    """Sometimes fails, sometimes brings signals and moves its cursor, mostly finds nothing new."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.runs = 0
        super().__init__(self._note)
        self._failing, self._bringing = options["failing"], options["bringing"]
        self._signals = options["signals"]
        self._numbers = itertools.count()

    def _note(self) -> None:
        self.runs += 1

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:  # noqa: ARG002
        self.noted()
        roll = random.random()
        if roll < self._failing:
            raise Transient("the provider is away")
        if roll >= self._failing + self._bringing:
            return SyncResult()
        numbers = [next(self._numbers) for _ in range(self._signals)]
        return SyncResult(
            signals=[
                Signal("ticket_updated", OCCURRED_AT, BODY | {"number": number}, str(number))
                for number in numbers
            ],
            next_cursor={"since": numbers[-1]},
        )


async def steady_state(case: Case) -> Figures:
    """Run every loop for a while, and watch how late jobs start and how large tables become."""
    options = case.options
    interval, kept = options["interval"], options["kept_minutes"] * MINUTE
    connector = Mixed(options)
    components: dict[str, Any] = {"scheduler": {"default_interval_seconds": interval}}
    if kept:
        components["retention"] = short_retention(options["kept_minutes"])
    async with (
        case.engine(connector, **components) as engine,
        case.session() as session,
        usual_checkpoints(session),
    ):
        await prepare(case, session)
        async with running(engine):
            # Fewer runs start until the jitter of the first slots has passed.
            await asyncio.sleep(interval * engine.settings.scheduler.jitter_pct_max)
            await begin_measuring(session)
            before = await Usage.now(session, connector.runs)
            watch = Watch(session, options["seconds"], min(MINUTE, (kept or interval) / 4))
            await watch.watch()
            after = await Usage.now(session, connector.runs)
    return watch.figures() | before.until(after)


async def prepare(case: Case, session: Any) -> None:
    """Add connections whose slots are spread over the coming interval, and wait for the first."""
    connections, interval = case.size("connections"), case.options["interval"]
    ahead = max(connections / FILLED_PER_SECOND, 1)
    began = time.perf_counter()
    kept = case.options["kept_minutes"] * MINUTE or interval
    past = Past((ahead, ahead + interval), float(interval), kept_seconds=float(kept))
    await add_used_connections(session, connections, past)
    await asyncio.sleep(max(began + ahead - time.perf_counter(), 0))


def short_retention(minutes: float) -> RetentionSettings:
    """Return settings that keep everything for a few minutes, less than may be configured.

    What a day does to the tables is then seen in half an hour.
    """
    values = {
        "jobs_days": minutes / 1440,
        "signals_days": minutes / 1440,
        "empty_jobs_hours": minutes / 60,
    }
    known = {
        name: value for name, value in values.items() if name in RetentionSettings.model_fields
    }
    return RetentionSettings.model_construct(**known)  # type: ignore[arg-type]  # not checked


@asynccontextmanager
async def usual_checkpoints(session: Any) -> AsyncIterator[None]:
    """Let the server write checkpoints as often as by default; short trials avoid them."""
    await session.execute("ALTER SYSTEM SET checkpoint_timeout = '5min'")
    await session.execute("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        await session.execute("ALTER SYSTEM RESET checkpoint_timeout")
        await session.execute("SELECT pg_reload_conf()")


@dataclass(frozen=True)
class Usage:
    """What the worker and the server have used so far; the server's time only if it is known."""

    runs: int
    at: float
    worker: float
    server: float | None
    wal_bytes: float

    @classmethod
    async def now(cls, session: Any, runs: int) -> "Usage":
        server = None
        with suppress(OSError):
            server = server_cpu_seconds(await session.fetchval("SELECT pg_backend_pid()"))
        wal_bytes = await session.fetchval(WAL_BYTES)
        return cls(runs, time.perf_counter(), cpu_seconds(), server, wal_bytes)

    def until(self, end: "Usage") -> Figures:
        runs, worker, seconds = end.runs - self.runs, end.worker - self.worker, end.at - self.at
        figures = {"client CPU, µs/run": worker / runs * 1e6}
        if self.server is not None and end.server is not None:
            figures["server CPU, µs/run"] = (end.server - self.server) / runs * 1e6
        return figures | {
            "WAL, bytes/run": (end.wal_bytes - self.wal_bytes) / runs,
            "runs/s": runs / seconds,
            "client CPU, share of a core": worker / seconds,
            "memory, MB": resident_megabytes(),
        }


@dataclass
class Watch:
    """Samples the sizes of tables, and counts how late jobs start before they are deleted."""

    session: Any
    seconds: float
    period: float  # between two looks at the lateness, and how long a job may be late at most
    counted_until: datetime | None = None
    sizes: list[tuple[float, Sizes]] = field(default_factory=list)
    late: Counter[int] = field(default_factory=Counter)

    async def watch(self) -> None:
        """Watch for the whole time."""
        self.counted_until = await self.session.fetchval("SELECT now()")
        pause = self.seconds / WINDOWS / SAMPLES_A_WINDOW
        began = looked = time.perf_counter()
        while (passed := time.perf_counter() - began) < self.seconds:
            self.sizes.append((passed, await read_sizes(self.session)))
            if time.perf_counter() - looked >= self.period:
                looked = time.perf_counter()
                await self._count(timedelta(seconds=self.period))
            await asyncio.sleep(pause)
        await self._count(timedelta())

    async def _count(self, ago: timedelta) -> None:
        assert self.counted_until is not None
        until = await self.session.fetchval("SELECT now()") - ago
        if until > self.counted_until:
            oldest = id_at(self.counted_until - LONGEST_AHEAD)
            for row in await self.session.fetch(LATENESS, self.counted_until, until, oldest):
                self.late[row["late"]] += row["jobs"]
            self.counted_until = until

    def figures(self) -> Figures:
        third = at_a_third(self.sizes, self.seconds)
        end = at_the_end(self.sizes, self.seconds)
        growth = {
            table: _whole(end, table) / _whole(third, table) for table in TABLES if third[table]
        }
        return {
            LATENESS_P50: percentile_of(self.late, 0.5),
            LATENESS_P99: percentile_of(self.late, 0.99),
            "lateness worst, s": max(self.late) / 100,
            GROWTH: max(growth.values()),
            **{f"{name} at a third, MB": size for name, size in third.items()},
            **{f"{name} at the end, MB": size for name, size in end.items()},
            **{f"{table} with indexes, end ÷ a third": ratio for table, ratio in growth.items()},
        }


def at_a_third(samples: Sequence[tuple[float, Sizes]], seconds: float) -> Sizes:
    """Return the medians of the samples just after a third of the time."""
    return _medians(samples, seconds / 3, seconds / WINDOWS)


def at_the_end(samples: Sequence[tuple[float, Sizes]], seconds: float) -> Sizes:
    """Return the medians of the last samples."""
    return _medians(samples, seconds - seconds / WINDOWS, seconds / WINDOWS)


def _medians(samples: Sequence[tuple[float, Sizes]], begin: float, length: float) -> Sizes:
    chosen = [sizes for at, sizes in samples if begin <= at <= begin + length]
    return {name: median(sizes[name] for sizes in chosen) for name in chosen[0]}


def percentile_of(hundredths: Counter[int], share: float) -> float:
    """Return the seconds that the given share of the counted values does not exceed."""
    left = share * hundredths.total()
    for value in sorted(hundredths):
        left -= hundredths[value]
        if left <= 0:
            return (value + 1) / 100
    return 0.0


async def read_sizes(session: Any) -> Sizes:
    sizes: Sizes = {}
    for table in TABLES:
        size = await session.fetchrow(SIZE, f"syncline.{table}")
        sizes |= {table: size["heap"], f"indexes of {table}": size["indexes"]}
    return sizes


def id_at(moment: datetime) -> UUID:
    """Return the least id that the engine makes at that time."""
    return UUID(int=int(moment.timestamp() * 1000) << 80)


def _whole(sizes: Sizes, table: str) -> float:
    return sizes[table] + sizes[f"indexes of {table}"]
