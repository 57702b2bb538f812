"""`/v1/jobs` and `/v1/signals`, on a real database."""

import asyncio
import json
from typing import Any
from uuid import UUID

import httpx2

from support.http import client_of
from support.world import World, at
from syncline import Permanent, Signal, SyncResult, Transient
from syncline.api.timeouts import Timeouts
from syncline.store.listings.follow import ROWS_SCANNED

Client = httpx2.AsyncClient


async def add_signals(
    world: World, count: int, *, tenant: str = "acme", kind: str = "seen"
) -> None:
    connection = await world.connection(tenant=tenant)
    await world.sql(
        "INSERT INTO {schema}.signals (id, tenant_id, provider_slug, connection_id, kind, payload)"
        " SELECT gen_random_uuid(), $2, 'github', $3, $4, '{\"n\": 1}'"
        " FROM generate_series(1, $1)",
        *(count, tenant, connection.id, kind),
    )


async def test_a_failed_job_is_shown_with_its_error_and_retried(
    world: World, local: Client
) -> None:
    connection = await world.connection()
    await world.tick()
    await world.run_one(Permanent("gone"))
    await local.post(f"/v1/connections/{connection.id}/resume")

    [failed] = (await local.get("/v1/jobs?status=failed")).json()["items"]
    shown = (await local.get(f"/v1/jobs/{failed['id']}")).json()
    retried = await local.post(f"/v1/jobs/{failed['id']}/retry", headers={"Idempotency-Key": "1"})
    again = await local.post(f"/v1/jobs/{failed['id']}/retry", headers={"Idempotency-Key": "1"})

    assert shown["error"]["class"] == "Permanent"
    assert shown["error"]["message"] == "gone"
    assert retried.status_code == again.status_code == 202
    assert retried.json() == again.json()
    assert retried.json()["id"] != failed["id"]


async def test_the_failed_attempts_of_a_job_are_listed(world: World, local: Client) -> None:
    job_id = await world.job(await world.connection())
    for message in ("first", "second"):
        world.script(Transient(message))
        await world.run_due()
        world.clock.advance(3600)

    last, first = (await local.get(f"/v1/jobs/{job_id}/attempts")).json()["items"]

    assert (first["error"]["message"], last["error"]["message"]) == ("first", "second")
    assert "raise line" in last["trace"]
    assert (last["calls"], last["call_count"], last["signals"]) == ([], 0, 0)
    assert last["worker"]


async def test_signals_are_found_by_their_job(world: World, local: Client) -> None:
    job_id = await world.job(await world.connection())
    world.script(SyncResult([Signal("mine", at("10:00"), {})], next_cursor=1))
    await world.run_due()
    await add_signals(world, 1)

    listed = (await local.get(f"/v1/signals?job_id={job_id}")).json()["items"]
    streamed = (await local.get(f"/v1/signals/stream?job_id={job_id}")).text
    followed = (await local.get(f"/v1/signals/follow?job_id={job_id}")).json()["items"]

    assert [one["kind"] for one in listed] == [one["kind"] for one in followed] == ["mine"]
    assert [json.loads(line)["kind"] for line in streamed.splitlines()] == ["mine"]
    missing = await local.get("/v1/signals?job_id=00000000-0000-0000-0000-000000000000")
    assert missing.status_code == 404


async def test_a_job_says_what_its_run_brought(world: World, local: Client) -> None:
    job_id = await world.job(await world.connection(sync={"cursor": {"at": 1}}))
    world.script(SyncResult([Signal("mine", at("10:00"), {})], next_cursor={"at": 2}))
    await world.run_due()

    brought = (await local.get(f"/v1/jobs/{job_id}")).json()["brought"]

    assert brought.pop("milliseconds") >= 0
    assert brought == {
        "calls": 0,
        "signals": 1,
        "cursor_before": {"at": 1},
        "cursor_after": {"at": 2},
    }


