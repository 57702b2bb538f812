"""The forms that add, edit and reconnect a connection, made from what its connector declares."""

import re
from html import unescape
from typing import Any

import httpx2
import pytest

from support.http import client_of
from support.world import World
from syncline.connectors.github import GitHub
from syncline.keyring import new_key
from syncline.testing import ScriptedConnector

Client = httpx2.AsyncClient
CONFIG = {"repositories": ["octo/hello"], "page_size": 7}
TYPED = {
    "provider_slug": "github",
    "tenant_id": "acme",
    "external_id": "octo/hello",
    "config.repositories": "octo/hello\r\nocto/world",
    "config.page_size": "7",
    "auth": "none",
}


DESK = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "title": "Name", "description": "What people call it."},
        "size": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
        "mode": {"enum": ["slow", "fast"], "default": "slow"},
        "is_open": {"type": "boolean"},
        "pin": {"type": "string", "writeOnly": True},
        "labels": {"type": "object"},
    },
}


class Desk(ScriptedConnector):
    """A connector that declares one field of each kind."""

    auth = ("token",)
    config_schema = DESK


@pytest.fixture
async def local(world: World) -> Any:
    world.engine.providers |= {"github": GitHub(), "desk": Desk("desk")}
    async with client_of(world.engine) as client:
        yield client


def words(page: httpx2.Response) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", " ", page.text)).split())


def field_of(page: httpx2.Response, name: str) -> str:
    """Return the part of a page that draws a field, from its input to the next label."""
    found = re.search(rf'name="{re.escape(name)}".*?(?=<label|</fieldset)', page.text, re.DOTALL)
    assert found is not None, f"{name} is not drawn"
    return unescape(found[0])


async def added(world: World, **more: Any) -> Any:
    usual: dict[str, Any] = {"provider_slug": "github", "external_id": "r", "config": CONFIG}
    return await world.engine.connections.create(tenant_id="acme", **{**usual, **more})


async def test_the_first_page_offers_what_is_known_by_title(local: Client) -> None:
    page = await local.get("/connections/new")

    offered = re.findall(r'href="/connections/new\?provider=([^&"]+)', page.text)
    assert offered == ["desk", "github"]
    assert "GitHub" in words(page)


async def test_a_connection_is_added_synced_and_shown(world: World, local: Client) -> None:
    answer = await local.post("/connections/new", data={**TYPED, "sync": "yes"})

    [connection] = await world.engine.connections.list()
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/connections/{connection.id}?done=syncing"
    assert connection.config == {"repositories": ["octo/hello", "octo/world"], "page_size": 7}
    assert len(await world.engine.jobs.list(connection_id=connection.id)) == 1
    shown = await local.get(answer.headers["location"])
    assert "queued to sync now" in words(shown)


async def test_without_the_tick_it_waits_for_its_first_run(world: World, local: Client) -> None:
    form = await local.get("/connections/new?provider=github")
    await local.post("/connections/new", data=TYPED)

    assert 'name="sync" value="yes" checked' in form.text
    assert await world.engine.jobs.list() == []


async def test_each_property_is_a_field_of_its_kind(local: Client) -> None:
    page = await local.get("/connections/new?provider=desk")

    assert "What people call it." in field_of(page, "config.name")
    assert 'aria-required="true"' in field_of(page, "config.name")
    assert 'placeholder="3"' in field_of(page, "config.size")
    assert "1 to 9" in field_of(page, "config.size")
    assert "default: slow" in field_of(page, "config.mode")
    assert '<option value="true">' in field_of(page, "config.is_open")
    assert 'type="password"' in field_of(page, "config.pin")
    assert "<textarea" in page.text[page.text.index("f-config-labels") - 40 :]
    assert 'type="password"' in field_of(page, "credentials.token.token")


async def test_errors_stand_beside_their_fields_and_what_was_typed_stays(
    world: World, local: Client
) -> None:
    typed = {
        "provider_slug": "desk",
        "tenant_id": "acme",
        "config.name": "front",
        "config.size": "12",
        "config.labels": "{oops",
        "config.pin": "4711-secret",
        "auth": "token",
        "credentials.token.token": "t0p-secret",
        "interval_seconds": "5",
    }

    page = await local.post("/connections/new", data=typed)

    assert page.status_code == 422
    assert "Is missing" in field_of(page, "external_id")
    assert "Is 12; 9 is the most" in field_of(page, "config.size")
    assert 'value="12"' in field_of(page, "config.size")
    assert "Is not JSON (line 1, column 2" in field_of(page, "config.labels")
    assert "{oops" in field_of(page, "config.labels")
    assert 'value="front"' in field_of(page, "config.name")
    assert 'value="acme"' in field_of(page, "tenant_id")
    assert "secret" not in page.text.replace("Type the secrets again", "")
    assert "Type the secrets again" in page.text
    assert await world.engine.connections.list() == []


