"""Resolve names to addresses, and check every address before anything connects to it."""

import asyncio
import socket
from ipaddress import ip_address

from syncline.errors import Transient
from syncline.http.addresses import not_public
from syncline.http.environment import HttpEnvironment


async def numeric_host(environment: HttpEnvironment, host: str, port: int) -> str:
    """Return the address that a numeric host means, or raise `Permanent` if it is not allowed.

    The library connects to numbers without a resolver, and refuses the forms `127.1` and
    `2130706433`, which the system's resolver reads.
    """
    try:
        ip_address(host)
    except ValueError:
        return (await checked_addresses(environment, host, port))[0]
    check_address(environment, host, host)
    return host


def is_numeric(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


async def checked_addresses(environment: HttpEnvironment, host: str, port: int) -> list[str]:
    """Resolve a name once and return its addresses; raise `Permanent` if any is not allowed."""
    addresses = await (environment.resolve or resolve)(host, port)
    if not addresses:
        raise Transient(f"{host} has no address")
    for address in addresses:
        # One private address refuses them all: a name with both kinds is an attack.
        check_address(environment, host, address)
    return addresses


def check_address(environment: HttpEnvironment, host: str, address: str) -> None:
    if not environment.allow_private and not environment.is_allowed(address):
        raise not_public(host, address)


async def resolve(host: str, port: int) -> list[str]:
    """Resolve with the system's resolver, which also reads decimal, octal and short forms."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Transient(f"{host} cannot be resolved: {error}") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
