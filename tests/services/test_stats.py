"""One read side: the API, the dashboard and the command line say the same, over the same rows."""

import io
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from rich.console import Console

from support.http import client_of
from support.world import World
from syncline import Connection
from syncline.cli.commands.status import as_json
from syncline.cli.views.screen import read_snapshot
from syncline.cli.views.top import render_status
from syncline.policy.figures import Tally
from syncline.policy.stats import Figure
from syncline.store.queue import caps
from syncline.store.stats import figures
from syncline.store.stats.activity import first_id_at
from syncline.text import rfc3339

HEALTH = {"calendar": "ok", "github": "failing", "mail": "rate_limited", "tickets": "unknown"}
ON_THE_PAGE = {"ok": "ok", "failing": "failing", "rate_limited": "rate limited"}
MINUTE = timedelta(minutes=1)


async def add_worker(world: World, *providers: str) -> None:
    await world.sql(
        "INSERT INTO {schema}.workers VALUES"
        " ($1, 'host-1', 7, '0.1', '{executor}', $2, 8, 3, false, $3, $3)",
        *(uuid4(), list(providers), world.clock()),
    )


async def add_providers(world: World, *, tenant: str = "acme") -> None:
    """Add a provider of each health, with connections, jobs and a worker."""
    await add_worker(world, "calendar", "github", "mail")
    now = world.clock()
    ended = {"started_at": now - 4 * MINUTE, "finished_at": now - 3 * MINUTE}
    good = await world.connection(provider="calendar", tenant=tenant)
    await world.job(good, status="succeeded", **ended)
    bad = await world.connection(provider="github", tenant=tenant)
    error = json.dumps({"class": "Permanent", "message": "410"})
    await world.job(bad, status="failed", error=error, **ended)
    limited = await world.connection(provider="mail", tenant=tenant)
    await add_backoff(world, limited, hinted=True)
    unknown = await world.connection(provider="tickets", tenant=tenant)
    await world.job(unknown, status="succeeded", **ended)
    await add_figures(world, "calendar", {"succeeded": 1})
    await add_figures(world, "github", {"Permanent": 1})


async def add_figures(world: World, provider: str, outcomes: dict[str, int]) -> None:
    """Add what a worker would have reported a minute ago."""
    tallies = {provider: Tally(Counter(outcomes))}
    async with world.engine._pool.transaction() as tx:
        await figures.report(tx, uuid4(), world.clock() - MINUTE, tallies)


async def add_backoff(world: World, connection: Connection, *, hinted: bool) -> None:
    error = json.dumps({"class": "RateLimited", "message": "429", "hinted": hinted})
    retry_after = world.clock() + 5 * MINUTE
    await world.job(connection, retry_after=retry_after, attempts=2, error=error)