async def test_a_rule_of_the_library_is_shown_at_its_field(local: Client) -> None:
    page = await local.post("/connections/new", data={**TYPED, "interval_seconds": "5"})

    assert page.status_code == 422
    assert "must be an integer from 60" in field_of(page, "interval_seconds")


async def test_an_unknown_provider_needs_the_tick(world: World, local: Client) -> None:
    typed = {"provider_slug": "gitub", "tenant_id": "acme", "external_id": "r", "auth": "none"}
    raw = {**typed, "config": '{"a": 1}'}

    form = await local.get("/connections/new?provider=gitub")
    refused = await local.post("/connections/new", data=raw)
    forced = await local.post("/connections/new", data={**raw, "force": "yes"})

    assert "no live worker, serves gitub" in words(form)
    assert "did you mean 'github'?" in words(refused)
    assert '{"a": 1}' in field_of(refused, "config")
    assert forced.status_code == 303
    assert [one.config for one in await world.engine.connections.list()] == [{"a": 1}]


async def test_a_key_that_exists_leads_to_its_connection(world: World, local: Client) -> None:
    there = await added(world, external_id="octo/hello")

    page = await local.post("/connections/new", data=TYPED)

    assert page.status_code == 422
    assert f'href="/connections/{there.id}"' in page.text
    assert 'value="octo/hello"' in field_of(page, "external_id")


async def test_an_edit_keeps_what_the_form_does_not_show(world: World, local: Client) -> None:
    stored = {"name": "front", "pin": "4711", "other": [1], "mode": "odd", "size": None}
    there = await added(world, provider_slug="desk", config=stored, interval_seconds=300)
    path = f"/connections/{there.id}/edit"

    page = await local.get(path)
    inputs = read_form(page)
    answer = await local.post(path, data={**inputs, "config.name": "back", "force": "yes"})

    assert "4711" not in page.text
    assert answer.headers["location"] == f"/connections/{there.id}?done=edited"
    changed = await world.engine.connections.get(there.id)
    assert changed.config == {**stored, "name": "back"}
    assert changed.metadata["sync"]["interval_seconds"] == 300


async def test_a_password_in_an_address_is_neither_shown_nor_lost(
    world: World, local: Client
) -> None:
    address = "https://ann:pa55word@api.example"
    there = await added(world, config={**CONFIG, "base_url": address})
    path = f"/connections/{there.id}/edit"

    page = await local.get(path)
    await local.post(path, data={**read_form(page), "config.page_size": "9"})

    assert "pa55word" not in page.text
    assert 'type="password"' in field_of(page, "config.base_url")
    changed = (await world.engine.connections.get(there.id)).config
    assert (changed["base_url"], changed["page_size"]) == (address, 9)


async def test_an_edit_changes_interval_and_cursor(world: World, local: Client) -> None:
    there = await added(world)
    path = f"/connections/{there.id}/edit"
    form = read_form(await local.get(path))

    await local.post(path, data={**form, "interval_seconds": "600", "cursor": '{"page": 2}'})
    sync = (await world.engine.connections.get(there.id)).metadata["sync"]
    assert (sync["interval_seconds"], sync["cursor"]) == (600, {"page": 2})

    form = read_form(await local.get(path))
    await local.post(path, data={**form, "interval_seconds": ""})
    sync = (await world.engine.connections.get(there.id)).metadata["sync"]
    assert "interval_seconds" not in sync
    assert sync["cursor"] == {"page": 2}


async def test_a_change_of_somebody_else_is_not_overwritten(world: World, local: Client) -> None:
    there = await added(world)
    path = f"/connections/{there.id}/edit"
    form = {**read_form(await local.get(path)), "interval_seconds": "900"}
    await world.engine.connections.set_interval(there.id, 300)

    refused = await local.post(path, data=form)
    again = await local.post(path, data=read_form(refused))

    assert refused.status_code == 422
    assert "Somebody changed this connection while you edited it" in words(refused)
    assert again.status_code == 303
    sync = (await world.engine.connections.get(there.id)).metadata["sync"]
    assert sync["interval_seconds"] == 900


