"""How credentials are sent: as headers or as query parameters, to one origin only."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from syncline.errors import Unauthorized

FORMS = "token, username and password, headers, query, or access_token"


@dataclass(frozen=True, slots=True)
class Authentication:
    """The headers and query parameters added to each request to the connection's own origin."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __bool__(self) -> bool:
        return bool(self.headers or self.query)


def authentication_from(credentials: Mapping[str, Any] | None) -> Authentication:
    """Return how to send credentials in the usual forms.

    `access_token` (OAuth 2) and `token` become a bearer token, `username` and `password` become
    basic authentication, `headers` and `query` are sent as they are. The connector itself sends
    anything else.
    """
    if not credentials:
        return Authentication()
    headers = _texts("headers", credentials.get("headers"))
    if token := credentials.get("access_token") or credentials.get("token"):
        headers["authorization"] = f"Bearer {_text('token', token)}"
    elif "username" in credentials or "password" in credentials:
        headers["authorization"] = basic(
            _text("username", credentials.get("username", "")),
            _text("password", credentials.get("password", "")),
        )
    return Authentication(headers, _texts("query", credentials.get("query")))


def basic(username: str, password: str) -> str:
    """Return the value of the `Authorization` header."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _texts(name: str, value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Unauthorized(
            f"{name} in the credentials must be an object; the credentials may have {FORMS}"
        )
    return {str(key).lower(): _text(f"{name}.{key}", text) for key, text in value.items()}


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise Unauthorized(f"{name} in the credentials must be printable text")
    return value
