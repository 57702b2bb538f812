"""Where a mirror comes from: an address without secrets, and the settings that carry them."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from syncline.errors import Permanent
from syncline.http.addresses import SCHEMES, is_public, refusal
from syncline.http.auth import authentication_from

if TYPE_CHECKING:
    from syncline.http import HttpEnvironment

DEFAULT_USER = "x-access-token"  # what a token's name is to most hosts of repositories
PORTS = SCHEMES | {"git": 9418, "ssh": 22}


class Origin(NamedTuple):
    """An address that may be seen, and git's settings for going there."""

    url: str
    settings: tuple[tuple[str, str], ...] = ()


async def find_origin(
    url: str, credentials: Any, environment: "HttpEnvironment | None" = None
) -> Origin:
    """Return where to fetch from, or refuse an address that must not be reached."""
    try:
        parts = urlsplit(url if "://" in url else re.sub(r"^([^/]*?):", r"ssh://\1/", url))
        host, port = parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        raise Permanent("config.url: the address cannot be read") from None
    if parts.scheme == "file" or not host:
        return Origin(url)
    allow_private = environment is not None and environment.allow_private
    settings = [] if allow_private else await _public(host, port, parts.scheme, environment)
    if parts.scheme not in SCHEMES:
        return Origin(url, tuple(settings))
    headers = _headers(parts, credentials)
    if headers and parts.scheme != "https" and not allow_private:
        raise Permanent("config.url: it must be https, or the credentials would go in the open")
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    scope = f"{bare.scheme}://{bare.netloc}/"
    settings += [(f"http.{scope}.extraHeader", f"{n}: {v}") for n, v in headers.items()]
    return Origin(bare.geturl(), tuple(settings))


async def _public(
    host: str, port: int, scheme: str, environment: "HttpEnvironment | None"
) -> list[tuple[str, str]]:
    """Return the settings that hold git to the addresses that were looked at."""
    from syncline.http.transport import resolve  # it takes a tenth of a second to import

    ask = environment.resolve if environment and environment.resolve else resolve
    addresses = await ask(host, port)
    for address in addresses:
        if not is_public(address):
            raise refusal(host, address)
    if scheme not in SCHEMES:
        return []
    found = ",".join(f"[{address}]" if ":" in address else address for address in addresses)
    return [
        ("http.curloptResolve", f"{host}:{port}:{found}"),
        ("http.followRedirects", "false"),  # they could lead anywhere
    ]


def _headers(parts: SplitResult, credentials: Any) -> dict[str, str]:
    """Return the headers that credentials travel in; hosts of repositories want basic ones."""
    given = dict(credentials) if isinstance(credentials, Mapping) else {}
    token = given.pop("access_token", None) or given.pop("token", None)
    if token:
        given = {"username": DEFAULT_USER, **given, "password": token}
    elif not given and parts.username is not None:
        given = {"username": unquote(parts.username), "password": unquote(parts.password or "")}
    return dict(authentication_from(given).headers)
