"""The pages of the dashboard, on a real database: what they show, what their forms do."""

import json
import re
from datetime import timedelta
from html import unescape
from uuid import UUID, uuid4

import httpx2

from support.http import client_of
from support.world import World, at
from syncline import Connection, Signal, SyncResult
from syncline.store.queue import caps

Client = httpx2.AsyncClient
PAGES = ("/", "/connections", "/jobs", "/signals", "/tenants", "/providers", "/workers")
NOBODY = UUID(int=0)


def words(page: httpx2.Response) -> str:
    """Return what a page says, without its markup."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", page.text)).split())


async def named(world: World, external_id: str, *, tenant: str = "acme") -> Connection:
    return await world.engine.connections.create(
        tenant_id=tenant, provider_slug="github", external_id=external_id
    )


async def add_signal(world: World, connection: Connection, kind: str, payload: object) -> None:
    await world.sql(
        "INSERT INTO {schema}.signals"
        " (tenant_id, provider_slug, connection_id, kind, payload, occurred_at, received_at)"
        " VALUES ($1, 'github', $2, $3, $4, $5, $5)",
        *(connection.tenant_id, connection.id, kind, json.dumps(payload), world.clock()),
    )


async def test_an_empty_database_has_every_page(local: Client) -> None:
    for path in PAGES:
        page = await local.get(path)

        assert page.status_code == 200, path
        assert page.headers["content-type"] == "text/html; charset=utf-8", path
        assert f'<a href="{path}" aria-current="page">' in page.text


async def test_everything_a_page_needs_comes_from_here(local: Client) -> None:
    assets = {"/style.css", "/icon.svg", "/theme.js", "/dashboard.js"}
    for asset in assets:
        assert (await local.get(asset)).status_code == 200, asset

    for path in PAGES:
        page = (await local.get(path)).text
        loaded = set(re.findall(r'<(?:link|script|img)[^>]* (?:href|src)="([^"]*)"', page))

        assert loaded == assets, path
        assert "style=" not in page, path
        assert not re.search(r"<script(?![^>]* src=)", page), path


async def test_the_overview_shows_how_everything_is(world: World, local: Client) -> None:
    now = world.clock()
    fresh = await named(world, "fresh")
    await world.job(
        fresh,
        status="succeeded",
        started_at=now - timedelta(minutes=4),
        finished_at=now - timedelta(minutes=3),
    )
    await named(world, "never")
    out = await world.connection(status="needs_reauth")
    await world.sql(
        "UPDATE {schema}.connections SET status_reason = $2, external_id = 'out' WHERE id = $1",
        *(out.id, '{"why": "the login has expired"}'),
    )
    late = await named(world, "late")
    await world.job(late, scheduled_at=now - timedelta(minutes=7))
    waiting = await named(world, "waiting")
    error = json.dumps({"class": "Transient", "message": "503"})
    await world.job(waiting, retry_after=now + timedelta(minutes=1), attempts=2, error=error)
    await add_signal(world, fresh, "issue_opened", {})

    said = words(await local.get("/"))

    assert "Connections 5 active 4 paused 0 needs reauth 1 error 0 revoked 0" in said
    assert "Due now 1 the oldest for 7 min" in said
    assert "In backoff 1" in said
    assert "No worker is alive" in said
    assert "≤ 5 min 1 ≤ 15 min 0" in said
    assert "never 3" in said
    assert "Transient 0 1" in said
    assert "out github · acme needs reauth the login has expired" in said


async def test_connections_are_searched_filtered_and_sorted(world: World, local: Client) -> None:
    for name in ("web-1", "web-2", "mail-1"):
        await named(world, name)
    await named(world, "web-3", tenant="birch")
    paused = await named(world, "web-4")
    await world.engine.connections.pause(paused.id)

    async def shown(query: str) -> list[str]:
        page = await local.get(f"/connections?{query}")
        return re.findall(r'<a class="name" href="/connections/[^"]*">([^<]*)</a>', page.text)

    assert await shown("q=web") == ["web-1", "web-2", "web-3", "web-4"]
    assert await shown("q=web&tenant=birch") == ["web-3"]
    assert await shown("status=paused") == ["web-4"]
    assert await shown("provider=gitlab") == []
    assert await shown("order=external_id") == ["mail-1", "web-1", "web-2", "web-3", "web-4"]
    assert len(await shown("order=staleness")) == 5
    led = await local.get(f"/connections?q={paused.id}")
    assert (led.status_code, led.headers["location"]) == (303, f"/connections/{paused.id}")


async def test_the_last_run_shown_is_that_of_the_newest_job(world: World, local: Client) -> None:
    connection = await world.connection(last_finished="10:00")
    await world.sql(
        "UPDATE {schema}.connections SET last_finished_at = NULL WHERE id = $1", connection.id
    )

    assert "2 h ago" in words(await local.get("/connections"))


async def test_a_list_continues_on_the_next_page(world: World, local: Client) -> None:
    for number in range(51):
        await named(world, f"c-{number:02}")

    first = await local.get("/connections?order=external_id")
    following = re.search(r'<a href="([^"]*)" rel="next">', first.text)
    assert following is not None
    last = await local.get(unescape(following[1]))

    assert ">c-49<" in first.text
    assert ">c-50<" not in first.text
    assert ">c-50<" in last.text
    assert 'rel="next"' not in last.text


async def test_the_page_of_a_connection_says_why_it_waits(world: World, local: Client) -> None:
    connection = await named(world, "troubled")
    now = world.clock()
    error = json.dumps({"class": "Transient", "message": "503 Service Unavailable"})
    job = await world.job(
        connection,
        attempts=3,
        started_at=now,
        retry_after=now + timedelta(minutes=10),
        error=error,
    )
    await world.engine.connections.set_cursor(connection.id, {"since": "page-7"})
    await add_signal(world, connection, "issue_opened", {"number": 42})

    page = await local.get(f"/connections/{connection.id}")
    said = words(page)

    assert "Why backoff" in said
    assert "has failed 3 times: Transient: 503 Service Unavailable" in said
    assert "Next run in 10 min" in said
    assert "Interval 15 min (default)" in said
    assert "next attempt in 10 min" in said
    assert '"since" : "page-7"' in said
    assert 'issue_opened {"number": 42}' in said
    assert f'href="/jobs/{job}"' in page.text
    for action in ("sync", "full", "pause", "interval"):
        assert f'action="/connections/{connection.id}/{action}"' in page.text


async def test_forms_sync_pause_resume_and_change_the_interval(world: World, local: Client) -> None:
    connection = await named(world, "one")
    base = f"/connections/{connection.id}"

    synced = await local.post(f"{base}/sync", data={"csrf": ""})
    assert synced.headers["location"] == f"{base}?done=synced"
    assert (await world.pending(connection)).status == "queued"
    assert "1 connection is queued to sync now." in words(
        await local.get(synced.headers["location"])
    )

    await local.post(f"{base}/pause", data={})
    paused = await world.engine.connections.get(connection.id)
    assert (paused.status, paused.status_reason["by"]) == ("paused", "local")

    await local.post(f"{base}/resume", data={})
    assert (await world.engine.connections.get(connection.id)).status == "active"

    await local.post(f"{base}/interval", data={"seconds": "600"})
    assert (await world.sync_metadata(connection))["interval_seconds"] == 600
    await local.post(f"{base}/interval", data={"seconds": ""})
    assert "interval_seconds" not in await world.sync_metadata(connection)


async def test_a_refused_form_gets_a_page_that_says_why(world: World, local: Client) -> None:
    connection = await named(world, "one")

    for action, seconds, status, told in (
        ("interval", "5", 422, "interval_seconds is 5; it must be"),
        ("interval", "soon", 422, "it must be a whole number, or empty"),
        ("explode", "", 404, "this action does not exist"),
    ):
        form = {"seconds": seconds}
        refused = await local.post(f"/connections/{connection.id}/{action}", data=form)

        assert refused.status_code == status, action
        assert told in words(refused)
        assert refused.headers["content-type"].startswith("text/html")


async def test_many_are_paused_resumed_and_synced_at_once(world: World, local: Client) -> None:
    chosen = [str((await named(world, f"c-{number}")).id) for number in range(3)]

    async def act(action: str) -> httpx2.Response:
        form = {"action": action, "ids": chosen, "here": "/connections?tenant=acme"}
        return await local.post("/connections/bulk", data=form)

    done = await act("pause")
    assert done.headers["location"] == "/connections?tenant=acme&done=paused&count=3"
    assert "3 connections are paused." in words(await local.get(done.headers["location"]))
    assert len(await world.engine.connections.list(status="paused")) == 3
    await act("resume")
    assert len(await world.engine.connections.list(status="active")) == 3
    await act("sync")
    assert len(await world.engine.jobs.list(status="queued")) == 3


async def test_the_connections_of_a_tenant_say_what_limits_it(world: World, local: Client) -> None:
    """P11: caps, the share, and whether it asks for more than that."""
    await world.engine.shares.set_cap(20, tenant_id="acme")
    await world.engine.shares.set_cap(1, tenant_id="acme", provider_slug="github")
    await world.engine.shares.set_cap(3, tenant_id="birch")
    await world.engine.shares.set_weight("acme", 2.5)
    await world.running_job(await named(world, "web"))
    async with world.engine._pool.transaction() as tx:
        await caps.note_heavy(tx, {"acme": 1200}, others=3, now=world.clock())

    page = words(await local.get("/connections?tenant=acme"))

    assert "At most 20 jobs run at once; 1 runs now" in page
    assert "At most 1 job at github run at once; 1 runs now, so nothing more starts" in page
    assert "Its share is 2.5 times that of others" in page
    assert "asks for more than its share" in page
    assert "1,200 jobs of it are due" in page
    assert "At most 3" not in page
    assert "Limits of" not in words(await local.get("/connections?tenant=cedar"))
    assert "Limits of" not in words(await local.get("/connections"))


async def test_a_bulk_action_names_the_connections_that_refuse(world: World, local: Client) -> None:
    well, revoked = await named(world, "well"), await world.connection(status="revoked")
    form = {"action": "pause", "ids": [str(well.id), str(revoked.id)], "here": "//elsewhere"}

    answer = await local.post("/connections/bulk", data=form)

    assert answer.status_code == 409
    assert "1 done, 1 refused" in words(answer)
    assert f"connection {revoked.id} is revoked and cannot be paused" in words(answer)
    assert 'href="/connections">Back' in answer.text
    nothing = await local.post("/connections/bulk", data={"action": "pause"})
    assert nothing.status_code == 422


async def test_jobs_are_listed_shown_retried_and_cancelled(world: World, local: Client) -> None:
    connection = await named(world, "one")
    error = json.dumps({"class": "Permanent", "message": "gone"})
    failed = await world.job(connection, status="failed", finished_at=world.clock(), error=error)
    await world.job(connection, status="succeeded", finished_at=world.clock())

    assert "Permanent: gone" in words(await local.get("/jobs?status=failed"))
    assert "Permanent" not in words(await local.get("/jobs?status=succeeded"))
    assert "Permanent: gone" in words(await local.get(f"/jobs/{failed}"))
    retried = await local.post(f"/jobs/{failed}/retry", data={})
    assert (await local.get(retried.headers["location"])).status_code == 200
    pending = await world.pending(connection)
    await local.post(f"/jobs/{pending.id}/cancel", data={})
    assert (await world.get_job(pending.id)).status == "cancelled"
    again = await local.post(f"/jobs/{pending.id}/cancel", data={})
    assert (again.status_code, "is cancelled already" in words(again)) == (409, True)


async def test_the_page_of_a_job_shows_its_failed_attempts(world: World, local: Client) -> None:
    job = await world.job(await named(world, "one"))
    assert "None. If an attempt fails" in words(await local.get(f"/jobs/{job}"))
    world.script(KeyError("<b>id</b>"))
    await world.run_due()
    await world.sql(
        "UPDATE {schema}.job_attempts SET call_count = 40, signals = 3, calls = $1",
        '[{"method": "GET", "url": "https://a.example/x?k=…", "status": 503, "milliseconds": 12},'
        ' {"method": "GET", "url": "https://a.example/y", "status": null, "milliseconds": 9,'
        '  "failure": "TimeoutError"}]',
    )

    answer = await local.get(f"/jobs/{job}")

    shown = words(answer)
    assert "Unexpected: KeyError:" in shown
    assert "in sync raise line KeyError:" in shown
    assert "GET https://a.example/x?k=… 503 12 ms" in shown
    assert "GET https://a.example/y TimeoutError 9 ms" in shown
    assert "38 calls before the last 5 are left out" in shown
    assert "It had stored 3 signals" in shown
    assert "<b>id</b>" not in answer.text


async def test_the_page_of_a_job_leads_to_its_signals(world: World, local: Client) -> None:
    connection = await named(world, "one")
    job = await world.job(connection)
    world.script(SyncResult([Signal("mine", at("10:00"), {})], next_cursor=1))
    await world.run_due()
    await add_signal(world, connection, "another", {})

    page = await local.get(f"/jobs/{job}")
    assert f'href="/signals?job={job}"' in page.text
    assert "1 signal from 0 calls in" in words(page)
    assert "Cursor before None: it started from the beginning. Cursor after 1" in words(page)
    shown = await local.get(f"/signals?job={job}")
    assert "mine" in words(shown)
    assert "another" not in words(shown)
    assert f'name="job" value="{job}"' in shown.text


async def test_signals_are_listed_and_their_payload_shown(world: World, local: Client) -> None:
    connection = await named(world, "one")
    await add_signal(world, connection, "opened", {"a": [1, True, None], "url": "x://me:pw@host"})
    await add_signal(world, connection, "closed", {})
    [signal] = await world.engine.signals.list(kind="opened")

    listed = words(await local.get("/signals?kind=opened"))
    shown = words(await local.get(f"/signals?show={signal.id}"))

    assert "opened one github · acme" in listed
    assert "closed" not in listed
    assert '"a" : [ 1 , true , null ]' in shown
    assert "pw@" not in listed + shown


async def test_providers_and_workers(world: World, local: Client) -> None:
    now = world.clock()
    limited = await named(world, "limited")
    error = json.dumps({"class": "RateLimited", "message": "429", "hinted": True})
    await world.job(limited, retry_after=now + timedelta(minutes=5), attempts=1, error=error)
    await world.running_job(await named(world, "busy"))
    unknown = await world.connection(provider="gitlab")
    await world.sql(
        "INSERT INTO {schema}.workers VALUES"
        " ($1, 'host-1', 7, '0.1', '{executor}', '{github}', 8, 3, false, $3, $3),"
        " ($2, 'host-2', 8, '0.1', '{executor}', '{github}', 8, 0, false, $4, $4)",
        *(uuid4(), uuid4(), now, now - timedelta(hours=1)),
    )

    providers, workers = words(await local.get("/providers")), words(await local.get("/workers"))

    assert "github rate limited 2 connections" in providers
    assert "1 job waits at the provider's request; the last continues in 5 min" in providers
    assert "RateLimited 0 1" in providers
    assert f"{unknown.provider_slug} no worker 1 connection" in providers
    assert "host-1 pid 7 alive executor 3 / 8 github" in workers
    assert "host-2 pid 8 dead" in workers
    assert "busy github · acme incremental 0.0 s ago in 30 s" in workers


async def test_providers_that_are_paused_limited_or_down_say_so(
    world: World, local: Client
) -> None:
    now = world.clock()
    for slug in ("github", "gitlab", "jira"):
        await world.connection(provider=slug)
    await world.engine.gates.pause("github", because="maintenance")
    await world.sql(
        "INSERT INTO {schema}.gates (provider_slug, closed_until) VALUES ('gitlab', $1)",
        now + timedelta(minutes=5),
    )
    await world.sql(
        "INSERT INTO {schema}.gates (provider_slug, opened_at, opened_because, probe_at)"
        " VALUES ('jira', $1, '20 of 20 attempts failed within a minute', $2)",
        *(now - timedelta(minutes=2), now + timedelta(seconds=30)),
    )

    page = words(await local.get("/providers"))

    assert "Paused 0.0 s ago : maintenance. None of its jobs start." in page
    assert "Limits the application: nobody calls it, and its jobs continue in 5 min" in page
    assert "Down 2 min ago : 20 of 20 attempts failed within a minute." in page
    assert "the next probe comes in 30 s" in page


async def test_bad_queries_get_a_page_that_says_so(local: Client) -> None:
    for path, status in (
        (f"/connections/{NOBODY}", 404),
        ("/connections/none", 422),
        ("/connections?status=odd", 422),
        ("/connections?after=odd", 422),
        ("/connections?tenant=%00", 422),
        ("/jobs?type=odd", 422),
        (f"/jobs/{NOBODY}", 404),
        (f"/signals?show={NOBODY}", 404),
        ("/connections?q=" + "x" * 2000, 422),
    ):
        page = await local.get(path)

        assert page.status_code == status, path
        assert 'role="alert"' in page.text, path


async def test_nothing_changes_by_looking(world: World, local: Client) -> None:
    connection = await named(world, "one")
    for action in ("sync", "full", "pause", "resume", "interval"):
        answer = await local.get(f"/connections/{connection.id}/{action}")
        assert answer.status_code == 405
    assert (await local.get("/connections/bulk")).status_code == 422
    assert await world.jobs(connection) == []


async def test_another_site_cannot_make_a_browser_act(world: World, local: Client) -> None:
    connection = await named(world, "one")

    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        refused = await local.post(f"/connections/{connection.id}/pause", headers=headers)
        assert refused.status_code == 403

    assert (await world.engine.connections.get(connection.id)).status == "active"


async def test_a_signed_in_browser_needs_the_token_of_its_session(world: World) -> None:
    connection = await named(world, "one")
    _, secret = await world.engine.access.create_key("ann")
    async with client_of(world.engine) as browser:
        assert (await browser.get("/connections")).headers["location"] == "/login?next=/connections"
        await browser.post("/login", data={"key": secret})
        address = f"/connections/{connection.id}"
        page = await browser.get(address)
        token = re.search(r'name="csrf" value="([0-9a-f]{64})"', page.text)
        assert token is not None

        for data in ({}, {"csrf": "0" * 64}):
            assert (await browser.post(f"{address}/pause", data=data)).status_code == 403
        assert (await world.engine.connections.get(connection.id)).status == "active"
        await browser.post(f"{address}/pause", data={"csrf": token[1]})

    paused = await world.engine.connections.get(connection.id)
    assert paused.status_reason["by"] == "ann"


async def test_a_tenants_key_opens_no_page(acme: Client) -> None:
    for path in (*PAGES, f"/connections/{uuid4()}"):
        refused = await acme.get(path)
        assert refused.status_code == 403, path


async def test_what_people_wrote_by_hand_breaks_no_page(world: World, local: Client) -> None:
    odd = await world.connection(status="error", metadata=[1, 2])
    await world.sql("UPDATE {schema}.connections SET status_reason = '[3]' WHERE id = $1", odd.id)
    await world.job(odd, started_at=world.clock(), error='"just a text"', cursor="7")
    worse = await world.connection(
        metadata={"sync": {"interval_seconds": "soon", "next_run_at": 7, "cursor": None}}
    )
    await world.sql(
        "INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, kind, received_at)"
        " VALUES ('acme', 'github', $1, 'orphan', $2)",
        *(uuid4(), world.clock()),
    )

    for path in (*PAGES, f"/connections/{odd.id}", f"/connections/{worse.id}"):
        page = await local.get(path)
        assert page.status_code == 200, (path, words(page))
    assert "just a text" in (await local.get("/jobs")).text
    assert "orphan" in (await local.get("/signals")).text


async def test_without_the_database_every_page_says_so(client_of_lost_database: Client) -> None:
    page = await client_of_lost_database.get("/")

    assert page.status_code == 503
    assert "The database does not answer" in page.text
    assert "data-retry" in page.text  # it asks again by itself


async def test_a_search_for_a_whole_name_leads_to_its_connection(
    world: World, local: Client
) -> None:
    connection = await named(world, "octo/hello", tenant="a/b")

    led = await local.get("/connections", params={"q": "a%2Fb/github/octo/hello"})
    unknown = await local.get("/connections", params={"q": "a/github/octo/hello"})

    assert (led.status_code, led.headers["location"]) == (303, f"/connections/{connection.id}")
    assert unknown.status_code == 200
    assert "a%2Fb/github/octo/hello" in words(await local.get(led.headers["location"]))
