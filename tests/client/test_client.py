"""Both clients against the real server."""

import asyncio
from typing import Any, assert_type
from uuid import UUID, uuid4

import pytest

from support.api_server import running_api
from support.served import bring
from support.world import World
from syncline.client import (
    AsyncClient,
    Changed,
    Client,
    Conflict,
    Connection,
    Follower,
    Forbidden,
    Invalid,
    Job,
    KeyRefused,
    NotFound,
    Signal,
)

NEW: Any = {"tenant_id": "acme", "provider_slug": "github"}


async def test_connections_from_creation_to_deletion(client: AsyncClient) -> None:
    created = await client.connections.create(**NEW, external_id="a-1", interval_seconds=300)
    assert_type(created, Connection)
    assert (created.tenant_id, created.status) == ("acme", "active")
    assert isinstance(created.id, UUID)

    read = await client.connections.get(created.id)
    assert read == created
    edited = await client.connections.edit(
        created.id, interval_seconds=None, config={"a": 1}, expected=read.version
    )
    assert edited.config == {"a": 1}
    assert "interval_seconds" not in edited.metadata["sync"]
    with pytest.raises(Changed) as changed:
        await client.connections.edit(created.id, cursor=1, expected=read.version)
    assert (changed.value.status, changed.value.code) == (412, "changed")

    paused = await client.connections.pause(created.id, reason="moving house")
    assert paused.status == "paused"
    assert (await client.connections.explain(created.id)).reason == "paused"
    assert (await client.connections.resume(created.id)).status == "active"
    job = await client.connections.sync(created.id, job_type="full", priority=7)
    assert_type(job, Job)
    assert (job.job_type, job.priority) == ("full", 7)
    assert (await client.jobs.cancel(job.id)).status == "cancelled"
    assert (await client.jobs.retry(job.id)).status == "queued"
    await client.connections.delete(created.id)
    with pytest.raises(NotFound):
        await client.connections.get(created.id)


async def test_listings_iterate_over_all_pages(client: AsyncClient) -> None:
    many = [{**NEW, "external_id": f"a-{n:02}"} for n in range(7)]
    added = await client.connections.create_many(many)  # type: ignore[arg-type]
    assert (added.created, added.existing) == (7, 0)

    found = [
        one.external_id
        async for one in client.connections.list(tenant="acme", order="external_id", page_size=3)
    ]

    assert found == [one["external_id"] for one in many]
    assert [one.id async for one in client.jobs.list(status="failed")] == []


async def test_problems_are_exceptions_with_fields(client: AsyncClient, url: str) -> None:
    existing = await client.connections.create(**NEW, external_id="a-1")
    with pytest.raises(Conflict) as conflict:
        await client.connections.create(**NEW, external_id="a-1")
    assert conflict.value.existing_id == existing.id
    with pytest.raises(Invalid) as invalid:
        await client.connections.create(**NEW, external_id="a-2", interval_seconds=5)
    assert (invalid.value.field, invalid.value.status) == ("interval_seconds", 422)
    assert "60" in invalid.value.reason
    with pytest.raises(NotFound) as missing:
        await client.jobs.get(uuid4())
    assert missing.value.code == "not-found"
    assert missing.value.trace_id is not None
    async with AsyncClient(url, "sk_wrong") as stranger:
        with pytest.raises(KeyRefused):
            await stranger.stats.get()


async def test_what_operators_set_and_see(client: AsyncClient, url: str) -> None:
    budget = await client.budgets.set("google", calls=100, per="1m", providers=["gmail"])
    assert (budget.calls, budget.per_seconds) == (100, 60)
    assert [one.scope async for one in client.budgets.list()] == ["google"]
    await client.budgets.clear("google")
    await client.tenants.set_weight("acme", 2)
    assert [one.weight async for one in client.tenants.list() if one.tenant_id == "acme"] == [2]
    await client.caps.set(3, tenant_id="acme")
    assert [one.max_running async for one in client.caps.list()] == [3]
    key = await client.keys.create(name="reader", tenant_id="acme", scope="read")
    assert key.key not in repr(key)
    async with AsyncClient(url, key.key) as reader:
        with pytest.raises(Forbidden):
            await reader.connections.create(provider_slug="github", external_id="x")
    assert (await client.keys.revoke(key.id)).status == "revoked"
    assert {one.name async for one in client.keys.list()} == {"ann", "reader"}
    assert (await client.stats.get()).due_jobs == 0
    assert len((await client.stats.history("24h")).points) == 24
    assert [one.provider_slug async for one in client.providers.list()] == []
    assert await client.providers.floods() == []
    assert (await client.providers.get("github")).provider_slug == "github"
    assert [one.status async for one in client.workers.list()] == []


async def test_names_are_quoted_in_paths(client: AsyncClient) -> None:
    await client.budgets.set("google ?#%2F&ü", calls=1, providers=["gmail"])
    assert [one.scope async for one in client.budgets.list()] == ["google ?#%2F&ü"]


async def test_signals_are_listed_and_followed(world: World, client: AsyncClient) -> None:
    connection = await world.connection()
    await bring(world, connection, range(5))
    listed = [one async for one in client.signals.list(order="oldest", page_size=2)]
    assert_type(listed, list[Signal])
    assert [one.payload["n"] for one in listed] == list(range(5))
    assert await client.signals.get(listed[0].id) == listed[0]

    follower = client.signals.follow(page_size=2)
    assert [signal.payload["n"] for signal in await take(follower, 5)] == list(range(5))
    async for batch in client.signals.follow(follower.position, page_size=2).batches():
        # The position is before the batch that was not finished.
        assert [one.payload["n"] for one in batch.items] == [4]
        break


async def test_a_follower_gets_what_comes_later(world: World, client: AsyncClient) -> None:
    connection = await world.connection()
    follower = client.signals.follow(tenant="acme")
    first = asyncio.create_task(take(follower, 2))
    await bring(world, connection, [1])
    await bring(world, connection, [2])

    assert [signal.payload["n"] for signal in await first] == [1, 2]


async def take(follower: Follower, number: int) -> list[Signal]:
    taken: list[Signal] = []
    async for signal in follower:
        taken.append(signal)
        if len(taken) == number:
            break
    return taken


def test_the_plain_client_does_the_same(database_url: str) -> None:
    with running_api(database_url) as served, Client(served.url, served.keys["tenant"]) as client:
        created = client.connections.create(provider_slug="github", external_id="new")
        assert_type(created, Connection)
        assert client.connections.get(created.id) == created
        found = [one.external_id for one in client.connections.list(page_size=7)]
        assert len(found) == 21
        with pytest.raises(Conflict) as conflict:
            client.connections.create(provider_slug="github", external_id="new")
        assert conflict.value.existing_id == created.id
        for job in client.jobs.list(page_size=2):
            assert_type(job, Job)
            break  # a listing may be left early
        client.connections.delete(created.id)

    with pytest.raises(RuntimeError, match="closed"):
        client.stats.get()


def test_a_url_without_a_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="must begin with http"):
        Client("127.0.0.1:8080", "k")


def test_no_repr_shows_the_key() -> None:
    client = AsyncClient("http://127.0.0.1", "sk_secret")

    assert "sk_secret" not in f"{client!r}{vars(client)!r}{client._transport._options!r}"
