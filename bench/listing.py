"""Listings compared with primary-key lookups in full tables: `python -m bench.listing --help`."""

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import asyncpg

from bench.database import Database
from syncline import Engine, Settings
from syncline.model import Position

MOST_OVER_LOOKUP = 10
TENANTS, PROVIDERS, KINDS, PAGE = 1000, 20, 50, 50
ROWS_A_TRANSACTION = 1000
Call = Callable[[], Awaitable[Any]]

FILL = """
SET session_replication_role = replica;
SET synchronous_commit = off;
CREATE FUNCTION pg_temp.id(kind int, n bigint) RETURNS uuid LANGUAGE sql AS
    $$ SELECT (kind || lpad(to_hex(n), 31, '0'))::uuid $$;
INSERT INTO syncline.connections
       (id, tenant_id, provider_slug, external_id, status, look_at, last_finished_at, metadata)
SELECT pg_temp.id(1, n), 'tenant ' || n % {tenants}, 'provider ' || n % {providers},
       'account-' || n, CASE WHEN n % 200 = 0 THEN 'error' ELSE 'active' END,
       now() + n % 900 * interval '1 s', now() - n % 900 * interval '1 s',
       '{{"sync": {{"cursor": {{"page": 7}}, "next_run_at": "2025-01-01T13:00:00Z"}}}}'
  FROM generate_series(1, {connections}) n;
INSERT INTO syncline.sync_jobs
       (id, tenant_id, provider_slug, connection_id, status, scheduled_at, started_at, finished_at)
SELECT pg_temp.id(2, n), 'tenant ' || c % {tenants}, 'provider ' || c % {providers},
       pg_temp.id(1, c), CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'succeeded' END, at, at, at
  FROM generate_series(1, {jobs}) n, LATERAL (SELECT n::bigint * 7919 % {connections} + 1 AS c,
       now() - ({jobs} - n) * interval '100 ms' AS at) x;
INSERT INTO syncline.sync_jobs (id, tenant_id, provider_slug, connection_id, scheduled_at)
SELECT pg_temp.id(3, n), 'tenant ' || n % {tenants}, 'provider ' || n % {providers},
       pg_temp.id(1, n), now() FROM generate_series(1, {connections} / 20) n;
"""

# A transaction each, as pages of signals are stored.
FILL_SIGNALS = """
INSERT INTO syncline.signals (id, tenant_id, provider_slug, connection_id, kind, received_at,
                              payload, dedupe_key)
SELECT pg_temp.id(4, n), 'tenant ' || c % {tenants}, 'provider ' || c % {providers},
       pg_temp.id(1, c), 'kind ' || n % {kinds}, now() - ({signals} - n) / 100 * interval '10 ms',
       '{{"title": "something happened here", "number": 7}}', n::text
  FROM generate_series({first}, {last}) n,
       LATERAL (SELECT n::bigint * 7919 % {connections} + 1 AS c) x
"""


