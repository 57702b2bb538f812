"""A real low-code manifest, run by airbyte-cdk against a local server, killed twice."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.orders_server import OrdersServer, serve_orders
from support.processes import LEASE_SECONDS, Fleet, exit_code, until
from syncline import Engine, Settings
from syncline.children.sandbox import why_unavailable

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(900)]

BUILD = Path(__file__).parents[2] / "build" / "integration" / "airbyte-cdk"
TOTAL = 240
TIME = "%Y-%m-%dT%H:%M:%SZ"
SINCE = {"type": "RequestOption", "inject_into": "request_parameter", "field_name": "since"}
PAGE = {**SINCE, "field_name": "page"}
ORDERS = {
    "type": "DeclarativeStream",
    "name": "orders",
    "primary_key": ["id"],
    "schema_loader": {"type": "InlineSchemaLoader", "schema": {"type": "object"}},
    "retriever": {
        "type": "SimpleRetriever",
        "requester": {
            "type": "HttpRequester",
            "url_base": "{{ config['url'] }}",
            "path": "/orders",
        },
        "record_selector": {
            "type": "RecordSelector",
            "extractor": {"type": "DpathExtractor", "field_path": ["items"]},
        },
        "paginator": {
            "type": "DefaultPaginator",
            "page_token_option": PAGE,
            "pagination_strategy": {
                "type": "CursorPagination",
                "cursor_value": "{{ response.get('next') }}",
                "stop_condition": "{{ not response.get('next') }}",
            },
        },
    },
    "incremental_sync": {
        "type": "DatetimeBasedCursor",
        "cursor_field": "updated",
        "datetime_format": TIME,
        "cursor_datetime_formats": [TIME],
        "start_datetime": {
            "type": "MinMaxDatetime",
            "datetime": "2025-01-01T00:00:00Z",
            "datetime_format": TIME,
        },
        "start_time_option": SINCE,
    },
}
MANIFEST = {
    "version": "6.0.0",
    "type": "DeclarativeSource",
    "check": {"type": "CheckStream", "stream_names": ["orders"]},
    "streams": [ORDERS],
    "spec": {
        "type": "Spec",
        "connection_specification": {
            "type": "object",
            "required": ["url"],
            "properties": {"url": {"type": "string"}},
        },
    },
}


@pytest.fixture(scope="session")
def path_with_cdk() -> str:
    """A PATH with the program that runs manifests."""
    if not (BUILD / "bin" / "source-declarative-manifest").exists():
        subprocess.run([sys.executable, "-m", "venv", BUILD], check=True)
        subprocess.run([BUILD / "bin" / "pip", "install", "--quiet", "airbyte-cdk"], check=True)
    return f"{BUILD / 'bin'}:{os.environ['PATH']}"


@pytest.fixture
def fleet(
    database_url: str, tmp_path: Path, path_with_cdk: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Fleet]:
    monkeypatch.setenv("PATH", path_with_cdk)
    fleet = Fleet(database_url, tmp_path)
    yield fleet
    fleet.stop()
    print(fleet.logs())  # shown when the test has failed


async def stored(fleet: Fleet) -> list[Any]:
    rows = await fleet.sql("SELECT payload FROM syncline.signals WHERE kind = 'orders' ORDER BY id")
    return [json.loads(row["payload"]) for row in rows]


async def has_stored(fleet: Fleet, wanted: int) -> bool:
    return await fleet.count("signals", "kind = 'orders'") >= wanted


async def has_finished(fleet: Fleet, wanted: int) -> bool:
    return await fleet.count("sync_jobs", "status = 'succeeded'") >= wanted


async def test_a_real_manifest_loses_and_doubles_nothing(fleet: Fleet) -> None:
    settings = {
        "scheduler__jitter_pct_max": 0,
        "rate_limit__base_seconds": 1,
        "http__allow_private": "airbyte",  # its server is on this host
        "foreign__unsandboxed": "airbyte" if why_unavailable() else "",
    }
    with serve_orders() as server:
        server.add(TOTAL)
        server.pause_seconds = 0.3
        config = {"manifest": MANIFEST, "settings": {"url": server.url}, "page_size": 20}
        await fleet.sql(
            "INSERT INTO syncline.connections"
            " (tenant_id, provider_slug, external_id, config, metadata)"
            " VALUES ('acme', 'airbyte', 'a', $1, '{\"sync\": {\"interval_seconds\": 60}}')",
            json.dumps(config),
        )
        for wanted in (20, 60):
            worker = fleet.start(**settings)
            await until(lambda wanted=wanted: has_stored(fleet, wanted), within=90)  # type: ignore[misc]
            worker.kill()
            await exit_code(worker, within=5)
        server.pause_seconds = 0
        fleet.start(**settings)
        await until(lambda: has_finished(fleet, 1), within=LEASE_SECONDS + 90)
        assert Counter(one["id"] for one in await stored(fleet)) == Counter(range(TOTAL))
        await check_increment(fleet, server)

    async with Engine(Settings(database_url=fleet.url)) as engine:
        assert await engine.verify() == []


async def check_increment(fleet: Fleet, server: OrdersServer) -> None:
    """Add and edit records at the provider, and wait for the scheduler's next run."""
    server.add(5)
    server.edit(7, total=1)
    server.asked.clear()

    await until(lambda: has_finished(fleet, 2), within=120)
    found = await stored(fleet)
    assert [one["id"] for one in found[TOTAL:]] == [*range(TOTAL, TOTAL + 5), 7]
    assert {query["since"] for query in server.asked} == {"2025-01-01T00:03:59Z"}
