"""What is answered over HTTP, by an engine on a real database."""

import asyncio
import re

import httpx2

from support.fakes import IllEngine, eventually
from support.http import client_of
from support.world import World, at, open_world
from syncline import Settings, Signal, SyncResult

Client = httpx2.AsyncClient


async def test_alive_and_ready(local: Client) -> None:
    alive, ready = await local.get("/healthz"), await local.get("/readyz")

    assert (alive.status_code, alive.json()) == (200, {"status": "alive"})
    assert (ready.status_code, ready.json()) == (200, {"status": "ready"})


async def test_without_the_database_it_is_alive_but_not_ready(
    client_of_lost_database: Client,
) -> None:
    alive = await client_of_lost_database.get("/healthz")
    ready = await client_of_lost_database.get("/readyz")

    assert alive.status_code == 200
    assert ready.status_code == 503
    assert ready.json()["status"] == "not ready"
    assert list(ready.json()["ill"]) == ["database"]


async def test_a_database_that_is_read_only_is_not_ready(database_url: str) -> None:
    """Nothing can be stored there: a load balancer should send requests elsewhere."""
    url = f"{database_url}&default_transaction_read_only=on"
    async with open_world(url) as world, client_of(world.engine) as client:
        ready = await client.get("/readyz")

    assert ready.status_code == 503
    assert "read-only" in ready.json()["ill"]["database"]


async def test_what_cannot_be_settled_is_not_ready(world: World, local: Client) -> None:
    """A right was revoked, or the disk is full: the reason is told while it lasts."""
    await world.sql("ALTER TABLE {schema}.signals RENAME TO elsewhere")
    connection = await world.connection()
    await world.job(connection)
    world.script(SyncResult([Signal("seen", at("11:00"), {})]))
    running = asyncio.create_task(world.engine.run_due())

    async def is_ready() -> bool:
        return (await local.get("/readyz")).status_code == 200

    async def is_ill() -> bool:
        return not await is_ready()

    await eventually(is_ill)

    ready = await local.get("/readyz")
    await world.sql("ALTER TABLE {schema}.elsewhere RENAME TO signals")
    await running

    assert ready.status_code == 503
    assert "signals" in ready.json()["ill"]["settle"]
    assert await is_ready()
    assert len(await world.signals(connection)) == 1


async def test_reasons_for_not_being_ready_hold_no_secrets(database_url: str) -> None:
    settings = Settings(database_url=database_url)
    illness = "cannot connect to postgresql://me:hunter2@db/app\n" + "x" * 5000
    async with IllEngine(settings, illness) as engine, client_of(engine) as client:
        ready, page = await client.get("/readyz"), await client.get("/")

    assert ready.status_code == 503
    assert "hunter2" not in ready.text + page.text
    assert len(ready.text) < 500
    assert "Not ready" in page.text


async def test_metrics(world: World, local: Client) -> None:
    await world.connection()
    await world.tick()

    metrics = await local.get("/metrics")

    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert re.search(r"^sync_scheduler_jobs_scheduled_total\{.*\} 1\.0$", metrics.text, re.M)


async def test_every_answer_is_kept_from_misuse(local: Client) -> None:
    for path in ("/", "/healthz", "/metrics", "/style.css", "/none"):
        headers = (await local.get(path)).headers
        policy = headers["content-security-policy"]

        assert policy.startswith("default-src 'none'; style-src 'self';"), path
        assert "frame-ancestors 'none'" in policy, path
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["cache-control"] == "no-store", path
        assert headers["referrer-policy"] == "same-origin", path


async def test_a_name_that_only_leads_here_is_refused(local: Client) -> None:
    for host, status in (
        ("127.0.0.1", 200),
        ("localhost:8080", 200),
        ("[::1]:8080", 200),
        ("rebound.example", 400),
        ("", 400),
    ):
        assert (await local.get("/", headers={"Host": host})).status_code == status, host


async def test_nothing_else_is_served(local: Client) -> None:
    for path in ("/redoc", "/docs/oauth2-redirect", "/v1", "/v1/secrets", "/docs/"):
        assert (await local.get(path)).status_code == 404, path


async def test_only_reading_is_possible(local: Client) -> None:
    for path in ("/", "/healthz", "/metrics"):
        assert (await local.post(path)).status_code == 405


async def test_the_page_can_be_left_out(world: World) -> None:
    async with client_of(world.engine, page=False) as client:
        assert (await client.get("/")).status_code == 404
        assert (await client.get("/healthz")).status_code == 200
