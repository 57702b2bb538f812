"""What tenants' keys may connect: what runs nothing here, and what an operator names."""

from collections.abc import AsyncIterator
from typing import Any, ClassVar
from uuid import uuid4

import httpx2
import pytest

from support.http import client_of
from support.world import World
from syncline import Connection, Connector, SyncResult
from syncline.connectors.foreign.airbyte import AirbyteManifest
from syncline.connectors.foreign.connector import ForeignConnector
from syncline.connectors.foreign.singer import SingerTap
from syncline.sdk.registry import connectors_by_provider, why_not_for_tenants
from syncline.testing import ScriptedConnector

Client = httpx2.AsyncClient


class Files(Connector):
    """Reads this host."""

    provider = "files"
    local: ClassVar[bool] = True

    def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        return SyncResult()


class Tap(Files):
    """Runs a program that cannot be confined here."""

    provider = "tap"

    def why_not_for_tenants(self) -> str | None:
        return "this host has no network namespaces"


@pytest.fixture
async def operator(world: World) -> AsyncIterator[Client]:
    """An operator of an engine that knows a local connector, and one that cannot be confined."""
    world.engine.providers |= {"files": Files(), "tap": Tap()}
    _, secret = await world.engine.access.create_key("ann")
    async with client_of(world.engine, secret) as client:
        yield client


def body(provider: str, **more: Any) -> dict[str, Any]:
    return {"provider_slug": provider, "external_id": str(uuid4()), **more}


async def test_a_local_provider_is_refused_until_it_is_named(
    world: World, operator: Client, acme: Client
) -> None:
    answer = await acme.post("/v1/connections", json=body("files"))

    assert answer.status_code == 403
    assert answer.json()["type"] == "/docs#problem-provider"
    assert answer.json()["detail"] == (
        "tenants' keys may not connect the provider 'files': its connector runs a program or reads"
        " its host; an operator can name it in api.tenant_providers"
    )
    assert (await acme.post("/v1/connections", json=body("github"))).status_code == 201
    assert await world.engine.connections.list(provider_slug="files") == []


@pytest.mark.engine(api={"tenant_providers": ["files", "tap", "elsewhere"]})
async def test_the_setting_names_what_tenants_may_connect_and_nothing_else(
    operator: Client, acme: Client
) -> None:
    async def status(provider: str) -> int:
        address = "/v1/connections?force=true"  # which widens nothing of this
        return (await acme.post(address, json=body(provider))).status_code

    assert [await status(one) for one in ("files", "elsewhere")] == [201, 201]
    assert [await status(one) for one in ("github", "unknown")] == [403, 403]
    refused = await acme.post("/v1/connections", json=body("tap"))
    assert refused.status_code == 403  # whatever the setting says
    assert "this host has no network namespaces" in refused.json()["detail"]


async def test_a_provider_that_nobody_here_knows_is_refused(operator: Client, acme: Client) -> None:
    answer = await acme.post("/v1/connections", json=body("unknown"))

    assert answer.status_code == 403
    assert "'unknown': no connector here serves it" in answer.json()["detail"]


async def test_one_refused_provider_refuses_the_whole_list(
    world: World, operator: Client, acme: Client
) -> None:
    many = {"connections": [body("github"), body("files"), body("github"), body("tap")]}

    answer = await acme.post("/v1/connections/bulk", json=many)

    assert answer.status_code == 403
    fields = [one["field"] for one in answer.json()["errors"]]
    assert fields == ["connections[1].provider_slug", "connections[3].provider_slug"]
    assert await world.engine.connections.list() == []


