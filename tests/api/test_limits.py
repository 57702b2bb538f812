"""How often, and how many at once, a caller may ask."""

import asyncio
from typing import Any

import httpx2
import pytest

from support.fakes import eventually
from support.http import client_of
from support.world import Logged, World
from syncline.api.fair_queue import FairQueue, QueueFull
from syncline.api.limits import RateLimiter
from syncline.policy.rate_limit import Rate

FEW = {"requests_per_second": 0.001, "burst": 3}
FEW_BY_ADDRESS = {"address_requests_per_second": 0.001, "address_burst": 3}


def metric(world: World, name: str) -> float:
    lines = world.engine.telemetry.exposition().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


async def statuses(client: httpx2.AsyncClient, path: str, number: int, **options: Any) -> list[int]:
    return [(await client.get(path, **options)).status_code for _ in range(number)]


@pytest.mark.engine(api=FEW)
async def test_a_key_that_asks_too_often_is_told_to_wait(world: World) -> None:
    _, mine = await world.engine.access.create_key("mine", tenant_id="acme")
    _, yours = await world.engine.access.create_key("yours", tenant_id="acme")
    async with client_of(world.engine, mine) as client:
        assert await statuses(client, "/v1/connections", 4) == [200, 200, 200, 429]
        refused = await client.get("/v1/connections")
        other = await client.get("/v1/connections", headers={"Authorization": f"Bearer {yours}"})

    assert refused.json()["type"] == "/docs#problem-too-many-requests"
    assert refused.headers["content-type"] == "application/problem+json"
    assert 1 <= int(refused.headers["retry-after"]) <= 1000
    assert other.status_code == 200
    assert metric(world, 'sync_api_refused_total{reason="rate"}') == 2


@pytest.mark.engine(api=FEW_BY_ADDRESS)
async def test_an_address_without_a_key_is_limited_and_keys_behind_it_are_not(
    world: World,
) -> None:
    _, secret = await world.engine.access.create_key("ann")
    async with client_of(world.engine) as client:
        assert await statuses(client, "/v1/stats", 4) == [401, 401, 401, 429]
        assert await statuses(client, "/docs", 1) == [429]
        assert await statuses(client, "/healthz", 5) == [200] * 5
        key = {"Authorization": f"Bearer {secret}"}
        assert await statuses(client, "/v1/stats", 5, headers=key) == [200] * 5


@pytest.mark.engine(api=FEW_BY_ADDRESS)
async def test_a_forwarded_address_is_not_trusted(world: World) -> None:
    await world.engine.access.create_key("ann")
    async with client_of(world.engine) as client:
        for number in range(4):
            forged = {"X-Forwarded-For": f"203.0.113.{number}"}
            answer = await client.get("/v1/stats", headers=forged)

    assert answer.status_code == 429


@pytest.mark.engine(api={**FEW, **FEW_BY_ADDRESS})
async def test_on_the_machine_itself_nobody_is_slowed(local: httpx2.AsyncClient) -> None:
    assert await statuses(local, "/v1/stats", 10) == [200] * 10


def test_many_addresses_do_not_grow_the_memory() -> None:
    limiter = RateLimiter(Rate(1, 2), most=100)
    for number in range(10_000):
        limiter.take(f"10.0.{number // 256}.{number % 256}", now=0.0)

    assert len(limiter) == 100


WRONG = "Bearer slop_000000000000_" + "0" * 64


@pytest.mark.engine(api={"failed_logins_per_minute": 3})
async def test_failed_logins_are_slowed_counted_and_logged(world: World, logged: Logged) -> None:
    _, secret = await world.engine.access.create_key("ann")
    async with client_of(world.engine) as client:
        right, wrong = {"Authorization": f"Bearer {secret}"}, {"Authorization": WRONG}
        assert await statuses(client, "/v1/stats", 1, headers=right) == [200]
        assert await statuses(client, "/v1/stats", 3, headers=wrong) == [401] * 3
        async with world.session() as session, session.transaction():
            # Whoever looked for a key now would wait, and be told that the database is too slow.
            await session.execute(world.qualified("LOCK TABLE {schema}.api_keys"))
            assert await statuses(client, "/v1/stats", 4, headers=wrong) == [429] * 4
            refused = await client.get("/v1/stats", headers=wrong)
            form = await client.post("/login", data={"key": "x"})
        assert await statuses(client, "/v1/stats", 1, headers=right) == [200]  # it was good lately

    assert 1 <= int(refused.headers["retry-after"]) <= 20
    assert (form.status_code, "try again in" in form.text) == (429, True)
    assert form.headers["content-type"].startswith("text/html")
    assert metric(world, "sync_api_failed_logins_total") == 3
    assert metric(world, 'sync_api_refused_total{reason="failed_logins"}') == 6
    assert [record["address"] for record in logged("api.login_failed")] == ["127.0.0.1"] * 3
    assert "0" * 64 not in str(logged("api.login_failed"))


