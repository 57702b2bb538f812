"""How many connections a tick schedules, and how many no-op jobs a process runs, per second.

    python bench/throughput.py [--connections 50000] [--rounds 3] [--concurrency 2000]

Everything goes through the public engine, on a Postgres of its own with fsync on. Client and
server share the machine, so trust the orders of magnitude, not the last digit.
"""

import argparse
import asyncio
import platform
import resource
import statistics
import time
from typing import Any

import asyncpg

from syncline import Connection, Connector, Engine, Settings, SyncResult
from syncline.testing.database import TemporaryServer

DURABLE = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
}


class NoOp(Connector):
    provider = "noop"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        return SyncResult()


async def measure(url: str, connections: int, concurrency: int) -> dict[str, float]:
    """Return the rates of one round on a fresh database."""
    settings = Settings(database_url=url, executor={"concurrency": concurrency})
    async with Engine(settings, connectors=[NoOp()]) as engine:
        await engine.migrate()
        await insert_connections(url, connections)

        began = time.perf_counter()
        report = await engine.tick()
        ticked = time.perf_counter() - began
        assert report.scheduled == connections, report

        began, cpu = time.perf_counter(), cpu_seconds()
        ran = await engine.run_due()
        drained, cpu = time.perf_counter() - began, cpu_seconds() - cpu
        assert ran == connections, ran
        assert await engine.verify() == []
    return {
        "connections scheduled per second": connections / ticked,
        "no-op jobs per second": connections / drained,
        "client CPU, µs per job": cpu / connections * 1e6,
    }


async def insert_connections(url: str, count: int) -> None:
    session = await asyncpg.connect(url)
    try:
        await session.execute(
            "INSERT INTO syncline.connections (tenant_id, provider_slug, external_id)"
            " SELECT 'tenant-' || n % 100, 'noop', n::text FROM generate_series(1, $1::int) n",
            count,
        )
        await session.execute("VACUUM ANALYZE syncline.connections")
    finally:
        await session.close()


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=2000)
    options = parser.parse_args()
    rounds = []
    with TemporaryServer(server_settings=DURABLE) as server:
        for number in range(1, options.rounds + 1):
            url = server.create_database()
            rounds.append(asyncio.run(measure(url, options.connections, options.concurrency)))
            server.drop_database(url)
            print(f"round {number} of {options.rounds}", flush=True)
    print(f"\n{platform.machine()}, Python {platform.python_version()}, ", end="")
    print(f"{options.connections} connections, concurrency {options.concurrency}")
    for name in rounds[0]:
        values = sorted(one[name] for one in rounds)
        print(f"  {name:34} {statistics.median(values):>9,.0f}", end="")
        print(f"   [{values[0]:,.0f} .. {values[-1]:,.0f}]")


if __name__ == "__main__":
    main()