def words(html: str) -> str:
    """Return what a page says, without its markup."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", html)).split())


@pytest.fixture
async def client(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(world.engine) as client:
        yield client


async def get_json(client: httpx2.AsyncClient, path: str) -> Any:
    return (await client.get(path)).json()


async def get_words(client: httpx2.AsyncClient, path: str) -> str:
    return words((await client.get(path)).text)


async def show_status(world: World) -> str:
    """Return what `syncline status` prints."""
    snapshot = await read_snapshot(world.engine, limit=8)
    stats = world.engine.stats
    view = render_status(
        snapshot, await stats.providers(), await stats.freshness(), width=200, height=60
    )
    console = Console(file=io.StringIO(), width=200, height=60)
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def status_json(world: World) -> dict[str, Any]:
    """Return what `syncline status --json` prints."""
    snapshot = await read_snapshot(world.engine, limit=8)
    stats = world.engine.stats
    return as_json(snapshot, await stats.providers(), await stats.freshness())


async def test_all_three_say_the_same_health(world: World, client: httpx2.AsyncClient) -> None:
    await add_providers(world)

    api = await get_json(client, "/v1/providers")
    page = await get_words(client, "/providers")
    printed = await show_status(world)
    as_printed = {
        one["provider_slug"]: one["health"] for one in (await status_json(world))["providers"]
    }

    assert {one["provider_slug"]: one["health"] for one in api["items"]} == HEALTH
    for slug, health in HEALTH.items():
        assert f"{slug} {ON_THE_PAGE.get(health, 'no worker')} 1 connection" in page
    assert (
        f"Providers: {', '.join(f'{slug} {health}' for slug, health in HEALTH.items())}" in printed
    )
    assert as_printed == HEALTH


async def add_troubles(world: World) -> datetime:
    """Let one provider be down, one limit us and one tenant flood; return since when."""
    await add_worker(world, "calendar", "github", "mail")
    now = world.clock()
    for number in range(3):
        down = await world.connection(provider="github", tenant=f"tenant {number}")
        await world.job(down, scheduled_at=now - MINUTE)
        limited = await world.connection(provider="mail", tenant=f"tenant {number % 2}")
        await add_backoff(world, limited, hinted=True)
    later = await world.connection(provider="github", tenant="tenant 9")
    await world.job(later, scheduled_at=now + MINUTE)
    await add_figures(world, "github", {"Transient": 9})
    await add_figures(world, "mail", {"RateLimited": 3, "succeeded": 9})
    await world.sql(
        "INSERT INTO {schema}.gates (provider_slug, opened_at, opened_because)"
        " VALUES ('github', $1, 'most attempts failed')",
        now - 5 * MINUTE,
    )
    async with world.engine._pool.transaction() as tx:
        await caps.note_heavy(tx, {"flood": 4000}, others=7, now=now - MINUTE)
    async with world.engine._pool.transaction() as tx:
        await caps.note_heavy(tx, {"flood": 41_000}, others=8, now=now)
    return now


async def test_all_four_name_what_is_down_what_limits_and_who_floods(
    world: World, client: httpx2.AsyncClient
) -> None:
    now = await add_troubles(world)
    down = (
        f"github: does not answer since {rfc3339(now - 5 * MINUTE)}; mostly Transient;"
        " 3 connections of 3 tenants wait."
    )
    started = (now - MINUTE).replace(second=0, microsecond=0)
    limited = f"mail: limits us since {rfc3339(started)}; 3 connections of 2 tenants wait."
    flood = (
        f"flood: asks for more than its share since {rfc3339(now - MINUTE)};"
        " 41,000 jobs of it are due; 8 other tenants have jobs due and come first."
    )

    printed = " ".join((await show_status(world)).split())
    api = await get_json(client, "/v1/providers")
    told = [f"{one['provider_slug']}: {one['trouble']}" for one in api["items"] if one["trouble"]]
    told += [f"{one['tenant_id']}: {one['trouble']}" for one in api["floods"]]
    pages = [await get_words(client, path) for path in ("/", "/providers")]

    assert told == [down, limited, flood]
    for sentence in (down, limited, f"Tenant {flood}"):
        assert sentence in printed
    for page in pages:
        for sentence in (down, limited, flood):
            assert sentence.partition(": ")[2] in page
        assert flood.replace(":", "", 1) in page


async def test_a_tenant_does_not_learn_of_floods(world: World) -> None:
    await add_troubles(world)
    assert (await world.engine.stats.providers(tenant_id="flood")).floods == []


async def test_affected_counts_that_end_at_their_bound_say_so(
    world: World, client: httpx2.AsyncClient
) -> None:
    now = await add_troubles(world)
    await world.sql(
        "WITH added AS (INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id)"
        " SELECT 'tenant ' || n % 4, 'github', n::text FROM generate_series(1, 10000) n"
        " RETURNING *)"
        " INSERT INTO {schema}.sync_jobs (connection_id, tenant_id, provider_slug, scheduled_at)"
        " SELECT id, tenant_id, provider_slug, $1 FROM added",
        now - 2 * MINUTE,
    )
    by_slug = {
        one["provider_slug"]: one for one in (await get_json(client, "/v1/providers"))["items"]
    }
    bounded = {"affected_connections": "at_least", "affected_tenants": "at_least"}
    assert bounded.items() <= by_slug["github"]["inexact"].items()
    assert by_slug["mail"]["inexact"] == {}
    told = "at least 10,000 connections of at least 4 tenants wait"
    assert told in by_slug["github"]["trouble"]


async def test_one_of_many_connections_that_waits_is_no_rate_limit(
    world: World, client: httpx2.AsyncClient
) -> None:
    """The API once called a provider rate limited as soon as a single job waited."""
    await add_worker(world, "github")
    await world.sql(
        "INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id)"
        " SELECT 'acme', 'github', n::text FROM generate_series(1, 60) n"
    )
    await add_backoff(world, await world.connection(), hinted=True)
    await world.job(await world.connection(), status="succeeded", finished_at=world.clock())
    await world.job(await world.connection(), status="succeeded", finished_at=world.clock())

    [provider] = (await get_json(client, "/v1/providers"))["items"]

    assert (provider["health"], provider["rate_limited"], provider["backoff"]) == ("ok", 1, 1)
    assert "github ok 63 connections" in await get_words(client, "/providers")
    assert "Providers: github ok" in await show_status(world)


async def test_all_three_say_the_same_freshness(world: World, client: httpx2.AsyncClient) -> None:
    now = world.clock()
    await world.connection(last_finished=now - 3 * MINUTE)
    await world.connection(last_finished=now - 10 * MINUTE)
    await world.connection()
    await world.connection(status="paused")

    api = (await get_json(client, "/v1/stats"))["freshness"]
    page = await get_words(client, "/")

    counts = {band["label"]: band["count"] for band in api["bands"] if band["count"]}
    assert counts == {"≤ 5 min": 1, "≤ 15 min": 1, "never": 1}
    assert "≤ 5 min 1 ≤ 15 min 1 ≤ 1 h 0" in page
    assert "never 1" in page
    assert "Last good sync: ≤ 5 min: 1, ≤ 15 min: 1, never: 1" in await show_status(world)
    assert json.loads(json.dumps((await status_json(world))["freshness"])) == api


async def test_all_three_say_the_same_troubles(world: World, client: httpx2.AsyncClient) -> None:
    broken = await world.connection(status="error")
    signed_out = await world.connection(status="needs_reauth")
    failing = await world.connection()
    await add_backoff(world, failing, hinted=False)
    await world.connection(status="paused")
    expected = {broken.id: "error", signed_out.id: "needs_reauth", failing.id: "backoff"}

    api = (await get_json(client, "/v1/stats"))["troubles"]
    page = (await client.get("/")).text
    printed = await show_status(world)
    in_json = (await status_json(world))["troubles"]

    assert {one["connection_id"]: one["status"] for one in api} == {
        str(id_): status for id_, status in expected.items()
    }
    assert {one["connection_id"]: one["status"] for one in in_json} == expected
    for id_, status in expected.items():
        assert f'href="/connections/{id_}"' in page
        assert status in printed
    assert "RateLimited: 429" in words(page)
    assert "RateLimited: 429" in printed


async def test_all_three_say_the_same_queue(world: World, client: httpx2.AsyncClient) -> None:
    now = world.clock()
    await world.job(await world.connection(), scheduled_at=now - 7 * MINUTE)
    await add_backoff(world, await world.connection(), hinted=False)
    await world.running_job(await world.connection())
    for _ in range(2):
        await world.job(await world.connection(), scheduled_at=now + MINUTE)

    api = await get_json(client, "/v1/stats")
    page = await get_words(client, "/")

    assert (api["due_jobs"], api["running_jobs"], api["backoff_jobs"]) == (1, 1, 1)
    assert (
        api["later_jobs"] == (await world.engine.stats.overview(tenant_id="acme")).queue.later == 2
    )
    assert "Due now 1 the oldest for 7 min ; 2 scheduled for later" in page
    assert "Running 1" in page
    assert "In backoff 1" in page
    printed = await show_status(world)
    assert "Due and waiting: 1, the oldest for 7 min (github 1); scheduled for later: 2" in printed
    assert (await status_json(world))["queue"]["depth_by_provider"] == {"github": 1}


@pytest.mark.parametrize("tenant_id", [None, "acme"])
async def test_a_tenant_is_counted_as_everybody_is(world: World, tenant_id: str | None) -> None:
    """With one tenant there is, both ways of counting come to the same."""
    await add_providers(world)
    await world.connection(status="error")
    await world.job(await world.connection(), scheduled_at=world.clock() - MINUTE)

    seen = await world.engine.stats.overview(tenant_id=tenant_id)
    found = await world.engine.stats.providers(tenant_id=tenant_id)
    fresh = await world.engine.stats.freshness(tenant_id=tenant_id)

    assert {one.provider_slug: one.health for one in found.items} == HEALTH
    assert {name: one.count for name, one in seen.counts.by_status.items() if one.count} == {
        "active": 5,
        "error": 1,
    }
    assert (seen.queue.due, seen.queue.backoff, seen.queue.rate_limited) == (1, 1, 1)
    assert seen.outcomes["github"] == {"Permanent": 1}
    assert [one.status for one in seen.troubles] == ["error", "backoff"]
    assert {band.label: band.count for band in fresh.bands if band.count} == {
        "≤ 5 min": 2,
        "never": 3,
    }


async def test_a_tenant_sees_nothing_of_others(world: World) -> None:
    await add_providers(world, tenant="birch")
    await world.connection(tenant="birch", status="error")

    seen = await world.engine.stats.overview(tenant_id="acme")
    fresh = await world.engine.stats.freshness(tenant_id="acme")

    assert (await world.engine.stats.providers(tenant_id="acme")).items == []
    assert (seen.counts.connections.count, seen.counts.signals.count) == (0, 0)
    assert (seen.queues, seen.outcomes, seen.failed, seen.troubles) == ({}, {}, {}, [])
    assert fresh.sampled == 0


async def test_a_count_that_is_not_exact_says_so(world: World, client: httpx2.AsyncClient) -> None:
    """Above a bound the planner's estimate is shown, and before there is one, the bound."""
    await world.sql(
        "INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id)"
        " SELECT 'acme', 'github', n::text FROM generate_series(1, 20001) n"
    )
    bounded = await get_json(client, "/v1/stats")
    of_tenant = await world.engine.stats.overview(tenant_id="acme")

    await world.sql("ANALYZE {schema}.connections")
    estimated = await get_json(client, "/v1/stats")
    [provider] = (await get_json(client, "/v1/providers"))["items"]

    assert (bounded["connections"], bounded["inexact"]) == (
        {"active": 20_000},
        {"connections": "at_least"},
    )
    assert of_tenant.counts.connections == Figure(20_000, "at_least")
    assert (estimated["connections"], estimated["inexact"]) == (
        {"active": 20_001},
        {"connections": "estimate"},
    )
    assert provider["inexact"] == {"connections": "estimate"}
    assert "≈ 20,001 connections: ≈ 20,001 active" in await show_status(world)
    assert (await status_json(world))["inexact"] == {"summary.connections.active": "estimate"}