async def test_what_a_refused_connector_is_given_cannot_be_changed(
    world: World, operator: Client, acme: Client
) -> None:
    connection = await world.connection(tenant="acme", provider="files")
    address = f"/v1/connections/{connection.id}"

    for change in ({"config": {"path": "/"}}, {"cursor": {"at": 1}}):
        assert (await acme.patch(address, json=change)).status_code == 403
    secret = {"credentials": {"token": "t"}}
    assert (await acme.put(f"{address}/credentials", json=secret)).status_code == 403
    unchanged = await world.engine.connections.get(connection.id)
    assert (unchanged.config, unchanged.metadata) == (connection.config, connection.metadata)

    assert (await acme.get(address)).status_code == 200
    assert (await acme.patch(address, json={"interval_seconds": 60})).status_code == 200
    for action, status in (("sync", 202), ("pause", 200), ("resume", 200)):
        assert (await acme.post(f"{address}/{action}")).status_code == status
    assert (await acme.delete(f"{address}/credentials")).status_code == 200
    assert (await acme.delete(address)).status_code == 204


async def test_a_foreign_connection_of_a_refused_provider_does_not_exist(
    world: World, operator: Client, acme: Client
) -> None:
    connection = await world.connection(tenant="birch", provider="files")
    address = f"/v1/connections/{connection.id}"

    assert (await acme.patch(address, json={"config": {}})).status_code == 404
    secret = {"credentials": {"token": "t"}}
    assert (await acme.put(f"{address}/credentials", json=secret)).status_code == 404


@pytest.mark.engine(api={"tenant_providers": []})
async def test_operators_may_connect_every_provider(world: World, operator: Client) -> None:
    for provider in ("files", "tap", "unknown", "github"):
        new = body(provider, tenant_id="acme")
        created = await operator.post("/v1/connections?force=true", json=new)
        assert created.status_code == 201
        changed = await operator.patch(
            f"/v1/connections/{created.json()['id']}", json={"config": {"a": 1}}
        )
        assert changed.status_code == 200


@pytest.mark.engine(api={"tenant_providers": ["tap"]})
async def test_a_living_worker_that_cannot_confine_a_provider_refuses_it_for_all(
    world: World, acme: Client
) -> None:
    async def status() -> int:
        return (await acme.post("/v1/connections?force=true", json=body("tap"))).status_code

    assert await status() == 201  # named, and nobody objects
    async with world.another_engine([ScriptedConnector("github"), Tap()]) as worker:
        heartbeat = worker.engine._upkeep.heartbeat
        heartbeat.enter(scheduler=False, executor=True)
        await heartbeat.beat()
        refused = await acme.post("/v1/connections", json=body("tap"))
        [told] = [
            one.found
            for one in await world.engine.doctor.diagnose()
            if one.name == "tenants' providers"
        ]
        assert told == "api.tenant_providers names tap, which a worker cannot confine"
        assert refused.status_code == 403
        assert "a worker cannot confine it" in refused.json()["detail"]

        world.clock.advance(seconds=21)  # it was not heard of since: dead
        assert await status() == 201


def test_a_connector_whose_check_fails_counts_as_unconfined() -> None:
    class Broken(Files):
        def why_not_for_tenants(self) -> str | None:
            raise AttributeError("no such thing")

    assert why_not_for_tenants({"files": Broken(), "github": ScriptedConnector("github")}) == {
        "files": "checking whether it can be confined failed (AttributeError)"
    }


def test_connectors_that_run_programs_or_open_sockets_declare_it() -> None:
    found = connectors_by_provider([])
    foreign = {slug for slug, one in found.items() if isinstance(one, ForeignConnector)}

    assert ForeignConnector.local  # taps, and Airbyte's manifests where its library is installed
    assert {slug for slug, one in found.items() if one.local} - foreign == {"git", "imap"}
    assert {"caldav", "demo", "feed", "github", "matrix", "rest"} <= found.keys()
    assert issubclass(AirbyteManifest, ForeignConnector)
    assert issubclass(SingerTap, ForeignConnector)


async def test_every_local_connector_that_comes_with_us_is_refused(
    world: World, acme: Client
) -> None:
    world.engine.providers |= {
        slug: one for slug, one in connectors_by_provider([]).items() if slug != "github"
    }

    for slug, connector in world.engine.providers.items():
        answer = await acme.post("/v1/connections?force=true", json=body(slug))
        assert answer.status_code == (403 if connector.local else 201), slug
