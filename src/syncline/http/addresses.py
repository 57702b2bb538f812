"""Which addresses a connector may reach: pure decisions about URLs and resolved addresses."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

from syncline.errors import Permanent

if TYPE_CHECKING:
    from httpx2 import URL

SCHEMES = {"http": 80, "https": 443}
FIRST_UNPRIVILEGED_PORT = 1024
# The list is ours, after IANA's registries of special-purpose addresses: the interpreter's own idea
# of what is global changes with its version. A row is denied also where the registry calls it
# reachable, because no provider is served from there.
SPECIAL_IPV4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carriers' own networks; also the metadata of some clouds
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # the host of an Azure machine, although the range is public
        "169.254.0.0/16",  # link-local; the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; the metadata of Oracle's cloud
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # automatic multicast tunneling
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
# Of IPv6 only global unicast is allocated; loopback, link-local, unique local, multicast, discard,
# segment routing and local translation lie outside of it.
GLOBAL_UNICAST = IPv6Network("2000::/3")
SPECIAL_IPV6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID and others
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which leads to an IPv4 address by way of anybody's relay
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
# These stand for an IPv4 address, which is what has to be public: whatever resolves names in a
# network that speaks IPv6 alone answers with the second.
MAPPED, TRANSLATED = IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96")
SETTING = "http.allow_private"


def port_of(url: "URL") -> int:
    return SCHEMES.get(url.scheme, 0) if url.port is None else url.port


def origin_of(url: "URL") -> tuple[str, str, int]:
    """Return what must be equal for credentials to travel: scheme, host and port."""
    return url.scheme, url.host.rstrip("."), port_of(url)


def check_url(url: "URL", *, allow_private: bool) -> None:
    """Refuse what is no HTTP address, and ports of services that speak something else."""
    if url.scheme not in SCHEMES:
        raise Permanent(f"the address has the scheme {url.scheme!r}; it must be http or https")
    if not url.host or "%" in url.host:
        raise Permanent("the address names no host")
    port = port_of(url)
    if not allow_private and port not in SCHEMES.values() and port < FIRST_UNPRIVILEGED_PORT:
        raise Permanent(
            f"{url.host} is asked for at port {port}; it must be 80, 443 or above 1023 "
            f"unless {SETTING} names the provider"
        )


def refusal(host: str, address: str) -> Permanent:
    return Permanent(
        f"{host} leads to {address}, which is not public; "
        f"{SETTING} names the providers that may go there"
    )


def is_public(address: str) -> bool:
    """Return whether an address belongs to the public internet, whatever form it is written in."""
    parsed: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(parsed, IPv6Address):
        if parsed not in MAPPED and parsed not in TRANSLATED:
            special = any(parsed in network for network in SPECIAL_IPV6)
            return parsed in GLOBAL_UNICAST and not special
        parsed = IPv4Address(int(parsed) & 0xFFFFFFFF)
    return not any(parsed in network for network in SPECIAL_IPV4)
