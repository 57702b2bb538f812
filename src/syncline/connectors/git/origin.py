"""Where a mirror comes from: an address that may be reached, and how git is pinned to it."""

import re
import shlex
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from syncline.connectors.git.program import Pairs
from syncline.errors import Permanent
from syncline.http.addresses import FIRST_UNPRIVILEGED_PORT, SETTING
from syncline.http.auth import authentication_from
from syncline.http.environment import HttpEnvironment

DEFAULT_USER = "x-access-token"  # what a token's name is to most hosts of repositories
PORTS = {"https": 443, "http": 80, "ssh": 22, "git": 9418}
MAX_URL = 2_000
MAX_KEY = 16_000
URL = re.compile(
    r"(?P<scheme>[a-z]{3,5})://"
    r"(?:(?P<user>[\w.~!$&'()*+,;=%-]{1,255})(?::(?P<password>[\w.~!$&'()*+,;=%-]{0,1000}))?@)?"
    r"(?P<host>[a-zA-Z0-9][a-zA-Z0-9._-]{0,252}|\[[0-9a-fA-F:.]{2,45}\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[^\s?#\\]*)",
    re.ASCII,
)
SSH_OPTIONS = (
    "BatchMode=yes",
    "ClearAllForwardings=yes",
    "ConnectTimeout=10",
    "ControlPath=none",
    "GlobalKnownHostsFile=/dev/null",
    "IdentitiesOnly=yes",
    "IdentityAgent=none",
    "StrictHostKeyChecking=yes",
    "UpdateHostKeys=no",
)


class Address(NamedTuple):
    """The parts of `scheme://user:password@host:port/path`."""

    scheme: str
    host: str
    port: int
    path: str
    user: str | None = None
    password: str | None = None

    @property
    def bare(self) -> str:
        """The address without secrets, as git gets it."""
        return f"{self.scheme}://{self.location}{self.path}"

    @property
    def location(self) -> str:
        return self.host if self.port == PORTS[self.scheme] else f"{self.host}:{self.port}"


class GitAccess(NamedTuple):
    """What the operator allows besides public https: folders, schemes, and hosts for ssh."""

    local_roots: tuple[Path, ...] = ()
    schemes: tuple[str, ...] = ()
    known_hosts: Path | None = None


class Origin(NamedTuple):
    """A URL that may be fetched, and the git settings that pin it to checked addresses."""

    url: str
    protocol: str
    settings: Pairs = ()
    environment: Pairs = ()


def parse_url(url: str) -> Address:
    """Return the parts of a URL; refuse every other form that git would accept."""
    found = URL.fullmatch(url) if len(url) <= MAX_URL else None
    if found is None or found["scheme"] not in PORTS:
        raise Permanent(
            "config.url: expected https://host/path, without a query, or a folder's absolute path"
        )
    host = found["host"].lower().rstrip(".")
    last = host.rpartition(".")[2]
    if (last.isdecimal() or last.startswith(("0x", "["))) and not _is_literal(host):
        raise Permanent("config.url: write the host as a name, or as an address in its usual form")
    port = int(found["port"] or PORTS[found["scheme"]])
    if not 0 < port < 65_536:
        raise Permanent(f"config.url: {port} is not a port")
    return Address(found["scheme"], host, port, found["path"], found["user"], found["password"])


def _is_literal(host: str) -> bool:
    """Return whether a host is an IP address in the form that all programs read alike."""
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


async def find_origin(
    address: Address,
    credentials: Any,
    access: GitAccess,
    environment: HttpEnvironment | None,
    folder: Path,
) -> Origin:
    """Return where to fetch from, or raise `Permanent`; an ssh key is written into `folder`."""
    environment = environment or HttpEnvironment()
    _check_scheme(address, access, environment)
    found = await _resolve(address, environment)
    if address.scheme == "git":
        return _pinned_git(address, found)
    if address.scheme == "ssh":
        return _pinned_ssh(address, found, credentials, access, folder)
    headers = _headers(address, credentials)
    scope = f"{address.scheme}://{address.location}/"
    sent = tuple((f"http.{scope}.extraHeader", f"{n}: {v}") for n, v in headers.items())
    return Origin(address.bare, address.scheme, (*_pin(address, found), *sent))


