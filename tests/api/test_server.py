"""The server inside the engine's event loop, on a real port."""

import signal
import socket
from contextlib import closing

import httpx2
import pytest

from support.world import World
from syncline.api.server import Listener, serving
from syncline.errors import SettingsError
from syncline.settings import ApiSettings

ANYWHERE = ApiSettings(port=0)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
async def test_it_answers_on_a_free_port_and_then_no_more(world: World, host: str) -> None:
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    try:
        listener = Listener(ApiSettings(host=host, port=0))
    except SettingsError:
        pytest.skip(f"this machine has no {host}")

    port = listener.socket.getsockname()[1]
    with closing(listener):
        async with (
            httpx2.AsyncClient(base_url=listener.url, trust_env=False) as client,
            serving(world.engine, listener, page=True),
        ):
            answer = await client.get("/healthz")
            assert (
                signal.getsignal(signal.SIGINT),
                signal.getsignal(signal.SIGTERM),
            ) == handlers

    assert answer.json() == {"status": "alive"}
    assert "server" not in answer.headers
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))


async def test_it_ends_although_a_client_keeps_its_connection_open(world: World) -> None:
    with closing(Listener(ANYWHERE)) as listener:
        async with serving(world.engine, listener, page=True):
            idle = socket.create_connection(listener.socket.getsockname())
            async with httpx2.AsyncClient(trust_env=False) as client:
                await client.get(f"{listener.url}/healthz")
        idle.close()


def test_a_port_in_use_is_reported() -> None:
    with closing(Listener(ANYWHERE)) as first:
        port = first.socket.getsockname()[1]

        with pytest.raises(SettingsError, match=f"api.port is {port}, which is in use") as caught:
            Listener(ApiSettings(port=port))

    assert "--port" in str(caught.value)


@pytest.mark.engine(api={"host": "0.0.0.0", "port": 0})
async def test_an_address_that_others_can_reach_is_refused_without_a_key(world: World) -> None:
    with closing(Listener(world.settings.api)) as listener:
        with pytest.raises(SettingsError, match="refuses to start without an API key"):
            async with serving(world.engine, listener, page=True):
                raise AssertionError("it serves")

        await world.engine.access.create_key("ann")
        port = listener.socket.getsockname()[1]
        async with (
            serving(world.engine, listener, page=True),
            httpx2.AsyncClient(trust_env=False) as client,
        ):
            alive = await client.get(f"http://127.0.0.1:{port}/healthz")
            refused = await client.get(f"http://127.0.0.1:{port}/metrics")

    assert (alive.status_code, refused.status_code) == (200, 401)


def test_an_unknown_host_is_reported() -> None:
    with pytest.raises(SettingsError, match=r"api\.host is 'no-such-host\.invalid'; "):
        Listener(ApiSettings(host="no-such-host.invalid"))


def test_an_answer_does_not_wait_for_the_clients_acknowledgement() -> None:
    """Each request over a connection that is kept took 44 ms, of which 40 were this wait."""
    with (
        closing(Listener(ANYWHERE)) as listener,
        socket.create_connection(listener.socket.getsockname()),
    ):
        accepted, _ = listener.socket.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
