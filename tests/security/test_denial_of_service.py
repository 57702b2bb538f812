"""What a stranger or a tenant may send to keep the server from answering, on real sockets."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

import httpx2
import pytest

from support.world import World
from syncline.api.server import Listener, serving
from syncline.api.timeouts import DEFAULT_TIMEOUTS, Timeouts

pytestmark = pytest.mark.security
JSON = {"Content-Type": "application/json"}
DEEP = "[" * 400_000
QUOTES = '{"a":"' + "\\" * 900_000
MANY = "[" + "1," * 450_000 + "1]"
PROBES = {
    "a large body": ("POST", "/v1/connections", " " * 1_000_001, 413),
    "a large bulk": ("POST", "/v1/connections/bulk", " " * 16_000_001, 413),
    "deep JSON": ("POST", "/v1/connections", DEEP, 400),
    "deep JSON in a bulk": ("POST", "/v1/connections/bulk", DEEP, 400),
    "a text without an end": ("POST", "/v1/connections", QUOTES, 422),
    "many values": ("POST", "/v1/connections", MANY, 422),
    "a huge page": ("GET", "/v1/connections?limit=100000000", "", 422),
    "a page of signals": ("GET", "/v1/signals?limit=100000000", "", 422),
    "a filter that is a pattern": ("GET", "/v1/connections?prefix=" + "%25(a%2B)%2B" * 80, "", 200),
    "an order that is none": ("GET", "/v1/connections?order=md5(config::text)", "", 422),
    "a long target": ("GET", "/v1/connections?prefix=" + "x" * 9000, "", 400),
    "a token of nonsense": ("GET", "/v1/connections?page=" + "A" * 4096, "", 422),
    "a method that is none": ("PROPFIND", "/v1/connections", "", 405),
    "a large form": ("POST", "/login", "key=" + "x" * 1_000_000, 413),
}


@asynccontextmanager
async def serving_at(world: World, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> AsyncIterator[str]:
    api = world.settings.api.model_copy(update={"port": 0})
    with closing(Listener(api)) as listener:
        async with serving(world.engine, listener, page=True, timeouts=timeouts):
            yield listener.url


@pytest.fixture
async def address(world: World) -> AsyncIterator[str]:
    async with serving_at(world) as address:
        yield address


@pytest.mark.parametrize("name", PROBES)
async def test_each_probe_is_answered_within_a_second(
    world: World, address: str, name: str
) -> None:
    """The better of two tries counts: what else the machine does slows some of them."""
    method, path, body, status = PROBES[name]
    _, secret = await world.engine.access.create_key("acme's", tenant_id="acme")
    stranger: dict[str, str] = {}
    own = {"Authorization": f"Bearer {secret}"}
    for headers, expected in ((own, status), (stranger, status if path == "/login" else 401)):
        seconds = []
        for _ in range(2):
            async with httpx2.AsyncClient(base_url=address, trust_env=False) as client:
                began = time.monotonic()
                answer = await client.request(
                    method, path, content=body, headers={**JSON, **headers}
                )
                seconds.append(time.monotonic() - began)
            # What is refused by its target alone is refused before anybody asks who it is.
            assert answer.status_code in {expected, status}, (name, answer.text)
            if seconds[-1] < 1:
                break
        assert min(seconds) < 1, (name, seconds)


async def test_two_hundred_trickling_connections_are_cut_off_in_time(world: World) -> None:
    async with serving_at(world, Timeouts(head_seconds=1)) as address:
        port = int(address.rpartition(":")[2])

        async def trickle() -> None:
            """Send a header byte by byte, until the server closes the connection."""
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with closing(writer), suppress(ConnectionError):
                writer.write(b"GET /healthz HTTP/1.1\r\nX-A: ")
                while not reader.at_eof():
                    writer.write(b"x")
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.2):
                            await reader.read(1)

        async with asyncio.timeout(15):
            await asyncio.gather(*(trickle() for _ in range(200)))
        async with httpx2.AsyncClient(base_url=address, trust_env=False) as client:
            assert (await client.get("/healthz")).status_code == 200


async def test_of_three_hundred_wrong_keys_ten_are_tried(world: World, address: str) -> None:
    _, secret = await world.engine.access.create_key("acme's", tenant_id="acme")
    own = {"Authorization": f"Bearer {secret}"}
    async with httpx2.AsyncClient(base_url=address, trust_env=False) as client:
        assert (await client.get("/v1/connections", headers=own)).status_code == 200
        statuses: Counter[int] = Counter()
        began = time.monotonic()
        for number in range(300):
            wrong = {"Authorization": f"Bearer wrong{number}"}
            statuses[(await client.get("/v1/connections", headers=wrong)).status_code] += 1
        refilled = (time.monotonic() - began) / 6 + 1
        assert 10 <= statuses[401] <= 10 + refilled
        assert statuses[429] == 300 - statuses[401]
        assert (await client.get("/v1/connections", headers=own)).status_code == 200