def _pin(address: Address, found: list[str]) -> Pairs:
    """Return the setting that makes git resolve the name to the checked addresses."""
    if _is_literal(address.host):
        return ()
    addresses = ",".join(f"[{one}]" if ":" in one else one for one in found)
    return (("http.curloptResolve", f"{address.host}:{address.port}:{addresses}"),)


def _check_scheme(address: Address, access: GitAccess, environment: HttpEnvironment) -> None:
    scheme, allow_private = address.scheme, environment.allow_private
    if scheme == "http" and not allow_private:
        raise Permanent(f"config.url: it must be https; to allow http, add git to {SETTING}")
    if scheme in ("git", "ssh") and scheme not in access.schemes:
        raise Permanent(f"config.url: {scheme}:// is not allowed; add {scheme} to git.schemes")
    if scheme in ("git", "ssh") and "~" in address.path:
        raise Permanent("config.url: write the path without ~")
    usual = {*PORTS.values()} if scheme not in ("http", "https") else {80, 443}
    if not allow_private and address.port not in usual and address.port < FIRST_UNPRIVILEGED_PORT:
        raise Permanent(
            f"config.url: port {address.port} is refused; use the usual port or one above 1023, "
            f"or add git to {SETTING}"
        )


async def _resolve(address: Address, environment: HttpEnvironment) -> list[str]:
    """Return the host's addresses, after checking that all of them are allowed."""
    from syncline.http.resolution import checked_addresses

    return await checked_addresses(environment, address.host.strip("[]"), address.port)


def _pinned_git(address: Address, found: list[str]) -> Origin:
    """Return the URL with an address in place of the name; the server still gets the name."""
    host = f"[{found[0]}]" if ":" in found[0] else found[0]
    named = ("GIT_OVERRIDE_VIRTUAL_HOST", address.location)
    return Origin(address._replace(host=host).bare, "git", environment=(named,))


def _pinned_ssh(
    address: Address, found: list[str], credentials: Any, access: GitAccess, folder: Path
) -> Origin:
    """Return an ssh command limited to one host, one key and one file of known hosts."""
    if access.known_hosts is None:
        raise Permanent("config.url: ssh:// needs git.known_hosts, a file with the host's key")
    if address.password is not None:
        raise Permanent("config.url: ssh:// takes no password; set private_key in the credentials")
    user = address.user or "git"
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", user):
        raise Permanent("config.url: expected ssh://user@host/path")
    alias = address.host if address.port == PORTS["ssh"] else f"[{address.host}]:{address.port}"
    options = (
        *SSH_OPTIONS,
        f"HostName={found[0]}",
        f"HostKeyAlias={alias}",
        f"IdentityFile={_write_key(credentials, folder)}",
        f"UserKnownHostsFile={access.known_hosts}",
    )
    command = ["ssh", "-F", "/dev/null", *(part for one in options for part in ("-o", one))]
    url = f"ssh://{user}@{address.location}{address.path}"
    variables = (("GIT_SSH_COMMAND", shlex.join(command)), ("GIT_SSH_VARIANT", "ssh"))
    return Origin(url, "ssh", environment=variables)


def _write_key(credentials: Any, folder: Path) -> Path | str:
    """Return a file with the connection's key, or `none`, so that ssh ignores the user's keys."""
    key = credentials.get("private_key") if isinstance(credentials, Mapping) else None
    if key is None:
        return "none"
    if not isinstance(key, str) or not key.startswith("-----BEGIN ") or len(key) > MAX_KEY:
        raise Permanent(
            "credentials.private_key: expected a private key, beginning with -----BEGIN"
        )
    file = folder / "key"
    file.touch(mode=0o600)
    file.write_text(key.rstrip("\n") + "\n")
    return file


def _headers(address: Address, credentials: Any) -> dict[str, str]:
    """Return the headers that carry the credentials; git hosts expect basic authentication."""
    given = dict(credentials) if isinstance(credentials, Mapping) else {}
    token = given.pop("access_token", None) or given.pop("token", None)
    if token:
        given = {"username": DEFAULT_USER, **given, "password": token}
    elif not given and address.user is not None:
        given = {"username": unquote(address.user), "password": unquote(address.password or "")}
    return dict(authentication_from(given).headers)