@pytest.mark.engine(api={"failed_logins_per_minute": 3})
async def test_wrong_keys_on_the_login_page_count_too(world: World, logged: Logged) -> None:
    await world.engine.access.create_key("ann")
    async with client_of(world.engine) as client:
        answers = [await client.post("/login", data={"key": "x"}) for _ in range(5)]

    assert [answer.status_code for answer in answers] == [401, 401, 401, 429, 429]
    assert len(logged("api.login_failed")) == 3


@pytest.mark.engine(api={"failed_logins_per_minute": 3})
async def test_a_session_that_has_ended_is_no_failed_login(world: World) -> None:
    await world.engine.access.create_key("ann")
    async with client_of(world.engine) as browser:
        browser.cookies.set("syncline_session", "0" * 64)
        assert await statuses(browser, "/", 10) == [303] * 10


async def test_a_flood_of_failed_logins_does_not_fill_the_log(world: World, logged: Logged) -> None:
    for number in range(500):
        world.engine.telemetry.api.login_failed(f"10.0.0.{number}")

    assert len(logged("api.login_failed")) < 30
    assert metric(world, "sync_api_failed_logins_total") == 500


class Requests:
    """Requests of one caller in a queue, each of which ends when it is told to."""

    def __init__(self, queue: FairQueue, caller: str) -> None:
        self._queue, self._caller = queue, caller
        self._ends: list[asyncio.Event] = []
        self.running = 0

    def begin(self, number: int = 1) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._run()) for _ in range(number)]

    async def end_one(self) -> None:
        self._ends.pop(0).set()
        await settle()

    async def _run(self) -> None:
        async with self._queue.turn(self._caller):
            end = asyncio.Event()
            self._ends.append(end)
            self.running += 1
            await end.wait()
            self.running -= 1


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_caller_alone_runs_a_few_at_once_and_the_rest_waits() -> None:
    now = 0.0
    queue = FairQueue(at_once=3, waiting=10, read_clock=lambda: now)
    ours = Requests(queue, "a")
    tasks = ours.begin(5)
    await settle()
    assert ours.running == 3

    for _ in range(5):
        await ours.end_one()

    await asyncio.gather(*tasks)


async def test_while_others_ask_too_each_caller_runs_one_by_one() -> None:
    now = 0.0
    queue = FairQueue(at_once=3, waiting=10, read_clock=lambda: now)
    ours, theirs = Requests(queue, "a"), Requests(queue, "b")
    tasks = [*ours.begin(4), *theirs.begin(1)]
    await settle()
    assert (ours.running, theirs.running) == (3, 1)
    await theirs.end_one()
    for left in (2, 1, 1):
        await ours.end_one()
        assert ours.running == left
    tasks += ours.begin(3)
    await settle()
    assert ours.running == 1

    now = 2.0  # the other has not asked for a while
    await ours.end_one()

    assert ours.running == 3
    for _ in range(3):
        await ours.end_one()
    await asyncio.gather(*tasks)


async def test_a_long_request_holds_up_its_callers_next_one_only_briefly() -> None:
    queue = FairQueue(at_once=3, waiting=10, read_clock=lambda: 0.0, brief_seconds=0)
    ours, theirs = Requests(queue, "a"), Requests(queue, "b")
    tasks = [*theirs.begin(1), *ours.begin(5)]
    async with asyncio.timeout(5):
        await eventually(lambda: ours.running == 3)
    await settle()

    assert ours.running == 3
    for _ in range(5):
        await ours.end_one()
    await theirs.end_one()
    await asyncio.gather(*tasks)


async def test_a_cancelled_request_holds_up_nobody() -> None:
    queue = FairQueue(at_once=1, waiting=2, read_clock=lambda: 0.0)
    ours = Requests(queue, "a")
    first, second, third = ours.begin(3)
    await settle()
    with pytest.raises(QueueFull):
        async with queue.turn("a"):
            raise AssertionError("it runs")
    second.cancel()
    await settle()

    await ours.end_one()

    assert ours.running == 1
    third.cancel()
    await asyncio.gather(first, second, third, return_exceptions=True)
    async with asyncio.timeout(1), queue.turn("a"):
        pass


async def test_a_request_cancelled_while_a_turn_becomes_free_is_only_cancelled() -> None:
    queue = FairQueue(at_once=1, waiting=2, read_clock=lambda: 0.0)
    ours = Requests(queue, "a")
    first, second = ours.begin(2)
    await settle()

    first.cancel()
    second.cancel()

    ended = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(end) for end in ended] == [asyncio.CancelledError] * 2
    async with asyncio.timeout(1), queue.turn("a"):
        pass


@pytest.mark.engine(api={"concurrent_streams": 2})
async def test_a_caller_holds_only_so_many_streams_open(world: World) -> None:
    _, secret = await world.engine.access.create_key("acme's", tenant_id="acme")
    async with client_of(world.engine, secret) as client:
        path = "/v1/signals/follow?position=now&wait=20"
        waiting = [asyncio.create_task(client.get(path)) for _ in range(3)]

        [first], _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        refused = first.result()
        served = await client.get("/v1/connections")

        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    assert (refused.status_code, served.status_code) == (429, 200)
    assert refused.headers["retry-after"] == "10"
