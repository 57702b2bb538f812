"""Which addresses a connector may reach, and how a URL is shown without its secrets."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

from syncline.errors import Permanent

if TYPE_CHECKING:
    from syncline.http.url import Url

SCHEMES = {"http": 80, "https": 443}
FIRST_UNPRIVILEGED_PORT = 1024
# Our own list, from IANA's registries of special-purpose addresses, because what Python calls
# global changes with its version. We deny a network even if the registry calls it reachable,
# because no provider is served from there.
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
# In IPv6 only global unicast is public; loopback, link-local, unique local, multicast, discard,
# segment routing and local translation are outside of it.
GLOBAL_UNICAST = IPv6Network("2000::/3")
SPECIAL_IPV6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID and others
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which leads to an IPv4 address by way of a foreign relay
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
# These contain an IPv4 address, and that one has to be public. Resolvers in IPv6-only networks
# return the second form.
MAPPED, TRANSLATED = IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96")
SETTING = "http.allow_private"


def port_of(url: "Url") -> int:
    return SCHEMES.get(url.scheme, 0) if url.port is None else url.port


def check_url(url: "Url", *, allow_private: bool) -> None:
    """Refuse URLs that are not HTTP, and ports that belong to other services."""
    if url.scheme not in SCHEMES:
        raise Permanent(f"the URL has the scheme {url.scheme!r}; use http or https")
    if not url.host:
        raise Permanent("the URL has no host")
    if url.port is None:
        return
    port = url.port
    if not allow_private and port not in SCHEMES.values() and port < FIRST_UNPRIVILEGED_PORT:
        raise Permanent(
            f"port {port} of {url.host} is refused; use 80, 443 or a port above 1023, "
            f"or add the provider to {SETTING}"
        )


def not_public(host: str, address: str) -> Permanent:
    return Permanent(
        f"{host} resolves to {address}, which is not public; "
        f"add the provider to {SETTING} to allow it"
    )


def is_public(address: str) -> bool:
    """Return whether an address is on the public internet, in whatever form it is written."""
    parsed: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(parsed, IPv6Address):
        if parsed not in MAPPED and parsed not in TRANSLATED:
            special = any(parsed in network for network in SPECIAL_IPV6)
            return parsed in GLOBAL_UNICAST and not special
        parsed = IPv4Address(int(parsed) & 0xFFFFFFFF)
    return not any(parsed in network for network in SPECIAL_IPV4)


def describe(method: str, url: "Url") -> str:
    """Return a request as text: the method and the URL, without anything that may be secret."""
    return f"{method} {shown_url(url)}"


def shown_url(url: "Url") -> str:
    """Return a URL without its user information and without the values of its query."""
    names = "&".join(f"{name}=…" for name in url.params)
    return f"{url.scheme}://{url.netloc}{url.path}{'?' + names if names else ''}"