@pytest.fixture
def engine_settings(engine_settings: dict[str, Any]) -> dict[str, Any]:
    return {"secret_keys": new_key("k1"), **engine_settings}


async def test_reconnecting_makes_it_active_and_syncs(world: World, local: Client) -> None:
    there = await added(world)
    await world.sql(
        "UPDATE {schema}.connections SET status = 'needs_reauth' WHERE id = $1", there.id
    )
    path = f"/connections/{there.id}/reconnect"
    typed = {"auth": "token", "credentials.token.token": "t0p-s3cret"}

    page = await local.get(path)
    refused = await local.post(path, data={"auth": "token"})
    answer = await local.post(path, data=typed)

    assert 'name="auth" value="none"' not in page.text
    assert "Is missing" in field_of(refused, "credentials.token.token")
    assert answer.headers["location"] == f"/connections/{there.id}?done=reconnected"
    assert (await world.engine.connections.get(there.id)).status == "active"
    assert len(await world.engine.jobs.list(connection_id=there.id)) == 1
    assert "t0p-s3cret" not in (await local.get(answer.headers["location"])).text


async def test_a_paused_connection_stays_paused_with_new_credentials(
    world: World, local: Client
) -> None:
    there = await added(world)
    await world.engine.connections.pause(there.id)
    typed = {"auth": "basic", "credentials.basic.username": "ann"}
    path = f"/connections/{there.id}/reconnect"

    await local.post(path, data={**typed, "credentials.basic.password": "t0p"})

    assert (await world.engine.connections.get(there.id)).status == "paused"
    assert await world.engine.jobs.list(connection_id=there.id) == []


async def test_a_kind_that_the_connector_does_not_take_is_refused(
    world: World, local: Client
) -> None:
    there = await added(world, provider_slug="desk", config={"name": "front"})
    path = f"/connections/{there.id}/reconnect"

    page = await local.post(path, data={"auth": "basic"})

    assert page.status_code == 422
    assert "Is missing" in field_of(page, "credentials.token.token")


async def test_without_a_key_for_secrets_the_form_says_so(world: World) -> None:
    there = await added(world)
    async with (
        world.another_engine(secret_keys=None) as keyless,
        client_of(keyless.engine) as client,
    ):
        page = await client.post(
            f"/connections/{there.id}/reconnect",
            data={"auth": "token", "credentials.token.token": "t0p-s3cret"},
        )

    assert page.status_code == 422
    assert "SYNCLINE_SECRET_KEYS" in words(page)
    assert "t0p-s3cret" not in page.text


async def test_an_operator_who_may_not_administer_edits_the_schedule_only(
    world: World, local: Client
) -> None:
    there = await added(world)
    _, secret = await world.engine.access.create_key("op", scope="operate")
    async with client_of(world.engine, secret) as operator:
        page = await operator.get(f"/connections/{there.id}/edit")
        answer = await operator.post(
            f"/connections/{there.id}/edit",
            data={**read_form(page), "interval_seconds": "600", "config.page_size": "99"},
        )
        assert (await operator.get("/connections/new")).status_code == 403
        assert (await operator.get(f"/connections/{there.id}/reconnect")).status_code == 403

    assert answer.status_code == 303
    assert "config.page_size" not in page.text
    assert (await world.engine.connections.get(there.id)).config == CONFIG


def read_form(page: httpx2.Response) -> dict[str, str]:
    """Return what a browser would send if nobody touched the form."""
    [form] = re.findall(r'<form class="form".*?</form>', page.text, re.DOTALL)
    typed = {
        unescape(name): unescape(value)
        for name, value in re.findall(r'<input[^>]*name="([^"]*)"[^>]*value="([^"]*)"', form)
        if not re.search(rf'type="(?:checkbox|radio)"[^>]*name="{re.escape(name)}"', form)
    }
    for name, text in re.findall(r'name="([^"]*)" rows.*?>\n?(.*?)</textarea>', form, re.DOTALL):
        typed[name] = unescape(text).removeprefix("\n")
    for name, options in re.findall(r'<select[^>]*name="([^"]*)".*?>(.*?)</select>', form, re.S):
        chosen = re.search(r'value="([^"]*)" selected', options)
        typed[name] = unescape(chosen[1]) if chosen else ""
    return typed
