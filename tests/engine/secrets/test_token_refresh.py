"""An expired access token is renewed once, stored before use, and given up on only for good."""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from support.httpserver import HttpServer, Reply, http_server, json_reply
from support.tokens import TokenServer
from support.world import World, open_world
from syncline import Connection, Connector, SyncResult

TESTS = Path(__file__).parents[2]


class Desk(Connector):
    provider = "desk"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        async with self.http(connection, base_url=connection.config["url"]) as http:
            return SyncResult(next_cursor=(await http.get("/me")).json())


class PlainDesk(Connector):
    provider = "plain"

    def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        with self.blocking_http(connection, base_url=connection.config["url"]) as http:
            return SyncResult(next_cursor=http.get("/me").json())


@pytest.fixture
def tokens() -> TokenServer:
    return TokenServer()


@pytest.fixture
async def server(tokens: TokenServer) -> AsyncIterator[HttpServer]:
    async with http_server(tokens.answer) as server:
        yield server


@pytest.fixture
async def own(database_url: str, engine_settings: dict[str, Any]) -> AsyncIterator[World]:
    async with open_world(database_url, connectors=[Desk(), PlainDesk()], **engine_settings) as own:
        yield own


async def add(own: World, server: HttpServer, credentials: Any, provider: str = "desk") -> Any:
    return await own.engine.connections.create(
        tenant_id="acme",
        provider_slug=provider,
        external_id=str(uuid4()),
        config={"url": server.url},
        credentials=credentials,
    )


async def run(own: World, connection: Connection) -> tuple[Connection, Any]:
    """Run one job; return its connection and the job afterwards."""
    job = await own.engine.trigger(connection.id)
    await own.engine.run_due()
    return await own.engine.connections.get(connection.id), await own.get_job(job.id)


@pytest.mark.parametrize("provider", ["desk", "plain"])
async def test_an_expired_token_is_renewed_before_it_is_used(
    own: World, server: HttpServer, tokens: TokenServer, provider: str
) -> None:
    connection = await add(own, server, tokens.credentials(server.url), provider)

    for _ in range(2):
        found, _ = await run(own, connection)
        assert found.metadata["sync"]["cursor"] == {"me": "access-1"}

    assert [seen.path for seen in server.seen] == ["/token", "/me", "/me"]


async def test_a_token_refused_early_is_renewed_and_the_call_made_again(
    own: World, server: HttpServer, tokens: TokenServer
) -> None:
    later = own.clock().timestamp() + 10**9
    connection = await add(own, server, tokens.credentials(server.url, expires_at=later))

    found, _ = await run(own, connection)

    assert found.metadata["sync"]["cursor"] == {"me": "access-1"}
    assert [seen.path for seen in server.seen] == ["/me", "/token", "/me"]


async def test_client_credentials_get_a_token(
    own: World, server: HttpServer, tokens: TokenServer
) -> None:
    credentials = tokens.credentials(server.url, grant_type="client_credentials")
    del credentials["refresh_token"], credentials["access_token"]

    found, _ = await run(own, await add(own, server, credentials))

    assert found.metadata["sync"]["cursor"] == {"me": "access-1"}


async def test_many_runs_in_two_processes_renew_once(
    own: World, server: HttpServer, tokens: TokenServer
) -> None:
    tokens.delay = 0.3  # long enough for all of them to find the token expired
    keys = own.settings.secret_keys
    assert keys is not None
    connection = await add(own, server, tokens.credentials(server.url))
    arguments = (own.url, keys.get_secret_value(), str(connection.id), f"{server.url}/me", "50")

    workers = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "support.token_refresh_process", *arguments),
            cwd=TESTS,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert await worker.stdout.readline() == b"ready\n"
    answers = await asyncio.gather(*(worker.communicate(b"go\n") for worker in workers))

    assert [out.split() for out, _ in answers] == [[b"access-1"] * 50] * 2
    assert tokens.refreshes == 1


async def test_a_revoked_grant_stops_the_connection_with_its_reason(
    own: World, server: HttpServer, tokens: TokenServer
) -> None:
    revoked = tokens.credentials(server.url, refresh_token="spent-long-ago")
    connection = await add(own, server, revoked)
    await own.engine.connections.set_cursor(connection.id, {"me": "before"})

    stopped, job = await run(own, connection)

    assert (stopped.status, job.error["class"]) == ("needs_reauth", "Unauthorized")
    why = "the provider refused to refresh the access token (invalid_grant: the token was revoked)"
    assert stopped.status_reason["why"] == why
    assert tokens.refreshes == 1

    await own.engine.connections.set_credentials(connection.id, tokens.credentials(server.url))
    resumed, _ = await run(own, connection)
    assert (resumed.status, resumed.metadata["sync"]["cursor"]) == ("active", {"me": "access-2"})


