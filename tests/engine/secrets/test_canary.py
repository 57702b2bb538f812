"""A secret is nowhere to be found but where it belongs, whatever goes wrong."""

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest

from support.commands import CommandLine
from support.httpserver import HttpServer, Reply, Seen, http_server, json_reply
from support.telemetry_events import Spans
from support.world import World, open_world
from syncline import Connection, Connector, Permanent, SyncResult, Transient
from syncline.api.app import create_app

CANARY = "c4n4ry"  # in every secret below, and in nothing else
CREDENTIALS = {
    "token": f"{CANARY}-token",
    "headers": {"x-api-key": f"{CANARY}-header/+="},
    "query": {"sig": f"{CANARY}-query&/ ü"},
    "inner": {"list": [f"{CANARY}-listed"]},
}
OAUTH = {
    "access_token": f"{CANARY}-access",
    "refresh_token": f"{CANARY}-refresh",
    "client_id": "app",
    "client_secret": f"{CANARY}-client",
    "expires_at": 1,
}
Sync = Callable[[Connector, Connection], Any]


class OwnWords(Transient):
    """An error of a connector that speaks for itself."""

    def __init__(self, secret: str) -> None:
        self.secret = secret

    def __str__(self) -> str:
        return f"broke with {self.secret}"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError(self.args[0])


async def call(connector: Connector, connection: Connection, **options: Any) -> SyncResult:
    url = connection.config["url"]
    async with connector.http(connection, base_url=url) as http:
        await http.get(**options)
    return SyncResult()


async def in_user_information(connector: Connector, connection: Connection) -> SyncResult:
    secret = connection.credentials["token"]
    url = connection.config["url"].replace("//", f"//me:{secret}@")
    async with connector.http(connection) as http:
        await http.get(f"{url}/{secret}", params={"key": secret})
    return SyncResult()


async def raising(error: BaseException) -> SyncResult:
    raise error


WAYS: dict[str, Sync] = {
    "echoed in an answer": lambda c, n: call(c, n, url="echo"),
    "in the address": in_user_information,
    "in headers of its own": lambda c, n: call(
        c, n, url="echo", headers={"x-own": n.credentials["token"]}
    ),
    "in a header that cannot be sent": lambda c, n: call(
        c, n, headers={"x-own": n.credentials["token"] + "\r\n"}
    ),
    "redirected away": lambda c, n: call(c, n, url="away"),
    "redirected to itself": lambda c, n: call(c, n, url="loop"),
    "slow": lambda c, n: call(c, n, url="slow", timeout_seconds=0.2),
    "refused": lambda c, n: call(c, n, url="refused"),
    "in an exception": lambda c, n: raising(ValueError(f"bad token {n.credentials['token']}")),
    "in a missing key": lambda c, n: raising(KeyError(n.credentials["query"]["sig"])),
    "in what is no text": lambda c, n: raising(OSError(5, n.credentials["token"])),
    "with its whole content": lambda c, n: raising(RuntimeError(dict(n.credentials))),
    "in a timeout": lambda c, n: raising(TimeoutError(n.credentials["token"])),
    "in a SyncError": lambda c, n: raising(Permanent(f"no: {n.credentials['token']}")),
    "in details": lambda c, n: raising(Transient("no", details={"a": [n.credentials["token"]]})),
    "in own words": lambda c, n: raising(OwnWords(n.credentials["token"])),
    "in an unspeakable error": lambda c, n: raising(Unspeakable(n.credentials["token"])),
    "in a group": lambda c, n: raising(
        ExceptionGroup(n.credentials["token"], [ValueError(n.credentials["token"])])
    ),
    "in an exit": lambda c, n: raising(SystemExit(n.credentials["token"])),
    "in a bad page": lambda c, n: _bad_page(n),
    "the whole connection": lambda c, n: raising(RuntimeError(f"{n!r} {n.credentials}")),
}


async def _bad_page(connection: Connection) -> Any:
    return connection.credentials


class Leaky(Connector):
    """Fails in the way that its connection is named for."""

    provider = "leaky"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        if connection.external_id == "oauth":
            return await call(self, connection)
        result: SyncResult = await WAYS[connection.external_id](self, connection)
        return result


class Streaming(Connector):
    provider = "streaming"

    async def sync(self, connection: Connection, cursor: Any) -> AsyncIterator[SyncResult]:
        yield SyncResult(next_cursor={"page": 1}, has_more=True)
        raise ValueError(connection.credentials["token"])


