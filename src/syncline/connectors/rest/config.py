"""The configuration of `rest`: what differs between one JSON API and another."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from syncline.connectors.config import Configuration
from syncline.errors import Unauthorized
from syncline.http import Authentication

Path = str
"""A path of keys such as `meta.next`; the empty path is the whole value."""


class Auth(Configuration):
    """How credentials are sent; `auto` decides by their fields."""

    kind: Literal["auto", "header", "query"] = "auto"
    name: str = "authorization"
    prefix: str = ""


class Pagination(Configuration):
    """How to find the next page; `url` and `token` are read from a header or a field."""

    style: Literal["none", "link", "url", "token", "page", "offset"] = "none"
    header: str | None = None
    field: Path | None = None
    parameter: str | None = None
    size: int | None = Field(default=None, ge=1)
    size_parameter: str | None = None
    first: int = 1


class Since(Configuration):
    """How to request only changes: by the largest value of a field seen so far."""

    parameter: str
    field: Path
    start: str | int | float | None = None
    overlap_seconds: float = Field(default=0, ge=0)
    order: Literal["ascending", "descending"] = "ascending"


class Tombstones(Configuration):
    """How to recognise a deleted record: by a field, or by one of its values."""

    field: Path
    value: Any = True
    kind: str | None = None


class Api(Configuration):
    """One listing of one API."""

    base_url: str = Field(pattern="^https?://")
    path: str = ""
    params: dict[str, str | int | float | bool] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    auth: Auth = Auth()
    records: Path = ""
    id: Path = "id"
    kind: str = Field(default="record", min_length=1, max_length=200)
    time: Path | None = None
    version: Path | None = None
    pagination: Pagination = Pagination()
    since: Since | None = None
    tombstones: Tombstones | None = None


def authentication_of(auth: Auth, credentials: Any) -> Authentication | None:
    """Return how the token is sent, or None if the credentials' fields decide."""
    if auth.kind == "auto":
        return None
    token = (credentials or {}).get("token")
    if not isinstance(token, str):
        raise Unauthorized(f"the credentials have no token to send as {auth.kind} {auth.name!r}")
    sent = {auth.name.lower(): auth.prefix + token}
    return Authentication(headers=sent) if auth.kind == "header" else Authentication(query=sent)


def secret_parameters(auth: Auth, credentials: Any) -> list[str]:
    """Return the secret query parameters, which a provider may repeat in its links."""
    if auth.kind == "query":
        return [auth.name.lower()]
    query = (credentials or {}).get("query")
    return [str(name).lower() for name in query] if isinstance(query, Mapping) else []
