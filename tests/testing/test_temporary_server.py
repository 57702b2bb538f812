"""The server that tests bring along: quick, apart, and gone afterwards."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from support.fakes import eventually
from syncline.testing.database import TemporaryServer

A_TEST_SESSION = """
import sys
from syncline.testing.database import TemporaryServer

server = TemporaryServer()
server.start()
print(server.create_database(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[TemporaryServer]:
    with TemporaryServer() as server:
        yield server


async def test_template_is_copied_and_databases_are_apart(server: TemporaryServer) -> None:
    template = server.create_database()
    await fetch(template, "CREATE TABLE kept AS SELECT 42 AS answer")

    copy, empty = server.create_database(template), server.create_database()

    assert await fetch(copy, "SELECT answer FROM kept") == 42
    assert await fetch(empty, "SELECT to_regclass('kept')") is None


async def test_database_is_dropped_even_while_in_use(server: TemporaryServer) -> None:
    url = server.create_database()
    connection = await asyncpg.connect(url)

    server.drop_database(url)

    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(url)
    connection.terminate()


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_server_comes_back_with_its_data(server: TemporaryServer, end: str) -> None:
    url = server.create_database()
    await fetch(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    await fetch(url, "CHECKPOINT")  # it does not wait for the disk otherwise

    getattr(server, end)()
    with pytest.raises(OSError, match=r"No such file|refused"):
        await asyncpg.connect(url)
    server.start()

    assert await fetch(url, "SELECT answer FROM kept") == 42


async def test_server_ends_with_a_killed_test_session() -> None:
    url = await asyncio.to_thread(start_and_kill_a_test_session)

    await eventually(lambda: not exists(socket_folder(url)))


def start_and_kill_a_test_session() -> str:
    with subprocess.Popen(
        [sys.executable, "-c", A_TEST_SESSION],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert exists(socket_folder(url))
        process.kill()
    return url


async def fetch(url: str, query: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def socket_folder(url: str) -> str:
    return parse_qs(urlsplit(url).query)["host"][0]


def exists(path: str) -> bool:
    return os.path.exists(path)
