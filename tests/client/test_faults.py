"""A client rides out what passes, and nothing happens twice: real servers, lost answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from support.api_server import running_api
from support.cut_link import CutLink
from support.served import bring, served
from support.world import World
from syncline import Engine, Settings
from syncline.api.server import Listener, serving
from syncline.client import (
    AsyncClient,
    Batch,
    Changed,
    Client,
    History,
    NotFound,
    PositionLost,
    Signal,
    TooManyRequests,
    Unavailable,
    Unreachable,
)
from syncline.client.calls import Call
from syncline.client.transport import Options, Transport
from syncline.clock import monotonic
from syncline.settings import ApiSettings
from syncline.testing.database import TemporaryServer

HISTORY: Call[History] = Call("GET", "/v1/stats/history", History)


@pytest.fixture
async def link(url: str) -> AsyncIterator[CutLink]:
    async with CutLink(urlsplit(url).port or 0) as link:
        yield link


@pytest.fixture
async def cut(world: World, link: CutLink) -> AsyncIterator[AsyncClient]:
    """An operator's client whose answers can be lost."""
    _, key = await world.engine.access.create_key("ann")
    async with AsyncClient(link.url, key) as client:
        yield client


async def test_a_connection_is_created_once_although_the_answer_is_lost(
    world: World, cut: AsyncClient, link: CutLink
) -> None:
    link.lose_answers = 2

    created = await cut.connections.create(
        tenant_id="acme", provider_slug="github", external_id="a-1"
    )

    assert link.lose_answers == 0
    assert link.connections == 3
    assert [one.id for one in await world.engine.connections.list()] == [created.id]


async def test_a_job_is_retried_once_although_the_answer_is_lost(
    world: World, cut: AsyncClient, link: CutLink
) -> None:
    connection = await world.connection()
    failed = await world.job(connection, status="failed", finished_at=world.clock())
    link.lose_answers = 1

    job = await cut.jobs.retry(failed)

    assert {one.id for one in await world.engine.jobs.list()} == {failed, job.id}


async def test_a_deletion_whose_answer_is_lost_is_done(
    world: World, cut: AsyncClient, link: CutLink
) -> None:
    connection = await world.connection()
    link.lose_answers = 1

    await cut.connections.delete(connection.id)

    assert await world.engine.connections.list() == []


async def test_what_cannot_be_repeated_is_sent_once(
    world: World, cut: AsyncClient, link: CutLink
) -> None:
    connection = await cut.connections.get((await world.connection()).id)
    link.lose_answers = 1
    with pytest.raises(Unreachable):
        await cut.keys.create(name="reader")
    assert [key.name for key in await world.engine.access.list_keys()] == ["ann", "reader"]

    link.lose_answers = 1
    with pytest.raises(Unreachable):  # a second attempt would meet the first one's change
        await cut.connections.edit(connection.id, interval_seconds=60, expected=connection.version)
    with pytest.raises(Changed):
        await cut.connections.pause(connection.id, expected=connection.version)


async def test_a_server_that_is_away_is_unreachable_after_some_attempts(world: World) -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    async with served(world) as url:
        pass
    transport = Transport(Options(url, None, attempts=4, wait=wait))
    with pytest.raises(Unreachable, match="Connect"):
        await transport.send(HISTORY)
    await transport.close()

    assert len(waits) == 3
    assert 0.125 <= waits[0] <= 0.25 <= waits[1] <= 0.5 <= waits[2] <= 1


@pytest.mark.engine(api={"requests_per_second": 1, "burst": 2})
async def test_too_many_requests_wait_as_long_as_the_server_asks(world: World, url: str) -> None:
    _, key = await world.engine.access.create_key("ann")
    async with AsyncClient(url, key) as client:
        began = monotonic()
        for _ in range(3):
            await client.stats.history()
        assert monotonic() - began >= 0.9
    async with AsyncClient(url, key, attempts=1) as client:
        with pytest.raises(TooManyRequests) as refused:
            await asyncio.gather(*(client.stats.history() for _ in range(3)))
    assert refused.value.retry_after == 1


async def test_a_database_that_is_away_is_waited_for() -> None:
    with TemporaryServer() as server:
        settings = Settings(database_url=server.create_database(), pool_size=4)
        async with Engine(settings) as engine:
            await engine.migrate()
            with closing(Listener(ApiSettings(port=0))) as listener:
                async with serving(engine, listener, page=False):
                    await ride_out(server, listener.url)


async def ride_out(server: TemporaryServer, url: str) -> None:
    refused: list[float] = []

    async def start_again(seconds: float) -> None:
        refused.append(seconds)
        if len(refused) == 1:
            server.start()
        await asyncio.sleep(0.05)

    transport = Transport(Options(url, None, attempts=60, wait=start_again))
    await transport.send(HISTORY)
    server.stop()
    with pytest.raises(Unavailable) as away:
        await transport.send(HISTORY, attempts=1)
    assert away.value.retry_after == 2
    found = await transport.send(HISTORY)
    await transport.close()

    assert len(found.points) == 60
    assert refused[0] >= 2


async def test_a_follower_goes_on_after_a_restart_and_lost_answers(world: World) -> None:
    connection = await world.connection()
    taken: list[Signal] = []
    async with served(world) as url:
        await bring(world, connection, range(3))
        async with AsyncClient(url) as client:
            follower = client.signals.follow(page_size=2)
            async for signal in follower:
                taken.append(signal)
                if len(taken) == 3:
                    break
            position = follower.position
    # The server is away now.
    async with AsyncClient(url) as client:
        batches = client.signals.follow(position, page_size=2).batches()
        waiting_for_it = asyncio.create_task(collect(batches, 4))
        await bring(world, connection, range(3, 6))
        async with served(world, urlsplit(url).port or 0):
            found = await waiting_for_it

    assert [one.payload["n"] for one in taken] == [0, 1, 2]
    assert found == [2, 3, 4, 5]  # the batch of 2 was not finished


async def collect(batches: AsyncIterator[Batch], number: int) -> list[int]:
    numbers: list[int] = []
    async for batch in batches:
        numbers += [one.payload["n"] for one in batch.items]
        if len(numbers) >= number:
            break
    return numbers


async def test_a_lost_position_ends_a_follower(url: str) -> None:
    async with AsyncClient(url) as client:
        other = "1.99999999999." + "0" * 32
        with pytest.raises(PositionLost):
            async for _ in client.signals.follow(other):
                pass


def test_a_plain_client_is_usable_after_a_failure(database_url: str) -> None:
    with running_api(database_url) as api, Client(api.url, api.keys["operator"]) as client:
        with pytest.raises(NotFound):
            client.jobs.get(UUID(int=1))
        assert client.stats.get().due_jobs == 20
    with Client(api.url, attempts=1) as client:
        for _ in range(2):
            with pytest.raises(Unreachable):
                client.stats.get()