async def test_an_estimate_that_is_read_again_does_not_jump(world: World) -> None:
    """A sample is of the same rows each time, so the numbers change only as the rows do."""
    await world.sql(
        "INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id, status)"
        " SELECT 'acme', 'mail-' || (hashint4(n) & 7) % 3, n::text,"
        "        CASE WHEN (hashint4(n) & 255) < 9 THEN 'error' ELSE 'active' END"
        "   FROM generate_series(1, 60000) n"
    )
    await world.sql("ANALYZE {schema}.connections")

    async def read() -> tuple[list[dict[str, int]], list[int]]:
        found = await world.engine.stats.providers()
        fresh = await world.engine.stats.freshness()
        assert (found.kind, fresh.is_sample) == ("estimate", True)
        return [dict(one.connections) for one in found.items], [b.count for b in fresh.bands]

    first = await read()
    assert [await read() for _ in range(3)] == [first] * 3
    await world.sql(
        "INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id)"
        " SELECT 'birch', 'mail-0', n::text FROM generate_series(1, 100) n"
    )
    before, after = (
        sum(map(sum, (one.values() for one in found[0]))) for found in (first, await read())
    )
    assert abs(after - before) <= 0.02 * before


async def test_an_exact_count_becomes_an_estimate_without_a_jump(world: World) -> None:
    """Around the bound, at which counting ends, the next refresh says nearly the same."""
    add = (
        "INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id)"
        " SELECT 'acme', 'github', n::text FROM generate_series($1::int, $2::int) n"
    )
    await world.sql(add, 1, 19_990)
    await world.sql("ANALYZE {schema}.connections")
    seen = [(await world.engine.stats.overview()).counts.connections]
    await world.sql(add, 19_991, 20_100)  # the planner does not know of them yet
    seen.append((await world.engine.stats.overview()).counts.connections)
    await world.sql("ANALYZE {schema}.connections")
    seen.append((await world.engine.stats.overview()).counts.connections)

    assert seen == [Figure(19_990), Figure(20_000, "at_least"), Figure(20_100, "estimate")]