async def echo(seen: Seen) -> Reply:
    told = {"message": f"{seen.target} {dict(seen.headers)} {seen.body.decode()}"}
    match seen.path:
        case "/away":
            return Reply(302, headers={"location": "http://127.0.0.1:1/"})
        case "/loop":
            return Reply(302, headers={"location": seen.target})
        case "/slow":
            return Reply(200, b"x" * 1000, drip=0.05)
        case "/refused":
            return json_reply(told, 401)
        case "/token":
            return json_reply({"error": "invalid_grant", "error_description": str(told)}, 400)
    return json_reply(told, 404)


def test_the_canary_is_nowhere(
    database_url: str,
    engine_settings: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    caplog.set_level(logging.DEBUG)
    places = asyncio.run(live_through(database_url, engine_settings))
    places |= {
        "log": "\n".join(map(everything_in, caplog.records)),
        "command": every_command(database_url, tmp_path),
        "output": "".join(capfd.readouterr()),
    }

    for place, text in places.items():
        assert len(text) > 100 or place == "output", place
        assert CANARY not in text, (place, _around(text))
        assert "YzRuNHJ5" not in text, place  # as base64, at the start of a group
    assert "***" in places["table"]


async def live_through(url: str, settings: dict[str, Any]) -> dict[str, str]:
    """Fail in every way, and return what can be read afterwards, by where."""
    spans = Spans()
    async with http_server(echo) as server, AsyncExitStack() as opened:
        opened.enter_context(spans.installed())
        world = await opened.enter_async_context(
            open_world(url, connectors=[Leaky(), Streaming()], **settings)
        )
        await run_every_way(world, server)
        assert {"/echo", "/slow", "/refused", "/token"} <= {seen.path for seen in server.seen}
        assert any(CANARY in str(seen.headers) for seen in server.seen)
        return {
            "table": await dump(world),
            "metric": world.engine.telemetry.exposition().decode(),
            "API": await every_answer(world),
            "span": "\n".join(span.to_json() for span in spans.all()),
        }


async def run_every_way(own: World, server: HttpServer) -> None:
    jobs = {}
    for provider, name in [*(("leaky", name) for name in [*WAYS, "oauth"]), ("streaming", "1")]:
        connection = await own.engine.connections.create(
            tenant_id="acme",
            provider_slug=provider,
            external_id=name,
            config={"url": server.url},
            credentials=(
                {**OAUTH, "token_url": f"{server.url}/token"} if name == "oauth" else CREDENTIALS
            ),
        )
        jobs[name] = (await own.engine.trigger(connection.id)).id
    await own.engine.run_due()
    for name, job_id in jobs.items():
        assert (await own.get_job(job_id)).error is not None, name


async def dump(own: World) -> str:
    """Return every table of the schema as a dump would hold it."""
    session = await asyncpg.connect(own.url)
    try:
        tables = await session.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = $1", own.settings.schema
        )
        texts = []
        for row in tables:
            rows = bytearray()

            async def take(part: bytes, rows: bytearray = rows) -> None:
                rows.extend(part)

            name = row["tablename"]
            await session.copy_from_table(name, schema_name=own.settings.schema, output=take)
            texts.append(f"{name}\n{rows.decode()}")
        return "\n".join(texts)
    finally:
        await session.close()


async def every_answer(own: World) -> str:
    """Return what is answered over HTTP to whoever asks for everything that has no parameters."""
    app = create_app(own.engine)
    paths = {getattr(route, "path", "") for route in app.routes}
    transport = httpx2.ASGITransport(app)
    plain = sorted(path for path in paths if "{" not in path and "stream" not in path)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        return "\n".join([f"{path}: {(await client.get(path)).text}" for path in plain])


def every_command(url: str, folder: Path) -> str:
    """Return what commands print: lists of everything, and a few rows in each form.

    They read nothing but the tables, which hold no secret in the open.
    """
    syncline = CommandLine(url, folder)
    connections = syncline.json("connections", "list")
    jobs = syncline.json("jobs", "list")
    texts = [str(connections), str(jobs)]
    for command in (
        ("connections", "list"),
        ("jobs", "list"),
        *(("connections", "show", one["id"]) for one in connections[:3]),
        *(("jobs", "show", one["id"]) for one in jobs[:3]),
        *(("explain", one["id"]) for one in connections[:3]),
        ("verify",),
        ("jobs", "list", "--debug", "--log-level", "debug"),
    ):
        result = syncline(*command)
        texts.append(result.output)
    return "\n".join(texts)


def everything_in(record: logging.LogRecord) -> str:
    told = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
    return f"{record.getMessage()} {vars(record)} {told}"


def _around(text: str) -> str:
    place = text.index(CANARY)
    return text[max(0, place - 200) : place + 50]