async def measure(url: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Fill the tables; return the milliseconds of each question, asked in turn."""
    async with Engine(Settings(database_url=url)) as engine:
        await engine.migrate()
        await fill(url, options)
        now = await engine.signals.position()
        questions = ask(engine, options, now, random.Random(1))
        times: dict[str, list[float]] = {name: [] for name in questions}
        for round_ in range(options.rounds + 5):
            for name, call in questions.items():
                began = time.perf_counter()
                await call()
                if round_ >= 5:  # the first ones open connections and fill caches
                    times[name].append((time.perf_counter() - began) * 1000)
        return times


async def fill(url: str, options: argparse.Namespace) -> None:
    sizes = {"tenants": TENANTS, "providers": PROVIDERS, "kinds": KINDS}
    sizes |= {name: getattr(options, name) for name in ("connections", "jobs", "signals")}
    session = await asyncpg.connect(url, command_timeout=1800)
    try:
        await session.execute(FILL.format(**sizes))
        for first in range(1, options.signals + 1, ROWS_A_TRANSACTION):
            last = min(first + ROWS_A_TRANSACTION - 1, options.signals)
            await session.execute(FILL_SIGNALS.format(**sizes, first=first, last=last))
        for table in ("connections", "sync_jobs", "signals"):
            await session.execute(f"VACUUM ANALYZE syncline.{table}")
        await session.execute("CHECKPOINT")
    finally:
        await session.close()


def ask(
    engine: Engine, options: argparse.Namespace, end: Position, chance: random.Random
) -> dict[str, Call]:
    """Return the questions, about different rows each time; lookups by primary key first."""

    def some(kind: int, count: int) -> UUID:
        return UUID(f"{kind}{chance.randint(1, count):031x}")

    def tenant() -> str:
        return f"tenant {chance.randrange(TENANTS)}"

    def provider() -> str:
        return f"provider {chance.randrange(PROVIDERS)}"

    connections, jobs, signals = engine.connections, engine.jobs, engine.signals

    def connection() -> UUID:
        return some(1, options.connections)

    def position() -> Position:
        return Position(
            end.transaction - chance.randrange(options.signals // ROWS_A_TRANSACTION),
            UUID(int=0),
            end.server_start,
        )

    return {
        "connection by id": lambda: connections.get(connection()),
        "job by id": lambda: jobs.get(some(2, options.jobs)),
        "signal by id": lambda: signals.get(some(4, options.signals)),
        "connections": lambda: connections.list(limit=PAGE),
        "connections of a tenant": lambda: connections.list(tenant_id=tenant(), limit=PAGE),
        "connections in error": lambda: connections.list(status="error", limit=PAGE),
        "connections of a provider": lambda: connections.list(provider_slug=provider(), limit=PAGE),
        "connections of a tenant by prefix": lambda: connections.list(
            tenant_id=tenant(), external_id_prefix="account-7", limit=PAGE
        ),
        "connections of a tenant by staleness": lambda: connections.list(
            tenant_id=tenant(), order="staleness", limit=PAGE
        ),
        "jobs": lambda: jobs.list(limit=PAGE),
        "jobs of a tenant": lambda: jobs.list(tenant_id=tenant(), limit=PAGE),
        "jobs of a tenant that failed": lambda: jobs.list(
            tenant_id=tenant(), status="failed", limit=PAGE
        ),
        "jobs of a connection": lambda: jobs.list(connection_id=connection(), limit=PAGE),
        "jobs that failed": lambda: jobs.list(status="failed", limit=PAGE),
        "signals": lambda: signals.list(newest_first=True, limit=PAGE),
        "signals of a tenant": lambda: signals.list(
            tenant_id=tenant(), newest_first=True, limit=PAGE
        ),
        "signals of a connection": lambda: signals.list(
            connection_id=connection(), newest_first=True, limit=PAGE
        ),
        "signals of a kind": lambda: signals.list(
            kind=f"kind {chance.randrange(KINDS)}", newest_first=True, limit=PAGE
        ),
        "signals followed": lambda: signals.follow(position=position(), limit=PAGE),
    }


def report(times: dict[str, list[float]]) -> bool:
    """Print the figures as a table; return whether every listing is within the bound."""
    medians = {name: statistics.median(found) for name, found in times.items()}
    lookup = statistics.median([median for name, median in medians.items() if " by id" in name])
    print("| question | median, ms | 95th, ms | ÷ lookup |\n|---|---:|---:|---:|")
    for name, found in times.items():
        late = sorted(found)[int(len(found) * 0.95)]
        print(f"| {name} | {medians[name]:.2f} | {late:.2f} | {medians[name] / lookup:.1f} |")
    return all(median < MOST_OVER_LOOKUP * lookup for median in medians.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.listing", description=__doc__)
    parser.add_argument("--connections", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--signals", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=100, help="how often each question is asked")
    options = parser.parse_args()
    with Database(profile=False) as database, database.fresh() as url:
        times = asyncio.run(measure(url, options))
    return 0 if report(times) else 1


if __name__ == "__main__":
    sys.exit(main())