async def test_a_tenant_sees_its_attempts_without_traces(world: World) -> None:
    jobs = [await world.job(await world.connection(tenant=one)) for one in ("acme", "birch")]
    world.script(Transient("down"), Transient("down"))
    await world.run_due()
    _, key = await world.engine.access.create_key("acme's", tenant_id="acme")

    async with client_of(world.engine, key) as client:
        [own] = (await client.get(f"/v1/jobs/{jobs[0]}/attempts")).json()["items"]
        foreign = await client.get(f"/v1/jobs/{jobs[1]}/attempts")

    assert own["error"]["message"] == "down"
    assert (own["trace"], own["worker"]) == (None, None)
    assert foreign.status_code == 404


async def test_a_queued_and_a_running_job_are_cancelled(world: World, local: Client) -> None:
    connection = await world.connection()
    queued = await world.job(connection, job_type="full")
    running = await world.running_job(connection)

    for job in (queued, running):
        assert (await local.post(f"/v1/jobs/{job}/cancel")).json()["status"] == "cancelled"
        assert (await local.post(f"/v1/jobs/{job}/cancel")).status_code == 409


async def test_jobs_are_filtered(world: World, local: Client) -> None:
    ours, theirs = await world.connection(), await world.connection(tenant="birch")
    job = await world.job(ours)
    await world.job(theirs, job_type="full")

    for query in ("tenant=acme", f"connection={ours.id}", "type=incremental"):
        found = (await local.get(f"/v1/jobs?{query}")).json()["items"]
        assert [one["id"] for one in found] == [str(job)], query


async def test_a_bad_query_for_jobs_is_refused(local: Client) -> None:
    for query in (
        *("since=yesterday", "since=2025-01-01T00:00:00", "until=0001-01-01T00:00:00Z"),
        *("connection=7", "type=weekly", "status=done", "limit=-1", "page=x"),
    ):
        answer = await local.get(f"/v1/jobs?{query}")

        assert answer.status_code == 422, query
        assert answer.json()["errors"][0]["field"] == query.partition("=")[0]


async def test_signals_are_listed_shown_and_streamed(world: World, local: Client) -> None:
    await add_signals(world, 1200)
    await add_signals(world, 3, kind="other")

    page = (await local.get("/v1/signals?kind=other&order=oldest&limit=2")).json()
    shown = await local.get(f"/v1/signals/{page['items'][0]['id']}")
    stream = await local.get("/v1/signals/stream?kind=seen")

    assert len(page["items"]) == 2
    assert page["next_page"] is not None
    assert shown.json() == page["items"][0]
    assert stream.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in stream.text.splitlines()]
    assert len({line["id"] for line in lines}) == len(lines) == 1200
    assert lines[0]["payload"] == {"n": 1}


async def test_an_empty_stream(local: Client) -> None:
    assert (await local.get("/v1/signals/stream")).text == ""


async def test_following_tells_each_signal_once(world: World, local: Client) -> None:
    await add_signals(world, 5)
    seen: list[str] = []
    position, is_caught_up = "start", False
    while not is_caught_up:
        address = f"/v1/signals/follow?position={position}&limit=2"
        answer = (await local.get(address)).json()
        seen += [one["id"] for one in answer["items"]]
        position, is_caught_up = answer["position"], answer["is_caught_up"]
    await add_signals(world, 1)

    new = (await local.get(f"/v1/signals/follow?position={position}")).json()["items"]

    assert len(set(seen)) == len(seen) == 5
    assert len(new) == 1


async def test_following_with_a_rare_filter_says_how_far_it_came_when_its_time_is_up(
    world: World,
) -> None:
    await add_signals(world, ROWS_SCANNED + 1)
    answers, position = [], "start"
    async with client_of(world.engine, timeouts=Timeouts(search_seconds=0)) as client:
        for _ in range(2):
            address = f"/v1/signals/follow?kind=rare&position={position}"
            answers.append((await client.get(address)).json())
            position = answers[-1]["position"]

    assert [answer["items"] for answer in answers] == [[], []]
    assert [answer["is_caught_up"] for answer in answers] == [False, True]
    assert len({answer["position"] for answer in answers}) == 2


