"""URLs: parsed once, percent-encoded where needed, and otherwise sent as they were written.

What a provider wrote stays as it is, because a signed link must not change. The host that is
checked is the host that is called: nothing parses a URL again after this module.
"""

import re
from collections.abc import Mapping
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Any
from urllib.parse import parse_qs, unquote, urljoin

MAX_LENGTH = 65_536
DEFAULT_PORTS = {"http": 80, "https": 443}
PARTS = re.compile(
    r"(?:([a-zA-Z][a-zA-Z0-9+.-]*+):)?(?://([^/?#]*+))?([^?#]*+)(?:\?([^#]*+))?(?:#(.*))?",
    re.DOTALL,
)
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
HOST = re.compile(r"[a-z0-9_](?:[a-z0-9._-]*+)")
FOUR_NUMBERS = re.compile(r"[0-9]++\.[0-9]++\.[0-9]++\.[0-9]++")
PORT = re.compile(r"[0-9]{1,5}")
# Everything that a part may not contain as it is. A percent sign may be the start of an escape.
UNSAFE_IN_PATH = re.compile(r"[^!$-;=@-_a-z|~]")
UNSAFE_IN_QUERY = re.compile(r"[^!$-;=?-~]")
UNSAFE_IN_FORM = re.compile(r"[^A-Za-z0-9_.~-]")
PLAIN_REFERENCE = re.compile(r"/?(?:[A-Za-z0-9_~-]++/)*+[A-Za-z0-9_~-]++/?")


class InvalidUrl(ValueError):
    """The text is not a URL."""


class Url:
    """An HTTP URL, or a reference to join to one. It never changes.

    `host` is in lower case and in ASCII, `raw_path` and `query` are percent-encoded.
    """

    __slots__ = ("fragment", "host", "port", "query", "raw_path", "scheme", "userinfo")

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH or CONTROL.search(text):
            raise InvalidUrl("the URL is too long or has control characters")
        found = PARTS.fullmatch(text)
        assert found is not None  # every part may be empty
        scheme, authority, path, query, fragment = found.groups()
        self.scheme: str = scheme.lower() if scheme else ""
        self.userinfo, self.host, self.port = _read_authority(authority or "", self.scheme)
        if authority is not None and path and not path.startswith("/"):
            raise InvalidUrl("the path must begin with a slash")
        if not scheme and not authority and path.startswith(("//", ":")):
            raise InvalidUrl("a reference must not begin with two slashes or a colon")
        if "." in path and (scheme or authority):
            path = _without_dots(path)
        self.raw_path: str = UNSAFE_IN_PATH.sub(_encode, path)
        self.query: str | None = None if query is None else UNSAFE_IN_QUERY.sub(_encode, query)
        self.fragment: str | None = fragment

    @property
    def path(self) -> str:
        """The path without percent-encoding."""
        return unquote(self.raw_path or "/")

    @property
    def target(self) -> str:
        """The path and the query, as they are sent."""
        path = self.raw_path or "/"
        return path if self.query is None else f"{path}?{self.query}"

    @property
    def netloc(self) -> str:
        """The host and, if it is not the usual one, the port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: credentials are sent only where all three are the same."""
        port = DEFAULT_PORTS.get(self.scheme, 0) if self.port is None else self.port
        return self.scheme, self.host.rstrip("."), port

    @property
    def params(self) -> dict[str, str]:
        """The first value of each query parameter."""
        return {name: values[0] for name, values in self._all_params().items()}

    def join(self, reference: str) -> "Url":
        """Return the URL that a reference means when it stands on the page of this URL."""
        if PLAIN_REFERENCE.fullmatch(reference) and self.host:
            folder = "" if reference[0] == "/" else self.raw_path.rpartition("/")[0] + "/"
            joined = self._copy()
            joined.raw_path, joined.query, joined.fragment = folder + reference, None, None
            return joined
        return Url(urljoin(str(self), str(Url(reference))))

    def as_folder(self) -> "Url":
        """Return this URL with a slash at its end, so that references are joined below it."""
        folder = self._copy()
        folder.raw_path = self.raw_path.rstrip("/") + "/"
        return folder

    def with_params(self, params: Mapping[str, Any]) -> "Url":
        """Return this URL with more query parameters; they replace those of the same name."""
        merged: dict[str, list[str]] = self._all_params() if self.query else {}
        for name, value in params.items():
            values = value if isinstance(value, list | tuple) else (value,)
            merged[str(name)] = [text_of(one) for one in values]
        return self._with_query(merged)

    def without_param(self, name: str) -> "Url":
        """Return this URL without a query parameter."""
        kept = self._all_params()
        return self._with_query(kept) if kept.pop(name, None) is not None else self

    def without_user(self) -> "Url":
        """Return this URL without user information."""
        if not self.userinfo:
            return self
        copied = self._copy()
        copied.userinfo = ""
        return copied

    def without_fragment(self) -> "Url":
        if self.fragment is None:
            return self
        copied = self._copy()
        copied.fragment = None
        return copied

    @property
    def user(self) -> tuple[str, str]:
        """The user name and the password in the URL."""
        name, _, password = self.userinfo.partition(":")
        return unquote(name), unquote(password)

    def __str__(self) -> str:
        user = f"{self.userinfo}@" if self.userinfo else ""
        scheme = f"{self.scheme}:" if self.scheme else ""
        authority = f"//{user}{self.netloc}" if user or self.host or self.port is not None else ""
        query = "" if self.query is None else f"?{self.query}"
        fragment = "" if self.fragment is None else f"#{self.fragment}"
        return f"{scheme}{authority}{self.raw_path}{query}{fragment}"

    def __repr__(self) -> str:
        return f"<Url of {self.scheme}://{self.netloc}>"  # without anything that may be secret

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def _all_params(self) -> dict[str, list[str]]:
        return parse_qs(self.query or "", keep_blank_values=True)

    def _with_query(self, params: Mapping[str, list[str]]) -> "Url":
        copied = self._copy()
        pairs = [
            f"{UNSAFE_IN_FORM.sub(_encode_form, name)}={UNSAFE_IN_FORM.sub(_encode_form, one)}"
            for name, values in params.items()
            for one in values
        ]
        copied.query = "&".join(pairs) or None
        return copied

    def _copy(self) -> "Url":
        copied = object.__new__(Url)
        copied.scheme, copied.userinfo = self.scheme, self.userinfo
        copied.host, copied.port = self.host, self.port
        copied.raw_path, copied.query = self.raw_path, self.query
        copied.fragment = self.fragment
        return copied


