"""No connector reaches what is not public, whatever the address looks like."""

import httpx2
import pytest

from support.httpserver import Reply, http_server
from syncline import Permanent, Transient
from syncline.http import HttpClient, HttpEnvironment
from syncline.http.addresses import check_url, is_public

NOT_PUBLIC = [
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255",
    "172.16.0.1", "172.31.255.255", "192.168.0.1", "169.254.169.254", "100.64.0.1",
    "100.127.255.255", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "::1", "::",
    "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1", "2001:db8::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a00:1::", "100::1",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "100.63.255.255", "172.32.0.1", "2606:4700::1111",
          "::ffff:8.8.8.8", "64:ff9b::808:808"]  # fmt: skip


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert is_public(address)


# Each of these would reach the server below if nothing held it back.
LOOPBACK_SPELLINGS = [
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1",
    "017700000001", "0", "0.0.0.0", "localhost", "LOCALHOST", "localhost.", "127.0.0.1.",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "user:secret@127.0.0.1", "①②⑦.0.0.1",
]  # fmt: skip


@pytest.mark.parametrize("host", LOOPBACK_SPELLINGS)
async def test_loopback_is_refused_however_it_is_written(host: str) -> None:
    async with http_server([Reply()]) as server, HttpClient(HttpEnvironment()) as http:
        with pytest.raises((Permanent, Transient)) as refused:
            await http.get(f"http://{host}:{server.port}/")

    assert server.seen == []
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("host", [*LOOPBACK_SPELLINGS[:3], "localhost", "0"])
async def test_the_spellings_do_lead_to_loopback(host: str) -> None:
    """Without the check they arrive, so it is the check that holds them back."""
    async with (
        http_server([Reply()]) as server,
        HttpClient(HttpEnvironment(allow_private=True)) as http,
    ):
        await http.get(f"http://{host}:{server.port}/")

    assert len(server.seen) == 1


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://example.com/", "gopher://example.com/", "//example.com/",
     "http:///nohost", "unix:/tmp/socket", "data:text/plain,x", "", "http://example.com:22/",
     "http://example.com:25/", "https://example.com:0/", "http://[bad/", "http://a b/"],
)  # fmt: skip
async def test_schemes_and_ports_are_held_to_http(url: str) -> None:
    async with HttpClient(HttpEnvironment()) as http:
        with pytest.raises(Permanent):
            await http.get(url)


@pytest.mark.parametrize("port", [80, 443, 1024, 8443, 65535])
def test_usual_ports_are_allowed(port: int) -> None:
    check_url(httpx2.URL(f"http://example.com:{port}/"), allow_private=False)


class Rebinding:
    """A resolver whose answers change; each is given once."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def __call__(self, host: str, port: int) -> list[str]:
        return self.answers.pop(0)


def only_this_is_public(address: str) -> bool:
    """Count one of loopback's many addresses as public, so that a real server can stand there."""
    return address == "127.0.0.2" or is_public(address)


async def test_a_name_that_turns_private_is_refused() -> None:
    """Rebinding: the first call went well, the second meets another address."""
    resolver = Rebinding(["127.0.0.2"], ["127.0.0.1"])
    environment = HttpEnvironment(resolve=resolver, is_allowed=only_this_is_public)
    closing = Reply(200, b"hello", {"connection": "close"})
    async with (
        http_server(lambda _: closing, host="127.0.0.2") as server,
        HttpClient(environment) as http,
    ):
        await http.get(f"http://rebind.example:{server.port}/")

        with pytest.raises(Permanent, match=r"127\.0\.0\.1, which is not public"):
            await http.get(f"http://rebind.example:{server.port}/")

    assert len(server.seen) == 1


async def test_a_name_is_resolved_once_and_what_was_checked_is_connected_to() -> None:
    """Between the check and the connection nobody is asked again, whatever he would answer."""
    resolver = Rebinding(["127.0.0.2"], ["127.0.0.1"])
    environment = HttpEnvironment(resolve=resolver, is_allowed=only_this_is_public)
    async with http_server([Reply()], host="127.0.0.2") as server, HttpClient(environment) as http:
        await http.get(f"http://rebind.example:{server.port}/")

    assert server.seen[0].headers["host"] == f"rebind.example:{server.port}"
    assert resolver.answers == [["127.0.0.1"]]


async def test_one_private_address_among_public_ones_refuses_the_name() -> None:
    resolver = Rebinding(["8.8.8.8", "10.0.0.1"])
    async with HttpClient(HttpEnvironment(resolve=resolver)) as http:
        with pytest.raises(Permanent, match=r"10\.0\.0\.1"):
            await http.get("http://mixed.example/")


REDIRECT_TARGETS = [
    "http://169.254.169.254/latest/meta-data/", "file:///etc/passwd", "http://127.0.0.1:{port}/x",
    "http://[::1]/", "http://2130706433/", "http://0177.0.0.1/", "gopher://127.0.0.1/",
    "http://public.example:22/", "http://10.0.0.1/", "//169.254.169.254/", "http://[bad/",
]  # fmt: skip


@pytest.mark.parametrize("target", REDIRECT_TARGETS)
async def test_redirects_are_checked_like_any_address(target: str) -> None:
    reply = Reply(302)
    environment = HttpEnvironment(is_allowed=only_this_is_public)
    async with http_server(lambda _: reply, host="127.0.0.2") as server:
        reply.headers = {"location": target.format(port=server.port)}
        async with HttpClient(environment) as http:
            with pytest.raises(Permanent):
                await http.get(f"http://127.0.0.2:{server.port}/")

    assert len(server.seen) == 1


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with http_server(lambda _: Reply()) as server, http_server([]) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        async with HttpClient(HttpEnvironment(allow_private=True)) as http:
            await http.get(server.url)

    assert (len(server.seen), proxy.seen) == (1, [])
