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
from syncline.clock import new_id
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


HOSTILE = (
    "a/b",
    "..",
    "../x",
    "a%2Fb",
    "<script>",
    "a&tenant=b",
    'q"uo',
    "Ünïcode ✓",
    "#?",
    "  x ",
)


async def test_a_tenant_of_any_name_has_a_page(world: World, local: Client) -> None:
    for name in HOSTILE:
        await named(world, "one", tenant=name)

    listed = await local.get("/tenants")
    links = re.findall(r'<a class="name" href="(/tenants\?[^"]*)">', listed.text)
    assert len(links) == len(HOSTILE)
    seen = set()
    for address in links:
        page = await local.get(unescape(address))
        assert page.status_code == 200, address
        [(_, name)] = parse_qsl(unescape(address).partition("?")[2])
        seen.add(name)
        assert f"<h1>{' '.join(name.split())}</h1>" in unescape(re.sub("</?bdi>", "", page.text))
        assert "<script>" not in page.text
        connections = re.search(r'<p class="big"><a href="(/connections\?[^"]*)">1<', page.text)
        assert connections is not None, name
        assert 'class="name"' in (await local.get(unescape(connections[1]))).text
    assert seen == set(HOSTILE)
    assert (await local.get("/tenants?tenant=nobody")).status_code == 404


async def test_a_provider_of_any_name_has_a_page(world: World, local: Client) -> None:
    for name in HOSTILE:
        await world.connection(provider=name)

    listed = await local.get("/providers")
    links = re.findall(r'<h2 id="p-\d+"><a href="(/providers\?[^"]*)">', listed.text)
    assert len(links) == len(HOSTILE)
    for address in links:
        page = await local.get(unescape(address))
        assert page.status_code == 200, address
        assert '<p class="big"><a href="/connections?provider=' in page.text
    assert (await local.get("/providers?provider=fax")).status_code == 404


async def fill_everything(world: World) -> None:
    """Add connections and jobs of each status and state, some of another tenant and provider."""
    now = world.clock()
    for tenant, provider in (("acme", "github"), ("acme", "demo"), ("birch", "github")):
        for status in ("active", "paused", "needs_reauth", "error"):
            await world.connection(tenant=tenant, provider=provider, status=status)
        due, later, waiting, failed, running = [
            await world.connection(tenant=tenant, provider=provider) for _ in range(5)
        ]
        error = '{"class": "Timeout", "message": "late"}'
        await world.job(due, scheduled_at=now - timedelta(minutes=1))
        await world.job(later, scheduled_at=now + timedelta(minutes=9))
        await world.job(waiting, retry_after=now + timedelta(minutes=1), attempts=2, error=error)
        await world.job(
            failed,
            id=new_id(),
            status="failed",
            started_at=now - timedelta(minutes=2),
            finished_at=now - timedelta(minutes=1),
            error=error,
        )
        await world.running_job(running)
        await add_signal(world, due, "opened")


def shown_rows(page: httpx2.Response) -> int:
    return page.text.partition('id="rows"')[2].count("<tr>") - 1  # without the head


async def test_every_number_leads_to_a_list_with_so_many_rows(world: World, local: Client) -> None:
    await fill_everything(world)
    numbered = re.compile(r'<a href="(/(?:connections|jobs|signals)\?[^"]*)">(?:(?!</a>).)*?(\d+)<')

    for path in ("/", "/tenants", "/tenants?tenant=acme", "/providers", "/providers?provider=demo"):
        page = await local.get(path)
        links = [(unescape(to), int(count)) for to, count in numbered.findall(page.text)]
        assert len(links) > 4, path
        for to, count in links:
            if "by=made" in to:
                to = to.replace("by=made&from=1h", "")  # the clock of this test is not the server's
            listed = await local.get(to)
            assert listed.status_code == 200, to
            assert max(shown_rows(listed), 0) == count, (path, to)


async def test_the_page_of_a_tenant_says_how_it_is(world: World, local: Client) -> None:
    await fill_everything(world)
    await world.engine.gates.pause_tenant("acme", because="moving house")

    said = words(await local.get("/tenants?tenant=acme"))

    assert "acme paused" in said
    assert "moving house. None of its jobs start." in said
    assert "Connections 18 active 12 paused 2 needs reauth 2 error 2" in said
    assert "Running 2 Due 2" in said
    assert "Timeout 2 2" in said
    assert "birch" not in said.partition("Newest jobs")[0]
    assert "Paused tenants paused acme" in words(await local.get("/tenants"))


async def test_the_page_of_a_provider_has_its_charts_and_troubles(
    world: World, local: Client
) -> None:
    await fill_everything(world)

    page = await local.get("/providers?provider=demo&period=24h")
    said = words(page)

    assert "Connections 9 active 6 paused 1 needs reauth 1 error 1" in said
    assert 'href="/providers?provider=demo&amp;period=7d"' in page.text
    for title in ("Runs that ended", "Duration", "From due to start", "Most jobs due at once"):
        assert title in said
    assert "Failing most often" in said
    assert "Slowest jobs of the last 24h" in said
    assert "github" not in said.partition("Failures by class")[2]
    assert page.text.count("data-live") == 1
