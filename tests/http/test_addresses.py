"""No connector reaches a private address, however it is written."""

import pytest

from support.httpserver import Reply, http_server
from syncline import Permanent, Transient
from syncline.http import HttpClient, HttpEnvironment, HttpLimits, Url
from syncline.http.addresses import check_url, is_public

# By the purpose of each range, with its first and last address where possible.
NOT_PUBLIC = {
    "this host": ["0.0.0.0", "0.1.2.3", "0.255.255.255", "::"],
    "loopback": ["127.0.0.1", "127.255.255.254", "::1"],
    "private": ["10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0",
                "192.168.255.255", "fc00::", "fd12:3456::1",
                "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
    "carriers": ["100.64.0.0", "100.127.255.255"],
    "link-local": ["169.254.0.0", "169.254.255.255", "fe80::1", "fe80::1%eth0",
                   "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
    "site-local": ["fec0::1", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
    "metadata of clouds": ["169.254.169.254", "169.254.0.23", "100.100.100.200", "168.63.129.16",
                           "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "fe80::a9fe:a9fe"],
    "protocol assignments": ["192.0.0.0", "192.0.0.9", "192.0.0.10", "192.0.0.255", "2001::",
                             "2001:1::1", "2001:2::", "2001:3::", "2001:4:112::", "2001:10::",
                             "2001:20::", "2001:30::",
                             "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"],
    "documentation": ["192.0.2.0", "192.0.2.255", "198.51.100.0", "198.51.100.255", "203.0.113.0",
                      "203.0.113.255", "2001:db8::1", "2001:db8:ffff::1", "3fff::1", "3fff:fff::1"],
    "AS112 and AMT": ["192.31.196.1", "192.52.193.1", "192.175.48.1", "2620:4f:8000::1"],
    "6to4": ["192.88.99.0", "192.88.99.1", "192.88.99.255", "2002:7f00:1::", "2002:a00:1::",
             "2002:808:808::1"],
    "benchmarks": ["198.18.0.0", "198.19.255.255"],
    "multicast": ["224.0.0.0", "233.252.0.1", "239.255.255.255", "ff02::1", "ff0e::1"],
    "reserved": ["240.0.0.0", "250.1.2.3", "255.255.255.255", "4000::1", "8000::1", "1::1"],
    "discard": ["100::", "100::1", "100:0:0:1::1"],
    "segment routing": ["5f00::", "5f00:ffff::1"],
    "translated": ["64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::a83f:8110", "64:ff9b:1::1",
                   "64:ff9b:1::808:808", "64:ff9b:1:ffff::808:808", "64:ff9b:2::808:808"],
    "mapped": ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
               "::ffff:168.63.129.16", "::ffff:192.88.99.1"],
    "compatible": ["::127.0.0.1", "::10.0.0.1", "::8.8.8.8", "::ffff:0:8.8.8.8"],
}  # fmt: skip
# Neighbours of refused addresses, and IPv6 forms of public ones.
PUBLIC = [
    "1.0.0.0", "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
    "126.255.255.255", "128.0.0.0", "168.63.129.15", "168.63.129.17", "169.253.255.255",
    "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0", "192.0.3.0",
    "192.31.195.255", "192.52.194.0", "192.88.98.255", "192.88.100.0", "192.167.255.255",
    "192.169.0.0", "198.17.255.255", "198.20.0.0", "198.51.99.255", "203.0.112.255",
    "223.255.255.255", "2001:200::1", "2001:4860:4860::8888", "2001:db7::1", "2001:db9::1",
    "2003::1", "2606:4700::1111", "2620:4f:8001::1", "2a00::1", "3ffe:ffff::1",
    "::ffff:8.8.8.8", "64:ff9b::808:808",
]  # fmt: skip


@pytest.mark.parametrize("kind", NOT_PUBLIC)
def test_special_addresses_are_denied_by_our_own_list(kind: str) -> None:
    assert [address for address in NOT_PUBLIC[kind] if is_public(address)] == []


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_public(address)


# Without the check, each of these reaches the server below.
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
    """Without the check they arrive, so the check is what stops them."""
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
async def test_only_http_schemes_and_ports_are_allowed(url: str) -> None:
    async with HttpClient(HttpEnvironment()) as http:
        with pytest.raises(Permanent):
            await http.get(url)


@pytest.mark.parametrize("port", [80, 443, 1024, 8443, 65535])
def test_usual_ports_are_allowed(port: int) -> None:
    check_url(Url(f"http://example.com:{port}/"), allow_private=False)


class Rebinding:
    """A resolver that gives each of its answers once."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def __call__(self, host: str, port: int) -> list[str]:
        return self.answers.pop(0)


def only_this_is_public(address: str) -> bool:
    """Treat one loopback address as public, so that a real server can listen there."""
    return address == "127.0.0.2" or is_public(address)


async def test_a_name_that_turns_private_is_refused() -> None:
    """Rebinding: the name resolves to another address for the second request."""
    resolver = Rebinding(["127.0.0.2"], ["127.0.0.1"])
    environment = HttpEnvironment(
        HttpLimits(dns_cache_seconds=0), resolve=resolver, is_allowed=only_this_is_public
    )
    closing = Reply(200, b"hello", {"connection": "close"})
    async with (
        http_server(lambda _: closing, host="127.0.0.2") as server,
        HttpClient(environment) as http,
    ):
        await http.get(f"http://rebind.example:{server.port}/")

        with pytest.raises(Permanent, match=r"127\.0\.0\.1, which is not public"):
            await http.get(f"http://rebind.example:{server.port}/")

    assert len(server.seen) == 1


async def test_a_name_is_resolved_once_and_the_checked_address_is_used() -> None:
    """The resolver is not asked again between the check and the connection."""
    resolver = Rebinding(["127.0.0.2"], ["127.0.0.1"])
    environment = HttpEnvironment(resolve=resolver, is_allowed=only_this_is_public)
    async with http_server([Reply()], host="127.0.0.2") as server, HttpClient(environment) as http:
        await http.get(f"http://rebind.example:{server.port}/")

    assert server.seen[0].headers["host"] == f"rebind.example:{server.port}"
    assert resolver.answers == [["127.0.0.1"]]


async def test_a_checked_address_is_kept_for_a_while() -> None:
    resolver = Rebinding(["127.0.0.2"], ["127.0.0.1"])
    environment = HttpEnvironment(resolve=resolver, is_allowed=only_this_is_public)
    closing = Reply(200, b"hello", {"connection": "close"})
    async with (
        http_server(lambda _: closing, host="127.0.0.2") as server,
        HttpClient(environment) as http,
    ):
        for _ in range(2):
            await http.get(f"http://rebind.example:{server.port}/")

    assert len(server.seen) == 2
    assert resolver.answers == [["127.0.0.1"]]


async def test_each_address_is_tried_in_turn() -> None:
    resolver = Rebinding(["127.0.0.3", "127.0.0.2"])
    environment = HttpEnvironment(resolve=resolver, allow_private=True)
    async with http_server([Reply()], host="127.0.0.2") as server, HttpClient(environment) as http:
        await http.get(f"http://two.example:{server.port}/")

    assert len(server.seen) == 1


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
