"""Conditional requests: what to remember of an answer so that the next one may be a mere 304."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from httpx2 import Response


@dataclass(frozen=True, slots=True)
class Validators:
    """An answer's `ETag` and `Last-Modified`; as JSON they fit into a cursor."""

    etag: str | None = None
    last_modified: str | None = None

    @classmethod
    def of(cls, answer: Response) -> "Validators":
        """Return what an answer says of its version; a 304 may leave out what has not changed."""
        return cls(answer.headers.get("etag"), answer.headers.get("last-modified"))

    @classmethod
    def from_json(cls, value: Any) -> "Validators":
        """Return what `to_json` gave, or none at all for anything else."""
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
        """Return the headers that ask for an answer only if it differs."""
        named = {"if-none-match": self.etag, "if-modified-since": self.last_modified}
        return {name: text for name, text in named.items() if text is not None}