async def test_only_the_largest_floods_are_listed(world: World) -> None:
    until = world.clock() + MINUTE
    await world.sql(
        "INSERT INTO {schema}.tenant_shares (tenant_id, heavy_since, heavy_until, heavy_due)"
        " SELECT 'flood-' || n, $1, $1, n FROM generate_series(1, 9) n",
        until,
    )
    shown = await show_status(world)
    assert "Tenant flood-9: " in shown
    assert "flood-4" not in shown
    assert "4 more: syncline tenants list" in shown


async def test_failures_from_before_empty_runs_are_kept_do_not_count(world: World) -> None:
    """Empty runs of that time are gone, so the failures that are left say nothing."""
    now, day = world.clock(), timedelta(days=1)
    error = json.dumps({"class": "Permanent", "message": "410"})
    for age in (2 * day, MINUTE):
        columns = {"id": first_id_at(now - age), "finished_at": now - age, "error": error}
        await world.job(await world.connection(), status="failed", **columns)
    retried = {"id": first_id_at(now - 3 * day), "attempts": 9, "error": error}
    await world.job(await world.connection(), **retried, retry_after=now + MINUTE)

    overview = await world.engine.stats.overview(tenant_id="acme")

    assert overview.outcomes == {"github": {"Permanent": 2}}