def text_of(value: Any) -> str:
    """Return the text of a query parameter or of a field of a form."""
    if value is True or value is False:
        return "true" if value else "false"
    return "" if value is None else str(value)


def _read_authority(authority: str, scheme: str) -> tuple[str, str, int | None]:
    """Return the user information, the host and the port."""
    if not authority:
        return "", "", None
    if "\\" in authority:  # some programs end the host there
        raise InvalidUrl("the host has characters that no name has")
    userinfo, _, place = authority.rpartition("@")
    if place.startswith("["):
        host, bracket, port = place[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise InvalidUrl("the host has one bracket")
        return userinfo, _check_ipv6(host), _read_port(port[1:], scheme)
    host, _, port = place.partition(":")
    return userinfo, _read_host(host), _read_port(port, scheme)


def _read_host(host: str) -> str:
    host = host.lower()
    if not host.isascii():
        host = _encode_international(host)
    if not host:
        return ""
    if not HOST.fullmatch(host):
        raise InvalidUrl("the host has characters that no name has")
    if FOUR_NUMBERS.fullmatch(host):
        try:
            IPv4Address(host)
        except AddressValueError:
            raise InvalidUrl("the host is not an IPv4 address") from None
    return host


def _encode_international(host: str) -> str:
    import idna  # few hosts need it, and its tables take a while to load

    try:
        return idna.encode(host).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise InvalidUrl("the host is not an international name") from None


def _check_ipv6(host: str) -> str:
    try:
        IPv6Address(host)
    except AddressValueError:
        raise InvalidUrl("the host is not an IPv6 address") from None
    if "%" in host:
        raise InvalidUrl("the host names an interface of this machine")
    return host


def _read_port(port: str, scheme: str) -> int | None:
    if not port:
        return None
    if not PORT.fullmatch(port) or int(port) > 65_535:
        raise InvalidUrl("the port is not a number up to 65535")
    return None if int(port) == DEFAULT_PORTS.get(scheme) else int(port)


def _without_dots(path: str) -> str:
    """Remove the segments `.` and `..`."""
    segments = path.split("/")
    if "." not in segments and ".." not in segments:
        return path
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            if kept and kept != [""]:
                kept.pop()
        elif segment != ".":
            kept.append(segment)
    return "/".join(kept)


def _encode(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


def _encode_form(found: re.Match[str]) -> str:
    return "+" if found[0] == " " else _encode(found)
