"""Open database sessions: over verified TLS, unless the server is on this machine.

By default the driver uses TLS if it is offered, and does not check the certificate, so an attacker
on the network could offer none. A URL that names an `sslmode`, or PGSSLMODE, is obeyed.
"""

import os
import ssl
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from syncline.errors import DatabaseTlsError

# Overrides what the role or the database has set, so that no foreign function or operator comes
# before the ones that the statements mean. Temporary tables come last.
SEARCH_PATH = "pg_catalog, pg_temp"
VERIFIED: Literal["verify-full"] = "verify-full"
Tls = ssl.SSLContext | Literal["verify-full"] | None
NO_TLS = "rejected SSL upgrade"  # the driver has no type for it
TRUSTED_NETWORK = "add sslmode=disable to the URL if you trust the network between"


async def connect(url: str, **options: Any) -> Any:
    """Return a new session, or raise an error that says why TLS failed and what to do."""
    if names_many_hosts(url):
        options.setdefault("target_session_attrs", "read-write")
    try:
        return await asyncpg.connect(url, ssl=tls_for(url, os.environ), **options)
    except ssl.SSLCertVerificationError as error:
        raise DatabaseTlsError(
            f"the certificate of the database cannot be verified: {error.verify_message}; name "
            "its authority with sslrootcert=FILE in the URL, or add sslmode=require to encrypt "
            "without knowing who answers"
        ) from None
    except ssl.SSLError as error:
        reason = error.reason or error
        raise DatabaseTlsError(f"TLS with the database failed: {reason}") from None
    except ConnectionError as error:
        if NO_TLS in str(error):
            raise DatabaseTlsError(
                f"the database offers no TLS, which a remote one must; {TRUSTED_NETWORK}"
            ) from None
        raise


def names_many_hosts(url: str) -> bool:
    """Return whether a URL names several hosts but not which kind of server to use."""
    query = _query(url)
    hosts = urlsplit(url).netloc.rpartition("@")[2] or query.get("host", "")
    return "," in hosts and "target_session_attrs" not in query


def tls_for(url: str, environment: Mapping[str, str]) -> Tls:
    """Return the driver's `ssl` option; None leaves it to the URL."""
    query = _query(url)
    mode = query.get("sslmode") or environment.get("PGSSLMODE")
    if mode is None and is_local(url, environment):
        return None
    if mode not in (None, VERIFIED):
        return None
    authority = _named("sslrootcert", query, environment, "root.crt")
    if authority is None or authority == "system":
        return _system_context(query, environment)
    if not Path(authority).is_file():
        raise DatabaseTlsError(f"sslrootcert names {authority}, which is not a file")
    return VERIFIED


def is_local(url: str, environment: Mapping[str, str]) -> bool:
    """Return whether every host of a URL is this machine; if in doubt, it counts as remote."""
    query = _query(url)
    _, at, after = urlsplit(url).netloc.partition("@")
    hosts = (after if at else urlsplit(url).netloc) or query.get("host")
    if not hosts and "service" in query:
        return False  # a file of the driver names the host
    hosts = hosts or environment.get("PGHOST")
    return not hosts or all(_is_local_host(unquote(host)) for host in hosts.split(","))


def _is_local_host(host: str) -> bool:
    if host.startswith("/"):
        return True  # the folder of a socket
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _query(url: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(urlsplit(url).query).items()}


def _named(
    option: str, query: Mapping[str, str], environment: Mapping[str, str], default: str
) -> str | None:
    """Return the file that an option names, from the URL, the environment or the usual place."""
    usual = Path("~/.postgresql", default).expanduser()
    named = query.get(option) or environment.get(f"PG{option.upper()}")
    return named or (str(usual) if usual.is_file() else None)


def _system_context(query: Mapping[str, str], environment: Mapping[str, str]) -> ssl.SSLContext:
    """Return a context that trusts the system's authorities; the driver has no option for it."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["postgresql"])
    certificate = _named("sslcert", query, environment, "postgresql.crt")
    if certificate is not None:
        key = _named("sslkey", query, environment, "postgresql.key")
        password = query.get("sslpassword", "")
        context.load_cert_chain(certificate, key, password)
    return context
