"""Filters of `/v1/connections` and `/v1/jobs`: repeated statuses, times, durations, errors."""

import json
from typing import Any

import httpx2
import pytest

from support.world import World, at
from syncline import Signal, SyncResult

Client = httpx2.AsyncClient


async def ids(client: Client, address: str) -> list[str]:
    """Return the ids of all pages, three items at a time."""
    found: list[str] = []
    page: dict[str, Any] = {"next_page": ""}
    while page["next_page"] is not None:
        after = f"&page={page['next_page']}" if page["next_page"] else ""
        answer = await client.get(f"/v1/{address}&limit=3{after}")
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += [one["id"] for one in page["items"]]
    return found


@pytest.mark.parametrize("order", ["id", "external_id", "staleness"])
@pytest.mark.parametrize("tenant", ["", "&tenant=acme"])
async def test_connections_of_several_statuses(
    world: World, local: Client, order: str, tenant: str
) -> None:
    statuses = ("active", "paused", "error", "needs_reauth")
    made = [
        await world.connection(status=status, last_finished=f"0{n % 5}:00")
        for n in range(2)
        for status in statuses
    ]
    everything = await ids(local, f"connections?order={order}{tenant}")
    wanted = {str(one.id) for one in made if one.status in ("active", "error", "paused")}

    found = await ids(
        local, f"connections?status=paused&status=error&status=active&order={order}{tenant}"
    )

    assert found == [one for one in everything if one in wanted]


@pytest.mark.parametrize("whose", ["", "&tenant=acme", "&connection={id}"])
async def test_jobs_of_several_statuses(world: World, local: Client, whose: str) -> None:
    connection = await world.connection()
    wanted = set()
    for n in range(8):
        status = ("failed", "cancelled", "succeeded", "succeeded")[n % 4]
        job = await world.job(connection, status=status, finished_at=at(f"0{n}:00"))
        wanted |= {str(job)} if status != "succeeded" else set()
    wanted.add(str(await world.running_job(connection)))
    whose = whose.format(id=connection.id)
    everything = await ids(local, f"jobs?{whose}")

    found = await ids(local, f"jobs?status=failed&status=running&status=cancelled{whose}")

    assert found == [one for one in everything if one in wanted]
    assert len(found) == 5


async def test_a_state_of_the_queue_stands_alone(world: World, local: Client) -> None:
    connection = await world.connection()
    due = await world.job(connection)

    assert await ids(local, "jobs?status=due") == [str(due)]
    refused = await local.get("/v1/jobs?status=due&status=failed")
    assert refused.json()["errors"][0]["field"] == "status"


async def test_jobs_by_times_duration_and_error(world: World, local: Client) -> None:
    connection = await world.connection()
    quick = await world.job(
        connection, status="succeeded", started_at=at("01:00"), finished_at=at("01:00:05")
    )
    slow = await world.job(
        connection,
        status="failed",
        started_at=at("02:00"),
        finished_at=at("02:10"),
        error='{"class": "Permanent", "message": "gone"}',
    )
    day = "2025-01-01T"

    for query, expected in (
        (f"started_after={day}02:00:00Z", [slow]),
        (f"started_before={day}02:00:00Z", [quick]),
        (f"finished_after={day}02:10:00Z", [slow]),
        (f"finished_before={day}02:10:00Z", [quick]),
        ("min_duration_seconds=5.5", [slow]),
        ("max_duration_seconds=5.5", [quick]),
        ("error_class=Permanent", [slow]),
        ("order=slowest", [slow, quick]),
        ("order=slowest&status=failed&status=succeeded", [slow, quick]),
    ):
        assert await ids(local, f"jobs?{query}") == [str(one) for one in expected], query
    refused = await local.get("/v1/jobs?min_duration_seconds=-1")
    assert refused.json()["errors"][0]["field"] == "min_duration_seconds"
    refused = await local.get(f"/v1/jobs?started_after={day}02:00:00")
    assert refused.json()["errors"][0]["field"] == "started_after"


@pytest.mark.parametrize("whose", ["", "&tenant=acme", "&connection={id}"])
@pytest.mark.parametrize("order", ["newest", "oldest"])
async def test_signals_by_when_they_happened(
    world: World, local: Client, whose: str, order: str
) -> None:
    connection = await world.connection()
    hours = [
        Signal(kind="k", occurred_at=at(f"0{hour}:00"), payload={"hour": hour}) for hour in range(5)
    ]
    world.script(SyncResult(signals=hours))
    await world.engine.trigger(connection.id)
    await world.run_due()
    whose = whose.format(id=connection.id) + f"&order={order}"
    span = "occurred_since=2025-01-01T01:00:00Z&occurred_until=2025-01-01T04:00:00Z"

    found = (await local.get(f"/v1/signals?{span}{whose}")).json()["items"]
    bare = (await local.get(f"/v1/signals?{span}{whose}&payload=false")).json()["items"]

    assert sorted(one["payload"]["hour"] for one in found) == [1, 2, 3]
    assert bare == [{**one, "payload": None} for one in found]
    assert await ids(local, f"signals?{span}{whose}") == [one["id"] for one in found]
    refused = await local.get("/v1/signals?occurred_since=2025-01-01T01:00:00")
    assert refused.json()["errors"][0]["field"] == "occurred_since"


async def test_a_stream_of_signals_by_when_they_happened(world: World, local: Client) -> None:
    connection = await world.connection()
    old, new = (
        Signal(kind="k", occurred_at=at(time), payload={"at": time}) for time in ("01:00", "02:00")
    )
    world.script(SyncResult(signals=[old, new]))
    await world.engine.trigger(connection.id)
    await world.run_due()

    address = "/v1/signals/stream?occurred_since=2025-01-01T02:00:00Z"
    [line] = (await local.get(address)).text.splitlines()
    [bare] = (await local.get(f"{address}&payload=false")).text.splitlines()

    assert json.loads(line)["payload"] == {"at": "02:00"}
    assert json.loads(bare)["payload"] is None
