"""Finding things on the dashboard: filters, pages per tenant and provider, the search."""

import json
import re
from datetime import datetime, timedelta
from html import unescape
from urllib.parse import parse_qsl, quote
from uuid import UUID, uuid4

import httpx2

from support.world import World
from syncline import Connection
from syncline.text import rfc3339

Client = httpx2.AsyncClient


def words(page: httpx2.Response) -> str:
    """Return what a page says, without its markup."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", page.text)).split())


async def named(world: World, external_id: str, *, tenant: str = "acme") -> Connection:
    return await world.engine.connections.create(
        tenant_id=tenant, provider_slug="github", external_id=external_id
    )


async def add_signal(world: World, connection: Connection, kind: str) -> UUID:
    id_ = uuid4()
    await world.sql(
        "INSERT INTO {schema}.signals"
        " (id, tenant_id, provider_slug, connection_id, kind, payload, occurred_at, received_at)"
        " VALUES ($1, $2, 'github', $3, $4, $5, $6, $6)",
        *(id_, connection.tenant_id, connection.id, kind, json.dumps({}), world.clock()),
    )
    return id_


async def test_jobs_are_filtered_by_error_time_duration_and_state(
    world: World, local: Client
) -> None:
    now = world.clock()
    ids: dict[str, UUID] = {}
    for name, minutes, seconds, error in (
        ("recent", 10, 5, '{"class": "Timeout", "message": "late"}'),
        ("old", 600, 5, '{"class": "Permanent", "message": "gone"}'),
        ("slow", 20, 300, None),
    ):
        connection = await named(world, name)
        ended = now - timedelta(minutes=minutes)
        ids[name] = await world.job(
            connection,
            status="failed" if error else "succeeded",
            started_at=ended - timedelta(seconds=seconds),
            finished_at=ended,
            error=error,
        )
    waiting = await named(world, "waiting")
    later = now + timedelta(minutes=1)
    ids["waiting"] = await world.job(waiting, retry_after=later, error='{"class": "Timeout"}')
    ids["due"] = await world.job(await named(world, "due"))

    async def shown(query: str) -> set[str]:
        page = await local.get(f"/jobs?{query}")
        assert page.status_code == 200, page.text
        return {name for name, id_ in ids.items() if f'"/jobs/{id_}"' in page.text}

    assert await shown("error=Timeout") == {"recent", "waiting"}
    assert await shown("status=failed&from=1h") == {"recent"}
    assert await shown("to=1h") == {"old"}
    assert await shown(f"from={quote(rfc3339(now - timedelta(hours=11)))}&to=5h") == {"old"}
    assert await shown("by=started&from=23min") == {"recent"}
    assert await shown("min=1min") == {"slow"}
    assert await shown("max=60s") == {"recent", "old"}
    assert await shown("status=backoff") == {"waiting"}
    assert await shown("status=due") == {"due"}
    assert await shown("status=later") == set()
    slowest = await local.get("/jobs?order=slowest")
    assert slowest.text.index(str(ids["slow"])) < slowest.text.index(str(ids["old"]))

    for field in ("from", "to", "min", "max"):
        refused = await local.get(f"/jobs?{field}=soon")
        assert refused.status_code == 422
        assert f"{field} is 'soon'; use a" in words(refused)


async def test_the_first_page_keeps_the_filters(world: World, local: Client) -> None:
    connection = await named(world, "busy")
    for number in range(60):
        other = await named(world, f"c-{number}")
        await world.job(other, status="failed", finished_at=world.clock())
        await add_signal(world, connection, "opened")

    for query in (
        "/jobs?tenant=acme&provider=github&status=failed",
        "/signals?tenant=acme&kind=opened",
        "/connections?tenant=acme&provider=github&status=active",
    ):
        first = await local.get(query)
        following = re.search(r'<a href="([^"]*)" rel="next">', first.text)
        assert following is not None
        second = await local.get(unescape(following[1]))
        back = re.search(r'<a href="([^"]*)">« First', second.text)
        assert back is not None
        assert (await local.get(unescape(back[1]))).text == first.text
        assert set(parse_qsl(query.partition("?")[2])) == set(
            parse_qsl(unescape(back[1]).partition("?")[2])
        )


async def test_times_are_in_utc_and_marked_for_the_script(world: World, local: Client) -> None:
    connection = await named(world, "one")
    signal = await add_signal(world, connection, "opened")

    page = (await local.get(f"/signals?show={signal}")).text

    assert 'times in <span id="zone">UTC</span>' in page
    at = re.search(r'<time datetime="([^"]*)" title="([^"]*) UTC" data-at="">\2 UTC</time>', page)
    assert at is not None
    assert datetime.fromisoformat(at[1]).utcoffset() == timedelta()


async def test_the_search_page_groups_what_it_found(world: World, local: Client) -> None:
    connection = await named(world, "octo/<widgets>", tenant="hub & co")
    job = await world.job(connection)

    empty = await local.get("/search")
    assert "What you can type" in words(empty)
    assert '<form class="find" method="get" action="/search"' in empty.text
    found = await local.get("/search?q=WIDG")
    assert "Connections octo/<widgets> github · hub & co active" in words(found)
    assert f'href="/connections/{connection.id}"' in found.text
    tenants = await local.get("/search?q=hub")
    assert 'href="/tenants?tenant=hub+%26+co"' in tenants.text
    assert 'href="/providers?provider=github"' in tenants.text
    assert "Nothing matches" in words(await local.get("/search?q=zzz"))
    for id_, path in ((connection.id, "connections"), (job, "jobs")):
        whole = await local.get(f"/search?q={id_}")
        assert (whole.status_code, whole.headers["location"]) == (303, f"/{path}/{id_}")
        listed = await local.get(f"/search?q={id_}&list=1")
        assert f'href="/{path}/{id_}"' in listed.text
    assert (await local.get("/search?q=a%00b")).status_code == 422
