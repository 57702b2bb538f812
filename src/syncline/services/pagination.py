"""Pages of listings: some items, and a token that leads to those that come next.

A token says where a page ended, nothing else: whose rows may be seen is asked anew with each page.
"""

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from syncline.errors import Invalid

T = TypeVar("T")
LONGEST_TOKEN = 4096


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A page; `next_page` is None where it is the last."""

    items: list[T]
    next_page: str | None


def listing(found: list[T], limit: int, token_of: Callable[[T], str]) -> Listing[T]:
    """Return a page of at most `limit` of the rows found, of which there may be one more."""
    if len(found) <= limit:
        return Listing(found, None)
    return Listing(found[:limit], token_of(found[limit - 1]))


def token(order: str, key: Any, id_: UUID) -> str:
    """Return the token of a place in an order."""
    shown = key.isoformat() if isinstance(key, datetime) else key
    text = json.dumps([order, shown, str(id_)], ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_token(text: str | None, order: str, key_type: type[Any] | None) -> Any:
    """Return the place that a token of this order names; None where there is no token."""
    if text is None:
        return None
    try:
        named, key, id_ = _decode(text)
        place = (_read_key(key, key_type), UUID(id_))
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise Invalid("page", "is not a token that a listing returned") from None
    if named != order:
        raise Invalid("page", f"belongs to another listing, ordered by {str(named)[:40]!r}")
    return place


def _decode(text: str) -> Any:
    if len(text) > LONGEST_TOKEN:
        raise ValueError
    padded = text + "=" * (-len(text) % 4)
    try:
        return json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except binascii.Error:
        raise ValueError from None


def _read_key(key: Any, key_type: type[Any] | None) -> Any:
    if key_type is None:
        if key is not None:
            raise ValueError
        return None
    if not isinstance(key, str) or "\0" in key:
        raise ValueError
    key.encode()  # a lone surrogate is a ValueError
    if key_type is str:
        return key
    instant = datetime.fromisoformat(key)
    if instant.tzinfo is None:
        raise ValueError
    return instant
