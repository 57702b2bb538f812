"""A connector's HTTP client in an engine: its settings, errors, metrics and spans."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import syncline.http
from support.httpserver import Reply, http_server, json_reply
from support.telemetry_events import Spans
from support.world import World
from syncline import Connection, Connector, Settings, SyncResult
from syncline.telemetry.engine import Telemetry

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "http.md"


class Desk(Connector):
    provider = "desk"

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        async with self.http(connection, base_url=connection.config["url"]) as http:
            answer = await http.get("tickets")
        return SyncResult(next_cursor=answer.json())


class PlainDesk(Connector):
    provider = "plain"

    def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        with self.blocking_http(connection, base_url=connection.config["url"]) as http:
            return SyncResult(next_cursor=http.get("tickets").json())


async def run_against(world: World, connector: Connector, url: str, allowed: list[str]) -> Any:
    """Run one job of a connection to that address and return its connection and job."""
    async with world.another_engine([connector], http={"allow_private": allowed}) as own:
        connection = await own.engine.connections.create(
            tenant_id="acme",
            provider_slug=connector.provider,
            external_id="1",
            config={"url": url},
        )
        job = await own.engine.trigger(connection.id)
        await own.engine.run_due()
        found = await own.engine.connections.get(connection.id)
        return found, await own.engine.jobs.get(job.id), own


@pytest.mark.parametrize("connector", [Desk(), PlainDesk()], ids=["async", "plain"])
async def test_a_connector_calls_its_provider(world: World, connector: Connector) -> None:
    async with http_server([json_reply({"at": 7})]) as server:
        connection, _, own = await run_against(world, connector, server.url, [connector.provider])

    assert connection.metadata["sync"]["cursor"] == {"at": 7}
    slug = connector.provider
    labels = {"provider_slug": slug, "method": "GET", "outcome": "2xx"}
    assert own.metric("sync_http_requests_total", **labels) == 1
    assert own.metric("sync_http_request_seconds_count", provider_slug=slug) == 1
    assert own.metric("sync_http_response_bytes_total", provider_slug=slug) == 9


async def test_private_addresses_are_refused_unless_the_provider_is_named(world: World) -> None:
    async with http_server([]) as server:
        connection, job, own = await run_against(world, Desk(), server.url, ["other"])

    assert server.seen == []
    assert connection.status == "error"
    assert "127.0.0.1, which is not public; add the provider to" in job.error["message"]
    labels = {"provider_slug": "desk", "method": "GET", "outcome": "refused"}
    assert own.metric("sync_http_requests_total", **labels) == 1


async def test_a_rate_limit_reaches_the_queue_with_its_hint(world: World) -> None:
    async with http_server([Reply(429, headers={"retry-after": "300"})]) as server:
        _, job, _ = await run_against(world, Desk(), server.url, ["*"])

    assert (job.error["class"], job.error["hint"]) == ("RateLimited", 300)


async def test_an_expired_login_stops_the_connection(world: World) -> None:
    async with http_server([json_reply({"message": "token expired"}, 401)]) as server:
        connection, _, _ = await run_against(world, Desk(), server.url, ["desk"])

    assert connection.status == "needs_reauth"
    assert connection.status_reason["why"].endswith("answered 401: token expired")


@pytest.mark.parametrize(
    ("status", "failure", "outcome"),
    [
        (200, None, "2xx"),
        (204, None, "2xx"),
        (302, None, "3xx"),
        (304, None, "304"),
        (401, None, "401"),
        (418, None, "4xx"),
        (429, None, "429"),
        (599, None, "5xx"),
        (999, None, "error"),
        (None, TimeoutError(), "timeout"),
        (200, ConnectionError(), "error"),
    ],
)
def test_requests_are_counted_by_outcome(
    status: int | None, failure: Exception | None, outcome: str
) -> None:
    spans = Spans()
    telemetry = Telemetry(tracer=spans.tracer)

    with suppress(OSError), telemetry.http.request("desk", "BREW", "desk.example") as call:
        call.status = status
        if failure:
            raise failure

    labels = {"provider_slug": "desk", "method": "other", "outcome": outcome}
    assert telemetry.registry.get_sample_value("sync_http_requests_total", labels) == 1
    attributes = spans.only().attributes or {}
    assert attributes.get("http.response.status_code") == status
    assert attributes["server.address"] == "desk.example"


def test_allowed_providers_are_separated_by_commas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SYNCLINE_HTTP__ALLOW_PRIVATE", "git, feed")

    assert Settings().http.allow_private == ["git", "feed"]


async def test_the_examples_of_the_guide_run() -> None:
    namespace: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.M | re.S):
        exec(compile(block, "http.md", "exec"), namespace)

    from uuid import uuid4

    connection = Connection(
        id=uuid4(),
        tenant_id="acme",
        provider_slug="tickets",
        external_id="1",
        status="active",
        config={"url": "http://localhost/api"},
        metadata={},
    )
    page = await namespace["tickets"].sync(connection, None)
    assert page.next_cursor == {"since": "1970-01-01T00:00:00Z"}


@pytest.mark.parametrize("name", syncline.http.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(syncline.http, name)


def test_an_unknown_option_of_a_client_is_refused() -> None:
    with pytest.raises(TypeError, match="no option 'base_ur'"):
        syncline.http.HttpClient(syncline.http.HttpEnvironment(), base_ur="x")  # type: ignore[call-arg]
