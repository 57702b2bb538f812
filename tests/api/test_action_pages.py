"""Pages that act on everything a list shows, and the switches. No script runs here."""

import re
from html import unescape
from uuid import uuid4

import httpx2
import pytest

from support.world import World

Client = httpx2.AsyncClient


def words(page: httpx2.Response) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", " ", page.text)).split())


def links(page: httpx2.Response, label: str) -> str:
    """Return the address of the link with this label."""
    [target] = re.findall(rf'<a href="([^"]*)">{re.escape(label)}</a>', page.text)
    return unescape(target)


def form(page: httpx2.Response, id_: str) -> tuple[str, dict[str, str]]:
    """Return where a form goes to, and its hidden fields."""
    markup = re.search(
        rf'<form method="post" action="([^"]*)"[^>]*id="{id_}">(.*?)</form>', page.text, re.DOTALL
    )
    assert markup is not None, page.text
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', markup[2])
    return unescape(markup[1]), dict(fields)


async def carry_out(world: World) -> None:
    while await world.engine._upkeep.bulk.run():
        pass


async def test_all_failed_jobs_of_a_provider_are_retried_in_four_clicks(
    world: World, local: Client
) -> None:
    """The provider's failed jobs, "Retry…", the button; then the page tells how it went."""
    connections = [await world.connection() for _ in range(12)]
    for connection in connections:
        await world.job(connection, status="failed", finished_at=world.clock())

    listed = await local.get("/jobs?provider=github&status=failed")
    preview = await local.get(links(listed, "Retry…"))
    target, fields = form(preview, "confirm")
    begun = await local.post(target, data=fields, follow_redirects=True)
    await carry_out(world)
    ended = await local.get(str(begun.url))

    assert "Retry 12 jobs" in words(preview)
    assert "These are the first 10." in words(preview)
    assert "running begun" in words(begun)
    assert "12 retried 0 left alone, of 12" in words(ended)
    assert [bool(await world.pending(one)) for one in connections] == [True] * 12
    assert "Retry 12 jobs" in words(await local.get("/actions"))


async def test_a_filter_reaches_the_action(world: World, local: Client) -> None:
    mine = await world.connection(tenant="a & b")
    other = await world.connection(tenant="birch")

    listed = await local.get("/connections", params={"tenant": "a & b"})
    preview = await local.get(links(listed, "Pause…"))
    target, fields = form(preview, "confirm")
    await local.post(target, data={**fields, "reason": "unpaid"})
    await carry_out(world)

    paused = await world.engine.connections.get(mine.id)
    assert (paused.status, paused.status_reason["why"]) == ("paused", "unpaid")
    assert (await world.engine.connections.get(other.id)).status == "active"


async def test_an_interval_is_set_for_all(world: World, local: Client) -> None:
    connection = await world.connection()

    preview = await local.get(links(await local.get("/connections"), "Set interval…"))
    target, fields = form(preview, "confirm")
    wrong = await local.post(target, data={**fields, "seconds": "often"})
    await local.post(target, data={**fields, "seconds": "300"})
    await carry_out(world)

    assert (wrong.status_code, "whole number" in wrong.text) == (422, True)
    assert (await world.sync_metadata(connection))["interval_seconds"] == 300


async def test_a_count_that_no_longer_holds_begins_nothing(world: World, local: Client) -> None:
    await world.connection()
    target, fields = form(await local.get("/actions/new?action=pause"), "confirm")
    for _ in range(8):
        await world.connection()

    answer = await local.post(target, data=fields)

    assert answer.status_code == 409
    assert await world.engine.bulk.list() == []


async def test_an_action_is_stopped_by_its_button(world: World, local: Client) -> None:
    await world.connection()
    target, fields = form(await local.get("/actions/new?action=pause"), "confirm")
    begun = await local.post(target, data=fields)
    page = begun.headers["location"]

    stopped = await local.post(
        f"{page}/cancel", data={"csrf": fields["csrf"]}, follow_redirects=True
    )

    assert "cancelled begun" in words(stopped)
    assert "Stop here" not in stopped.text


@pytest.mark.parametrize(
    "address",
    [
        "/actions/new?action=delete",
        "/actions/new?action=retry&target=jobs",
        "/actions/new?action=retry&target=jobs&status=failed&connection=x",
        "/actions/new?action=pause&target=tenants",
        "/actions/new?action=pause&status=tired",
    ],
)
async def test_a_wrong_address_says_so(local: Client, address: str) -> None:
    assert (await local.get(address)).status_code == 422


async def test_what_is_not_there_is_not_found(local: Client) -> None:
    assert (await local.get(f"/actions/{uuid4()}")).status_code == 404


@pytest.mark.parametrize(
    ("whose", "page"),
    [
        ({"tenant": "a/../b", "here": "/connections?q=1"}, "/connections?q=1"),
        ({"provider": "github", "here": "/providers"}, "/providers"),
        ({"provider": "github", "here": "//elsewhere"}, "/"),
    ],
)
async def test_a_switch_is_turned_and_leads_back(
    world: World, local: Client, whose: dict[str, str], page: str
) -> None:
    off = await local.post("/pause", data={**whose, "paused": "yes", "reason": "unpaid"})
    tenants, gates = await world.engine.gates.paused_tenants(), await world.engine.gates.list()
    on = await local.post("/pause", data={**whose, "paused": "no"})

    reasons = [one.paused_because for one in tenants] + [one.paused_because for one in gates]
    assert reasons == ["unpaid"]
    assert (off.status_code, off.headers["location"]) == (303, page)
    assert on.status_code == 303
    assert await world.engine.gates.paused_tenants() == []


async def test_a_tenants_switch_is_on_its_list_and_the_overview_names_it(
    world: World, local: Client
) -> None:
    """Connections, the tenant, the button: three clicks."""
    await world.connection(tenant="acme")

    listed = await local.get("/connections?tenant=acme")
    await world.engine.gates.pause_tenant("acme", because="unpaid")
    paused = await local.get("/connections?tenant=acme")

    assert "Pause this tenant" in words(listed)
    assert "unpaid. None of its jobs start. Resume this tenant" in words(paused)
    assert re.search("Paused tenants acme paused .*: unpaid", words(await local.get("/")))
