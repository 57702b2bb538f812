"""Which addresses a connector may reach: pure decisions about URLs and resolved addresses."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

from syncline.errors import Permanent

if TYPE_CHECKING:
    from httpx2 import URL

SCHEMES = {"http": 80, "https": 443}
FIRST_UNPRIVILEGED_PORT = 1024
GLOBAL_UNICAST = IPv6Network("2000::/3")
# Addresses that stand for an IPv4 address: whoever asks for one reaches the other.
TRANSLATED = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"), IPv6Network("::/96"))
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
        inner = _embedded(parsed)
        if inner is not None:
            return is_public(str(inner))
        return parsed in GLOBAL_UNICAST and parsed.is_global
    return parsed.is_global and not (parsed.is_multicast or parsed.is_reserved)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address leads to, if it is of such a kind."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in TRANSLATED):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None
