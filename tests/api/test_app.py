"""What is answered over HTTP, by an engine on a real database."""

import asyncio
import re
from collections.abc import AsyncIterator

import asyncpg
import httpx2
import pytest

from support.fakes import eventually
from support.http import client_of
from support.world import World, at
from syncline import Engine, Settings, Signal, SyncResult
from syncline.testing.database import TemporaryServer


@pytest.fixture
async def client(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(world.engine) as client:
        yield client


@pytest.fixture
async def client_of_lost_database(server: TemporaryServer) -> AsyncIterator[httpx2.AsyncClient]:
    """An engine whose database was there when it was opened, and then no more."""
    url = server.create_database()
    async with Engine(Settings(database_url=url)) as engine, client_of(engine) as client:
        await engine.migrate()
        server.drop_database(url)
        yield client


async def test_alive_and_ready(client: httpx2.AsyncClient) -> None:
    alive, ready = await client.get("/healthz"), await client.get("/readyz")

    assert (alive.status_code, alive.json()) == (200, {"status": "alive"})
    assert (ready.status_code, ready.json()) == (200, {"status": "ready"})


async def test_without_the_database_it_is_alive_but_not_ready(
    client_of_lost_database: httpx2.AsyncClient,
) -> None:
    alive = await client_of_lost_database.get("/healthz")
    ready = await client_of_lost_database.get("/readyz")

    assert alive.status_code == 200
    assert ready.status_code == 503
    assert ready.json()["status"] == "not ready"
    assert list(ready.json()["ill"]) == ["database"]


async def test_a_database_that_is_read_only_is_not_ready(
    server: TemporaryServer,
) -> None:
    """Nothing can be stored there: whoever balances loads should look elsewhere."""
    url = server.create_database()
    async with Engine(Settings(database_url=url)) as engine, client_of(engine) as client:
        await engine.migrate()
        assert (await client.get("/readyz")).status_code == 200
        session = await asyncpg.connect(url)
        name = await session.fetchval("SELECT quote_ident(current_database())")
        await session.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        await session.close()
        await engine._pool._pool.expire_connections()

        ready = await client.get("/readyz")

    assert ready.status_code == 503
    assert "read-only" in ready.json()["ill"]["database"]


async def test_what_cannot_be_settled_is_not_ready(
    world: World, client: httpx2.AsyncClient
) -> None:
    """A right was revoked, or the disk is full: the reason is told while it lasts."""
    await world.sql("ALTER TABLE {schema}.signals RENAME TO elsewhere")
    connection = await world.connection()
    await world.job(connection)
    world.script(SyncResult([Signal("seen", at("11:00"), {})]))
    running = asyncio.create_task(world.engine.run_due())
    await eventually(lambda: world.engine._worker.settle_queue.trouble is not None)

    ready = await client.get("/readyz")
    await world.sql("ALTER TABLE {schema}.elsewhere RENAME TO signals")
    await running

    assert ready.status_code == 503
    assert "signals" in ready.json()["ill"]["settle"]
    assert (await client.get("/readyz")).status_code == 200
    assert len(await world.signals(connection)) == 1


async def test_what_is_ill_is_told_without_secrets(
    world: World, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def health() -> dict[str, str]:
        return {"database": "cannot connect to postgresql://me:hunter2@db/app\n" + "x" * 5000}

    monkeypatch.setattr(world.engine, "health", health)

    ready, page = await client.get("/readyz"), await client.get("/")

    assert ready.status_code == 503
    assert "hunter2" not in ready.text + page.text
    assert len(ready.text) < 500
    assert "Not ready" in page.text


async def test_metrics(world: World, client: httpx2.AsyncClient) -> None:
    await world.connection()
    await world.tick()

    metrics = await client.get("/metrics")

    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert re.search(r"^sync_scheduler_jobs_scheduled_total\{.*\} 1\.0$", metrics.text, re.M)


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/style.css", "/none"])
async def test_every_answer_is_kept_from_misuse(client: httpx2.AsyncClient, path: str) -> None:
    headers = (await client.get(path)).headers

    assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'self';")
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("localhost:8080", 200),
        ("[::1]:8080", 200),
        ("rebound.example", 400),
        ("", 400),
    ],
)
async def test_a_name_that_only_leads_here_is_refused(
    client: httpx2.AsyncClient, host: str, status: int
) -> None:
    assert (await client.get("/", headers={"Host": host})).status_code == status


@pytest.mark.parametrize(
    "path", ["/redoc", "/docs/oauth2-redirect", "/v1", "/v1/secrets", "/docs/"]
)
async def test_nothing_else_is_served(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 404


async def test_only_reading_is_possible(client: httpx2.AsyncClient) -> None:
    for path in ("/", "/healthz", "/metrics"):
        assert (await client.post(path)).status_code == 405


async def test_the_page_can_be_left_out(world: World) -> None:
    async with client_of(world.engine, page=False) as client:
        assert (await client.get("/")).status_code == 404
        assert (await client.get("/healthz")).status_code == 200
