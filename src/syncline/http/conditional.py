"""Conditional requests: what to remember of a response so that the next one may be a 304."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from syncline.http.messages import Response


@dataclass(frozen=True, slots=True)
class Validators:
    """A response's `ETag` and `Last-Modified`; as JSON they fit into a cursor."""

    etag: str | None = None
    last_modified: str | None = None

    @classmethod
    def of(cls, response: Response) -> "Validators":
        """Return the validators of a response; a 304 may omit those that did not change."""
        return cls(response.headers.get("etag"), response.headers.get("last-modified"))

    @classmethod
    def from_json(cls, value: Any) -> "Validators":
        """Return the validators that `to_json` made; anything else gives empty ones."""
        if not isinstance(value, Mapping):
            return cls()
        etag, last_modified = value.get("etag"), value.get("last_modified")
        return cls(
            etag if isinstance(etag, str) else None,
            last_modified if isinstance(last_modified, str) else None,
        )

    def to_json(self) -> dict[str, str]:
        named = {"etag": self.etag, "last_modified": self.last_modified}
        return {name: text for name, text in named.items() if text is not None}

    def headers(self) -> dict[str, str]:
        """Return request headers that ask for a response only if the version differs."""
        named = {"if-none-match": self.etag, "if-modified-since": self.last_modified}
        return {name: text for name, text in named.items() if text is not None}
