"""With a tenant's key no configuration of a built-in provider reaches this host.

Each provider is given every address, path and socket by which this host could be reached, by a
tenant's key, and is run by a real engine. Traps stand where these lead: nobody may step into one.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.fakes import eventually
from support.http import client_of
from support.repositories import Repo
from syncline import Engine, Settings
from syncline.sdk.registry import GROUP
from syncline.settings import ApiSettings, ExecutorSettings

CANARY = "canary-of-this-host"
LOOPBACK = [
    "http://127.0.0.1:{port}/", "http://localhost:{port}/", "https://127.0.0.1:{port}/",
    "http://127.1:{port}/", "http://2130706433:{port}/", "http://0x7f000001:{port}/",
    "http://0177.0.0.1:{port}/", "http://0:{port}/", "http://0.0.0.0:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/", "http://[::1]:{port}/", "http://127.0.0.1.:{port}/",
    "http://user:secret@127.0.0.1:{port}/", "http://example.org@127.0.0.1:{port}/",
    "http://169.254.169.254/latest/meta-data/", "http://168.63.129.16/",
]  # fmt: skip
LOCAL = [
    "file://{file}", "file://localhost{file}", "{file}", "~/.netrc", "unix:{socket}",
    "unix://{socket}", "http+unix://{quoted_socket}/", "data:text/plain,x", "/dev/stdin",
    "http:///127.0.0.1:{port}/", "http:{file}", "HTTP://127.0.0.1:{port}/", "gopher://127.0.0.1/",
]  # fmt: skip
GIT = [
    "{repository}", "file://{repository}", "file://localhost{repository}", "~/repository",
    "127.0.0.1:{repository}", "git@127.0.0.1:{repository}", "git://127.0.0.1:{port}/x",
    "ssh://127.0.0.1:{port}/x", "ssh://-oProxyCommand=touch {marker}/x",
    "http::http://127.0.0.1:{port}/x", "ext::sh -c touch% {marker}", "fd::0", "-u{marker}",
    "--upload-pack=touch {marker}", "https://127.0.0.1:{port}/x.git", "{repository}/.git",
]  # fmt: skip
HOSTS = [
    "127.0.0.1",
    "localhost",
    "127.1",
    "2130706433",
    "0",
    "::1",
    "::ffff:127.0.0.1",
    "{socket}",
]
Configs = list[dict[str, Any]]
# A provider that is not named here stops the test: say by which fields it could be led here.
CASES: dict[str, Configs] = {
    "caldav": [{"url": url} for url in LOOPBACK + LOCAL],
    "demo": [{}, {"url": LOOPBACK[0]}, {"path": "{file}"}],
    "feed": [{"url": url} for url in LOOPBACK + LOCAL],
    "git": [{"url": url} for url in LOOPBACK + LOCAL + GIT]
    + [{"url": "{repository}", "branch": branch} for branch in ("--all", "-q", "../x")],
    "github": [{"repositories": ["a/b"], "base_url": url} for url in LOOPBACK + LOCAL]
    + [{"repositories": ["../../etc"]}, {"repositories": ["a/b?x=//127.0.0.1:{port}"]}],
    "imap": [
        {"host": host, "port": "{port}", "security": security}
        for host in HOSTS
        for security in ("tls", "starttls", "none")
    ],
    "matrix": [{"base_url": url} for url in LOOPBACK + LOCAL],
    "rest": [{"base_url": url, "records": "$"} for url in LOOPBACK + LOCAL]
    + [{"base_url": "https://192.0.2.1/", "path": url} for url in LOOPBACK + LOCAL],
}
# These run installed programs; tests/connectors/foreign has their tests.
PROGRAMS = {"airbyte", "singer"}
OUT_BY_DEFAULT = {"git", "imap"}


@dataclass
class Host:
    """What stands on this host to be reached, and how often it was."""

    places: dict[str, Any]
    stepped_into: list[str] = field(default_factory=list)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    """Lend a server, a socket, a file and a repository that nobody may reach."""
    folder = tmp_path / "host"
    folder.mkdir()
    (folder / "file").write_text(f"<rss><channel><item><title>{CANARY}</title></item></channel>")
    found = Host({"file": folder / "file", "marker": folder / "marker"})

    async def trap(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.stepped_into.append(str(writer.get_extra_info("sockname")))
        writer.close()

    server = await asyncio.start_server(trap, ["127.0.0.1", "::1"], 0)
    socket = folder / "socket"
    unix = await asyncio.start_unix_server(trap, socket)
    found.places |= {"port": server.sockets[0].getsockname()[1], "socket": socket}
    found.places["quoted_socket"] = str(socket).replace("/", "%2F")
    found.places["repository"] = folder / "repository"
    if shutil.which("git"):
        Repo(folder / "repository").commit(CANARY)
    yield found
    server.close()
    unix.close()


def filled(config: Any, places: dict[str, Any]) -> Any:
    """Return a configuration with its places put in; a port alone is a number."""
    if isinstance(config, dict):
        return {name: filled(value, places) for name, value in config.items()}
    if isinstance(config, list):
        return [filled(value, places) for value in config]
    if config == "{port}":
        return places["port"]
    for name, place in places.items():
        config = config.replace(f"{{{name}}}", str(place)) if isinstance(config, str) else config
    return config


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[Engine]:
    """Lend an engine whose operator has named every provider for tenants."""
    api = ApiSettings(tenant_providers=sorted(CASES))
    executor = ExecutorSettings(max_run_seconds=20)
    async with Engine(Settings(database_url=database_url, api=api, executor=executor)) as engine:
        yield engine


async def acmes_client(engine: Engine) -> httpx2.AsyncClient:
    _, secret = await engine.access.create_key("acme's own", tenant_id="acme")
    return client_of(engine, secret)


def connections_of(slug: str, places: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for number, config in enumerate(CASES[slug]):
        new = {"provider_slug": slug, "external_id": f"{slug}-{number}"}
        yield {**new, "config": filled(config, places)}


def test_every_built_in_provider_has_its_cases() -> None:
    built_in = {
        entry.name
        for entry in entry_points(group=GROUP)
        if entry.dist is not None and entry.dist.name == "syncline"
    }

    assert built_in == CASES.keys() | PROGRAMS


@pytest.mark.parametrize("slug", CASES)
async def test_no_configuration_by_a_tenants_key_reaches_this_host(
    engine: Engine, host: Host, slug: str
) -> None:
    async with await acmes_client(engine) as acme:
        added = 0
        for new in connections_of(slug, host.places):
            answer = await acme.post("/v1/connections", json=new)
            assert answer.status_code in (201, 403, 422), (new, answer.text)
            if answer.status_code == 201:
                added += 1
                await acme.post(f"/v1/connections/{answer.json()['id']}/sync")

        await engine.run_due()

        assert added > 0
        told = [(await acme.get(f"/v1/{what}?limit=500")).text for what in ("jobs", "signals")]
    jobs = await engine.jobs.list(limit=500)
    assert len(jobs) >= added
    if slug != "demo":
        assert {str(job.status) for job in jobs} <= {"failed", "queued"}
        assert all(job.error for job in jobs)
    assert host.stepped_into == []
    assert not host.places["marker"].exists()
    assert CANARY not in "".join(told)
    assert "secret@" not in "".join(told)


async def test_what_runs_programs_or_reads_this_host_is_out_by_default(database_url: str) -> None:
    slugs = sorted(OUT_BY_DEFAULT | PROGRAMS)
    async with Engine(Settings(database_url=database_url)) as engine:
        async with await acmes_client(engine) as acme:
            for slug in slugs:
                theirs = await engine.connections.create(
                    tenant_id="acme", provider_slug=slug, external_id="by an operator"
                )
                address = f"/v1/connections/{theirs.id}"
                new = {"provider_slug": slug, "external_id": "x"}
                refused = [
                    await acme.post("/v1/connections", json=new),
                    await acme.post("/v1/connections/bulk", json={"connections": [new]}),
                    await acme.patch(address, json={"config": {"url": "/"}}),
                ]
                assert [answer.status_code for answer in refused] == [403, 403, 403], slug
                assert all("api.tenant_providers" in answer.json()["detail"] for answer in refused)
        assert len(await engine.connections.list()) == len(slugs)


async def test_the_traps_can_be_stepped_into(host: Host) -> None:
    """Without the rules each of these would have been noticed."""
    for target in (("127.0.0.1", host.places["port"]), ("::1", host.places["port"])):
        with suppress(OSError):  # a machine may have no IPv6, or another port there
            _, writer = await asyncio.open_connection(*target)
            writer.close()
    _, writer = await asyncio.open_unix_connection(host.places["socket"])
    writer.close()
    async with asyncio.timeout(5):
        await eventually(lambda: len(host.stepped_into) >= 2)
