"""A tap from the package index, syncing from a local server, killed twice in the middle."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.orders_server import OrdersServer, serve_orders
from support.processes import LEASE_SECONDS, Fleet, exit_code, until
from syncline import Engine, Settings
from syncline.children.sandbox import why_unavailable
from syncline.connectors.foreign.environments import InstalledProgram, InstalledPrograms

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(600)]

BUILD = Path(__file__).parents[2] / "build" / "integration"
TAP = "tap-rest-api-msdk"
TOTAL = 240
PROCESS = {
    "scheduler__jitter_pct_max": 0,
    "rate_limit__base_seconds": 1,
    "http__allow_private": TAP,  # its server is on this host
    "foreign__unsandboxed": TAP if why_unavailable() else "",
}


@pytest.fixture(scope="session")
def home() -> Path:
    """A home folder with the installed tap, which later runs reuse."""
    BUILD.mkdir(parents=True, exist_ok=True)
    return BUILD


@pytest.fixture
def fleet(database_url: str, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(database_url, tmp_path)
    yield fleet
    fleet.stop()
    print(fleet.logs())  # shown when the test has failed


@pytest.fixture(scope="session")
def tap(home: Path) -> InstalledProgram:
    shelf = InstalledPrograms("singer", home)
    return next((one for one in shelf.all() if one.name == TAP), None) or shelf.add(TAP)


async def add_connection(fleet: Fleet, server: OrdersServer) -> None:
    stream = {
        "name": "orders",
        "path": "/orders",
        "primary_keys": ["id"],
        "replication_key": "updated",
        "records_path": "$.items[*]",
        "source_search_field": "since",
        "source_search_query": "$last_run_date",
    }
    settings = {
        "api_url": server.url,
        "next_page_token_path": "$.next",
        "start_date": "2025-01-01T00:00:00Z",
        "streams": [stream],
    }
    config = {"settings": settings, "streams": ["orders"], "page_size": 20}
    await fleet.sql(
        "INSERT INTO syncline.connections"
        " (tenant_id, provider_slug, external_id, config, metadata)"
        " VALUES ('acme', $1, 'a', $2, '{\"sync\": {\"interval_seconds\": 60}}')",
        *(TAP, json.dumps(config)),
    )


async def stored(fleet: Fleet) -> list[Any]:
    rows = await fleet.sql("SELECT payload FROM syncline.signals WHERE kind = 'orders' ORDER BY id")
    return [json.loads(row["payload"]) for row in rows]


async def has_stored(fleet: Fleet, wanted: int) -> bool:
    return await fleet.count("signals", "kind = 'orders'") >= wanted


async def has_finished(fleet: Fleet, wanted: int) -> bool:
    return await fleet.count("sync_jobs", "status = 'succeeded'") >= wanted


async def test_a_real_tap_loses_and_doubles_nothing(
    fleet: Fleet, tap: InstalledProgram, home: Path
) -> None:
    with serve_orders() as server:
        server.add(TOTAL)
        server.pause_seconds = 0.3
        await add_connection(fleet, server)

        for wanted in (20, 60):
            worker = fleet.start(home=home, **PROCESS)
            await until(lambda wanted=wanted: has_stored(fleet, wanted), within=60)  # type: ignore[misc]
            worker.kill()
            await exit_code(worker, within=5)
        assert len(await stored(fleet)) < TOTAL
        server.pause_seconds = 0
        fleet.start(home=home, **PROCESS)
        await until(lambda: has_finished(fleet, 1), within=LEASE_SECONDS + 90)

        orders = await stored(fleet)
        assert Counter(one["id"] for one in orders) == Counter(range(TOTAL))
        await check_increment(fleet, server)

    async with Engine(Settings(database_url=fleet.url)) as engine:
        assert await engine.verify() == []


async def check_increment(fleet: Fleet, server: OrdersServer) -> None:
    """Add and edit records at the provider, and wait for the scheduler's next run."""
    [row] = await fleet.sql("SELECT metadata -> 'sync' -> 'cursor' FROM syncline.connections")
    bookmark = json.loads(row[0])["bookmarks"]["orders"]["replication_key_value"]
    assert bookmark == server.orders[-1]["updated"]
    server.add(5)
    server.edit(7, total=1)
    server.asked.clear()

    await until(lambda: has_finished(fleet, 2), within=120)
    orders = await stored(fleet)
    assert len(orders) == TOTAL + 6
    assert [one["id"] for one in orders[TOTAL:]] == [*range(TOTAL, TOTAL + 5), 7]
    since = {query["since"].rstrip("Z") for query in server.asked if "since" in query}
    assert bookmark.rstrip("Z") in since
