"""What is answered over HTTP, by an engine on a real database."""

import json
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import httpx2
import pytest

from support.http import client_of
from support.world import World
from syncline import Engine, Settings
from syncline.testing.database import TemporaryServer

HOSTILE = """<script>alert(1)</script>"><img src=x onerror=alert(2)> ' {{ 7 * 1919191 }}"""


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


async def test_the_page_shows_how_things_stand(world: World, client: httpx2.AsyncClient) -> None:
    await world.engine.connections.create(
        tenant_id="acme", provider_slug="github", external_id="waiting"
    )
    troubled = await world.connection(status="needs_reauth")
    await world.sql(
        "UPDATE {schema}.connections SET status_reason = $2, external_id = 'out' WHERE id = $1",
        *(troubled.id, '{"why": "the login has expired"}'),
    )
    now = world.clock()
    await world.job(
        troubled,
        status="failed",
        started_at=now - timedelta(seconds=5),
        finished_at=now - timedelta(seconds=3),
        error='{"class": "Unauthorized", "message": "401"}',
    )
    await world.sql(
        "INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, kind)"
        " VALUES ('acme', 'github', $1, 'issue_opened')",
        troubled.id,
    )

    page = await client.get("/")

    assert page.status_code == 200
    text = " ".join(re.sub("<[^>]*>", " ", page.text).split())
    assert "1 active connections 1 needs reauth 0 running jobs 0 queued jobs 1 signals" in text
    assert "out github · acme needs reauth the login has expired when resumed" in text
    assert "Next runs Connection Due waiting github · acme now" in text
    assert "out github · acme issue_opened" in text
    assert "out github · acme incremental failed 5.0 s ago 2.0 s Unauthorized: 401" in text


async def test_other_peoples_text_is_shown_as_text(
    world: World, client: httpx2.AsyncClient
) -> None:
    connection = await world.engine.connections.create(
        tenant_id=HOSTILE, provider_slug=HOSTILE[:90], external_id=HOSTILE
    )
    now = world.clock()
    error = json.dumps({"class": HOSTILE, "message": HOSTILE})
    await world.job(connection, status="failed", started_at=now, finished_at=now, error=error)
    await world.job(connection, retry_after=now, attempts=3, started_at=now, error=error)
    await world.sql(
        "INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, kind)"
        " VALUES ($1, $1, $2, $1)",
        *(HOSTILE, connection.id),
    )
    broken = await world.connection(status="error")
    await world.sql(
        "UPDATE {schema}.connections SET status_reason = $2 WHERE id = $1",
        *(broken.id, json.dumps({"why": HOSTILE})),
    )

    page = (await client.get("/")).text

    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 10
    assert "<script" not in page
    assert "<img src=x" not in page
    assert str(7 * 1919191) not in page


async def test_the_page_survives_what_people_write_by_hand(
    world: World, client: httpx2.AsyncClient
) -> None:
    odd = await world.connection(status="error", metadata="[1, 2]")
    await world.sql("UPDATE {schema}.connections SET status_reason = '[3]' WHERE id = $1", odd.id)
    await world.job(odd, started_at=world.clock(), error='"just a text"')
    await world.sql(
        "INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, kind)"
        " VALUES ('acme', 'github', $1, 'orphan')",
        uuid4(),
    )

    page = await client.get("/")

    assert page.status_code == 200
    assert "just a text" in page.text
    assert "orphan" in page.text


async def test_without_the_database_the_page_says_so(
    client_of_lost_database: httpx2.AsyncClient,
) -> None:
    page = await client_of_lost_database.get("/")

    assert page.status_code == 503
    assert "The database does not answer" in page.text
    assert 'http-equiv="refresh"' in page.text


async def test_everything_the_page_needs_comes_from_here(client: httpx2.AsyncClient) -> None:
    page = (await client.get("/")).text
    needed = set(re.findall(r'(?:href|src)="([^"]*)"', page))

    assert needed == {"/style.css", "/icon.svg"}
    for path in needed:
        assert (await client.get(path)).status_code == 200
    assert "style=" not in page
    assert "prefers-color-scheme: dark" in (await client.get("/style.css")).text


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/style.css", "/none"])
async def test_every_answer_is_kept_from_misuse(client: httpx2.AsyncClient, path: str) -> None:
    headers = (await client.get(path)).headers

    assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'self';")
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"


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


@pytest.mark.parametrize("path", ["/redoc", "/docs/oauth2-redirect", "/v1", "/v1/keys", "/docs/"])
async def test_nothing_else_is_served(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 404


async def test_only_reading_is_possible(client: httpx2.AsyncClient) -> None:
    for path in ("/", "/healthz", "/metrics"):
        assert (await client.post(path)).status_code == 405


async def test_the_page_can_be_left_out(world: World) -> None:
    async with client_of(world.engine, page=False) as client:
        assert (await client.get("/")).status_code == 404
        assert (await client.get("/healthz")).status_code == 200