async def test_newer_credentials_count_more_than_a_refusal(
    own: World, server: HttpServer, tokens: TokenServer
) -> None:
    """Somebody signed in again while the old grant was being refused."""
    connection = await add(
        own, server, tokens.credentials(server.url, refresh_token="spent-long-ago")
    )
    newer = tokens.credentials(server.url, access_token="access-0", expires_at=None)

    async def sign_in() -> None:
        await own.engine.connections.set_credentials(connection.id, newer)

    tokens.meanwhile = sign_in

    found, _ = await run(own, connection)

    assert (found.status, found.metadata["sync"]["cursor"]) == ("active", {"me": "access-0"})


async def test_newer_credentials_are_not_overwritten_by_a_renewal(
    own: World, server: HttpServer, tokens: TokenServer
) -> None:
    connection = await add(own, server, tokens.credentials(server.url))

    async def sign_in() -> None:
        tokens.meanwhile = None
        newer = {"token": "access-1", "headers": {"x-signed-in": "by hand"}}
        await own.engine.connections.set_credentials(connection.id, newer)

    tokens.meanwhile = sign_in
    await run(own, connection)
    server.seen.clear()

    await run(own, connection)

    assert [seen.headers.get("x-signed-in") for seen in server.seen] == ["by hand"]


async def test_what_else_a_token_endpoint_may_answer(
    own: World, server: HttpServer, tokens: TokenServer
) -> None:
    failures = [
        (Reply(503), "Transient"),
        (Reply(429, headers={"retry-after": "60"}), "RateLimited"),
        (Reply(400, b"<html>"), "Transient"),
        (Reply(401, b"nope"), "Transient"),
        (Reply(200, b"<html>"), "Transient"),
        (json_reply({"token_type": "bearer"}), "Transient"),
        (json_reply({"error": "invalid_client"}, 401), "Permanent"),
        (Reply(302, headers={"location": "file:///etc/passwd"}), "Permanent"),
    ]
    for failure, error_class in failures:
        tokens.failure = failure
        connection = await add(own, server, tokens.credentials(server.url))

        _, job = await run(own, connection)

        assert job.error["class"] == error_class, failure
        assert "canary" not in str(job.error)
    left = await own.sql("SELECT renewing, version FROM {schema}.credentials")
    assert [tuple(row) for row in left] == [(None, 1)] * len(failures)


async def test_a_lease_is_waited_for_and_taken_over_once_it_lapsed(
    own: World, server: HttpServer, tokens: TokenServer
) -> None:
    connection = await add(own, server, tokens.credentials(server.url))
    await own.sql(
        "UPDATE {schema}.credentials SET renewing = $1, renewing_until = $2",
        *(uuid4(), own.clock() + timedelta(seconds=45)),
    )
    await own.engine.trigger(connection.id)
    running = asyncio.create_task(own.engine.run_due())
    await asyncio.sleep(0.3)  # a refresh that waited for nobody would take a few milliseconds
    assert tokens.refreshes == 0

    own.clock.advance(seconds=46)
    await running

    assert tokens.refreshes == 1


async def test_a_token_is_stored_though_its_run_was_cancelled(
    own: World, server: HttpServer, tokens: TokenServer
) -> None:
    tokens.delay = 0.1
    connection = await add(own, server, tokens.credentials(server.url))
    await own.engine.trigger(connection.id)
    async with own.another_engine() as leaving:
        running = asyncio.create_task(leaving.engine.run_due())
        await tokens.asked.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    stored = await own.sql("SELECT version, renewing FROM {schema}.credentials")
    assert [tuple(row) for row in stored] == [(2, None)]
    found, _ = await run(own, connection)
    assert found.metadata["sync"]["cursor"] == {"me": "access-1"}
    assert tokens.refreshes == 1


async def test_a_token_endpoint_at_a_private_address_is_refused(
    world: World, server: HttpServer, tokens: TokenServer
) -> None:
    async with world.another_engine([Desk()], http={"allow_private": []}) as strict:
        for url in (f"https://127.0.0.1:{server.port}", server.url):
            connection = await strict.engine.connections.create(
                tenant_id="acme",
                provider_slug="desk",
                external_id=url,
                config={"url": "https://desk.example"},
                credentials=tokens.credentials(url),
            )
            _, job = await run(strict, connection)
            assert job.error["class"] == "Permanent"
            assert "not public" in job.error["message"] or "not https" in job.error["message"]

    assert server.seen == []