async def test_following_says_that_the_server_changed(world: World, local: Client) -> None:
    await add_signals(world, 2)
    await world.sql("UPDATE {schema}.signals SET server_start = '2020-01-01'")
    first = (await local.get("/v1/signals/follow?limit=1")).json()
    await add_signals(world, 1)

    here = f"position={first['position']}"
    second = (await local.get(f"/v1/signals/follow?limit=1&{here}")).json()
    both = (await local.get(f"/v1/signals/follow?limit=2&{here}")).json()
    world.engine.stop()
    tail = (await local.get(f"/v1/signals/tail?{here}")).text.splitlines()

    told = [answer["server_changed"] for answer in (first, second, both)]
    assert told == [False, False, True]
    assert json.loads(tail[-1]) == {"position": both["position"], "server_changed": True}


async def test_a_position_of_version_0_1_goes_on(world: World, local: Client) -> None:
    await add_signals(world, 3)
    answer = (await local.get("/v1/signals/follow?limit=1")).json()
    server_start, _, as_in_0_1 = answer["position"].partition(".")

    rest = (await local.get(f"/v1/signals/follow?position={as_in_0_1}")).json()
    assert (len(rest["items"]), rest["server_changed"]) == (2, False)
    assert rest["position"].startswith(f"{server_start}.")


async def test_a_position_of_another_database_is_gone(local: Client) -> None:
    for path in ("follow", "tail"):
        answer = await local.get(f"/v1/signals/{path}?position=1577836800000000.7.{'0' * 32}")
        assert (answer.status_code, answer.json()["type"]) == (
            410,
            "/docs#problem-position-lost",
        )


async def test_following_waits_for_something_new(world: World, local: Client) -> None:
    end = (await local.get("/v1/signals/follow?position=now")).json()["position"]
    waiting = asyncio.create_task(local.get(f"/v1/signals/follow?position={end}&wait=20"))
    await add_signals(world, 1)

    assert len((await waiting).json()["items"]) == 1


async def test_a_position_of_ones_own_making_is_refused(local: Client) -> None:
    for position in ("", "x", "1", "1.x", "-1.0", "9" * 30, "1." + "0" * 31, "1.1.1"):
        for path in ("follow", "tail"):
            answer = await local.get(f"/v1/signals/{path}", params={"position": position})
            assert answer.status_code == 422, position
            assert answer.json()["errors"][0]["field"] == "position"


async def test_a_tail_goes_on_from_a_position_and_ends_with_the_engine(
    world: World, local: Client
) -> None:
    await add_signals(world, 3)
    start = (await local.get("/v1/signals/follow?limit=1")).json()

    world.engine.stop()  # the tail of an engine that drains ends after what is there
    tail = await local.get(f"/v1/signals/tail?position={start['position']}")

    lines: list[dict[str, Any]] = [json.loads(line) for line in tail.text.splitlines()]
    assert len([line for line in lines if "signal" in line]) == 2
    assert "position" in lines[-1]


async def test_providers_and_workers(world: World, local: Client) -> None:
    connection = await world.connection()
    await world.job(connection, retry_after=at("13:00"), attempts=1, error='{"hinted": true}')
    await world.sql(
        "INSERT INTO {schema}.workers (id, host, pid, version, roles, providers, slots, busy,"
        " stopping, started_at, beat_at)"
        " VALUES ($1, 'box', 1, '1', '{executor}', '{github}', 5, 0, false, $2, $2)",
        *(UUID(int=1), at("12:00")),
    )

    [provider] = (await local.get("/v1/providers")).json()["items"]
    [worker] = (await local.get("/v1/workers")).json()["items"]
    stats = (await local.get("/v1/stats")).json()

    assert (provider["provider_slug"], provider["health"]) == ("github", "rate_limited")
    assert (provider["backoff"], provider["workers"]) == (1, 1)
    assert (worker["host"], worker["status"]) == ("box", "alive")
    assert (stats["backoff_jobs"], stats["workers_alive"]) == (1, 1)
