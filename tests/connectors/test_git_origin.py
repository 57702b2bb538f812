"""The git connector: which addresses it may reach."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from support.fakes import eventually
from support.repositories import GitServer, Repo, connect, first_page, follow, serve, subjects
from syncline.connectors.git import GitCommits
from syncline.connectors.git.origin import GitAccess, Origin, find_origin, parse_url
from syncline.errors import Permanent, SyncError, Transient
from syncline.http import HttpEnvironment
from syncline.http.auth import basic
from syncline.model import Connection
from syncline.settings.git import GitSettings

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="the git program is missing")

PUBLIC = ["93.184.215.14", "2606:2800:21f:cb07::1"]
NO_ADDRESSES = [
    "http:///127.0.0.1:PORT/x",
    "https:///127.0.0.1:PORT/x",
    "https:127.0.0.1:PORT/x",
    "https:/127.0.0.1:PORT/x",
    "http::http://127.0.0.1:PORT/x",
    "https::http://127.0.0.1:PORT/x",
    "ext::sh -c touch% pwned",
    "fd::17",
    "file::/etc",
    "ftp://127.0.0.1:PORT/x",
    "ftps://127.0.0.1:PORT/x",
    "HTTP://127.0.0.1:PORT/x",
    "git@127.0.0.1:x.git",
    "127.0.0.1:x.git",
    "127.0.0.1/x.git",
    "~/x",
    "~root/x",
    "./x",
    "x",
    "file://~/x",
    "file://localhost/x",
    "-uhttp://127.0.0.1:PORT/x",
    "https://@/x",
    "https://:PORT/x",
    "https://127.0.0.1:PORT",
    "https://127.0.0.1:PORT?x",
    "https://127.0.0.1:PORT/x?y=z",
    "https://127.0.0.1:PORT/x#y",
    "https://127.0.0.1:99999/x",
    "https://127.0.0.1:0/x",
    "https://127.0.0.1:PORT\\@example.org/x",
    "https://example.org@127.0.0.1:PORT@example.org/x",
    "https://a:b:c@example.org/x",
    "https://2130706433/x",
    "https://0x7f000001/x",
    "https://0177.0.0.1/x",
    "https://127.1/x",
    "https://[::1%25lo]/x",
    "https://[zz]/x",
    "https://exam ple.org/x",
    "https://exämple.org/x",
    "https://%31%32%37.0.0.1/x",
    "https://" + "a" * 3000 + "/x",
]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A port of this machine on which every connection is noticed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def nobody_came(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return True
    return False


@pytest.mark.parametrize("url", NO_ADDRESSES)
async def test_a_url_must_be_a_scheme_a_host_and_a_path(
    url: str, connector: GitCommits, listener: socket.socket
) -> None:
    """This holds for operators too, who may reach this machine."""
    port = listener.getsockname()[1]
    with pytest.raises(Permanent, match=r"^config\.url: "):
        await first_page(connector, connect(url.replace("PORT", str(port))))

    assert nobody_came(listener)


@pytest.mark.parametrize(
    "address",
    [
        "https://127.0.0.1",
        "https://[::1]",
        "https://[::ffff:10.0.0.1]",
        "https://localhost",
        "git://169.254.169.254",
        "ssh://10.0.0.1",
    ],
)
async def test_addresses_that_are_not_public_are_refused_by_default(
    address: str, tmp_path: Path
) -> None:
    git = GitCommits(tmp_path / "cache")
    git.configure(GitSettings(schemes=["git", "ssh"]))
    with pytest.raises(Permanent, match="not public"):
        await first_page(git, connect(f"{address}/x.git"))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://93.184.215.14/x", "it must be https"),
        ("git://93.184.215.14/x", r"git\.schemes"),
        ("ssh://93.184.215.14/x", r"git\.schemes"),
        ("https://93.184.215.14:25/x", "port 25"),
    ],
)
async def test_only_https_is_allowed_by_default(url: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(Permanent, match=reason):
        await first_page(GitCommits(tmp_path / "cache"), connect(url))


async def origin_of(
    url: str, folder: Path, credentials: Any = None, *, addresses: list[str] = PUBLIC, **set_: Any
) -> Origin:
    async def resolve(host: str, port: int) -> list[str]:
        return addresses

    environment = HttpEnvironment(resolve=resolve)
    return await find_origin(parse_url(url), credentials, GitAccess(**set_), environment, folder)


async def test_https_is_pinned_to_the_addresses_that_were_checked(tmp_path: Path) -> None:
    origin = await origin_of("https://Repo.Example./x.git", tmp_path, {"token": "t"})

    assert origin == Origin(
        "https://repo.example/x.git",
        "https",
        (
            ("http.curloptResolve", "repo.example:443:93.184.215.14,[2606:2800:21f:cb07::1]"),
            (
                "http.https://repo.example/.extraHeader",
                "authorization: " + basic("x-access-token", "t"),
            ),
        ),
    )


async def test_one_private_address_refuses_the_host(tmp_path: Path) -> None:
    for url in ("https://repo.example/x", "git://repo.example/x", "ssh://repo.example/x"):
        with pytest.raises(Permanent, match="not public"):
            await origin_of(url, tmp_path, addresses=[*PUBLIC, "127.0.0.1"], schemes=["git", "ssh"])


async def test_the_git_protocol_uses_the_checked_address_and_names_the_host(tmp_path: Path) -> None:
    origin = await origin_of("git://repo.example:9999/x.git", tmp_path, schemes=["git"])

    assert origin.url == "git://93.184.215.14:9999/x.git"
    assert origin.environment == (("GIT_OVERRIDE_VIRTUAL_HOST", "repo.example:9999"),)


async def test_ssh_uses_the_checked_address_one_key_and_no_configuration(tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n-----END OPENSSH PRIVATE KEY-----"

    origin = await origin_of(
        "ssh://ada@repo.example:2222/x.git",
        tmp_path,
        {"private_key": key},
        schemes=["ssh"],
        known_hosts=known,
    )

    assert origin.url == "ssh://ada@repo.example:2222/x.git"
    command = dict(origin.environment)["GIT_SSH_COMMAND"]
    for option in (
        "-F /dev/null",
        "-o HostName=93.184.215.14",
        "-o 'HostKeyAlias=[repo.example]:2222'",
        "-o StrictHostKeyChecking=yes",
        "-o IdentityAgent=none",
        f"-o IdentityFile={tmp_path / 'key'}",
        f"-o UserKnownHostsFile={known}",
    ):
        assert option in command
    assert (tmp_path / "key").read_text() == key + "\n"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("url", "credentials", "set_", "reason"),
    [
        ("ssh://repo.example/x", None, {}, "git.known_hosts"),
        ("ssh://repo.example/~x", None, {"known_hosts": "/k"}, "without ~"),
        ("git://repo.example/~x", None, {}, "without ~"),
        ("ssh://a:b@repo.example/x", None, {"known_hosts": "/k"}, "no password"),
        ("ssh://-oProxyCommand=x@repo.example/x", None, {"known_hosts": "/k"}, "user@host"),
        ("ssh://repo.example/x", {"private_key": "x"}, {"known_hosts": "/k"}, "private_key"),
    ],
)
async def test_ssh_is_refused_if_it_cannot_be_pinned_to_its_host(
    url: str, credentials: Any, set_: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(Permanent, match=reason):
        await origin_of(url, tmp_path, credentials, schemes=["git", "ssh"], **set_)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="the ssh program is missing")
async def test_ssh_reads_the_options_it_is_given(tmp_path: Path) -> None:
    """`ssh -G` prints what it would do, and where it would connect."""
    known = tmp_path / "known_hosts"
    origin = await origin_of(
        "ssh://ada@repo.example:2222/x", tmp_path, schemes=["ssh"], known_hosts=known
    )
    command = dict(origin.environment)["GIT_SSH_COMMAND"]

    done = await asyncio.to_thread(
        subprocess.run,
        f"{command} -G -p 2222 ada@repo.example",
        shell=True,
        capture_output=True,
        text=True,
    )

    told = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert (told["hostname"], told["port"], told["user"]) == ("93.184.215.14", "2222", "ada")
    assert told["hostkeyalias"] == "[repo.example]:2222"
    assert (told["userknownhostsfile"], told["identityagent"]) == (str(known), "none")
    assert told["stricthostkeychecking"] in ("true", "yes")


async def test_a_name_that_changes_its_address_is_not_followed(
    repo: Repo, http_address: str, tmp_path: Path
) -> None:
    """Git connects to the address that the resolver gave once."""
    head = repo.commit("one")
    host, _, port = http_address.partition(":")
    asked = []

    async def resolve(name: str, port: int) -> list[str]:
        asked.append(name)
        return [host]

    git = GitCommits(tmp_path / "cache")
    git.http_environment = HttpEnvironment(allow_private=True, resolve=resolve)
    page = await first_page(git, connect(f"http://repo.invalid:{port}/repo/.git"))

    assert page.next_cursor == {"seen": [head]}
    assert asked == ["repo.invalid"]


@pytest.mark.skipif(
    not Path(subprocess.getoutput("git --exec-path"), "git-daemon").exists(),
    reason="this git comes without git daemon",
)
async def test_the_git_protocol_is_pinned_too(
    repo: Repo, tmp_path: Path, unused_tcp_port: int
) -> None:
    repo.commit("one")
    daemon = await asyncio.create_subprocess_exec(
        *("git", "daemon", "--export-all", "--listen=127.0.0.1"),
        *(f"--port={unused_tcp_port}", f"--interpolated-path={tmp_path}/%H%D"),
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    (tmp_path / "repo.invalid").symlink_to(tmp_path)  # its folder has the host's name

    async def resolve(name: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    git = GitCommits(tmp_path / "cache")
    git.configure(GitSettings(schemes=["git"]))
    git.http_environment = HttpEnvironment(allow_private=True, resolve=resolve)
    try:
        await eventually(lambda: accepts(unused_tcp_port))
        url = f"git://repo.invalid:{unused_tcp_port}/repo/.git"
        signals, _ = await follow(git, connect(url))
    finally:
        os.killpg(daemon.pid, signal.SIGTERM)
        await daemon.wait()

    assert subjects(signals) == ["one"]


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


class Redirects(BaseHTTPRequestHandler):
    target: str

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", self.target + self.path)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


async def test_redirects_are_not_followed(
    repo: Repo, connector: GitCommits, http_address: str, git_server: type[GitServer]
) -> None:
    repo.commit("one")
    handler = type("Handler", (Redirects,), {"target": f"http://{http_address}"})
    with serve(handler) as address, pytest.raises(Permanent, match="302"):
        await first_page(connector, connect(f"http://{address}/repo/.git"))


async def test_alternates_of_a_server_are_not_followed(
    repo: Repo, connector: GitCommits, tmp_path: Path, listener: socket.socket
) -> None:
    """A server of plain files may name any address for its objects."""
    repo.commit("one")
    site = tmp_path / "site.git"
    repo.git("clone", "--quiet", "--bare", str(repo.folder), str(site))
    repo.git(f"--git-dir={site}", "update-server-info")
    shutil.rmtree(site / "objects")
    (site / "objects" / "info").mkdir(parents=True)
    port = listener.getsockname()[1]
    (site / "objects" / "info" / "http-alternates").write_text(
        f"http://127.0.0.1:{port}/other.git/objects\n"
    )
    handler = type("Files", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})

    with serve(partial(handler, directory=str(tmp_path))) as address, pytest.raises(SyncError):
        await first_page(connector, connect(f"http://{address}/site.git"))

    assert nobody_came(listener)


async def test_credentials_are_not_sent_unencrypted(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="must be https"):
        await origin_of("http://repo.example/x.git", tmp_path, {"token": "t"})


async def test_a_connection_cannot_read_what_another_fetched(
    repo: Repo, connector: GitCommits, http_address: str, git_server: type[GitServer]
) -> None:
    """With a shared mirror, a commit's name was enough to read it, even with a wrong password."""
    secret = repo.commit("secret plan")
    url = f"http://{http_address}/repo/.git"
    git_server.wanted = basic("ada", "right")
    ours = replace(connect(url), credentials={"username": "ada", "password": "right"})
    signals, _ = await follow(connector, ours)
    theirs = replace(ours, tenant_id="birch", credentials={"username": "ada", "password": "wrong"})
    stranger: Connection = replace(connect(url), tenant_id="birch")

    for connection in (theirs, stranger):
        for cursor in ({"seen": [], "until": secret}, {"seen": [secret]}, None):
            with pytest.raises(SyncError) as refused:
                await first_page(connector, connection, cursor)
            assert not isinstance(refused.value, Transient)
    assert subjects(signals) == ["secret plan"]
