"""What may be said about a request: never user information, query values or known secrets."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from syncline.redaction import mask_secrets

if TYPE_CHECKING:
    from httpx2 import URL

SHORTEST_SECRET = 4  # shorter values would blank out ordinary words
MASK = "***"
# What credentials hold beside secrets; to blank out a scope named "read" would garble every text.
NOT_SECRET = {"username", "client_id", "token_url", "token_type", "scope", "expires_at"}


class Scrubber:
    """Takes a connection's secrets out of text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # The longest first: one secret may hold another.
        long_enough = {secret for secret in secrets if len(secret) >= SHORTEST_SECRET}
        forms = {form for secret in long_enough for form in _forms(secret)}
        self._secrets = sorted(forms, key=len, reverse=True)

    def finds_any(self, text: str) -> bool:
        return any(secret in text for secret in self._secrets)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return mask_secrets(text)


def _forms(secret: str) -> set[str]:
    """Return a secret as it may stand in an address, in JSON and in a representation."""
    return {
        secret,
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
    }


def secrets_in(value: Any) -> set[str]:
    """Return every text of credentials that may not be shown."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, Mapping):
        inner = (secrets_in(item) for key, item in value.items() if key not in NOT_SECRET)
        return set().union(*inner)
    if isinstance(value, list | tuple):
        return set().union(*(secrets_in(item) for item in value))
    return set()


def describe(method: str, url: "URL") -> str:
    """Return a request in words: the method, and the address without what may be secret."""
    return f"{method} {address(url)}"


def address(url: "URL") -> str:
    """Return an address without user information and without the values of its query."""
    names = "&".join(f"{name}=…" for name in url.params)
    port = f":{url.port}" if url.port else ""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}{port}{url.path}{'?' + names if names else ''}"
