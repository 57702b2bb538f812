"""Listings page by page: some rows, and a token that leads to the next ones.

A token holds only where a page ended. Each page checks again which rows the caller may see.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from syncline.errors import Invalid

T = TypeVar("T")
LONGEST_TOKEN = 4096


class Listing(list[T]):
    """A page of rows. Pass `next_page` as `after` to get the next one; None ends the listing.

    `searched_to` is when the last row was made that a bounded search has read; None if the page is
    full, or nothing is left to search.
    """

    def __init__(
        self,
        rows: Iterable[T] = (),
        next_page: str | None = None,
        searched_to: datetime | None = None,
    ) -> None:
        super().__init__(rows)
        self.next_page = next_page
        self.searched_to = searched_to


def cut_page(found: list[T], limit: int, token_of: Callable[[T], str]) -> Listing[T]:
    """Return at most `limit` of the rows found; one row more shows that another page follows."""
    if len(found) <= limit:
        return Listing(found)
    return Listing(found[:limit], token_of(found[limit - 1]))


def write_token(order: str, key: Any, id_: UUID) -> str:
    """Return the token of a place in an order."""
    shown = key.isoformat() if isinstance(key, datetime) else key
    text = json.dumps([order, shown, str(id_)], ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_token(text: str | None, order: str, key_type: type[Any] | None) -> Any:
    """Return the place that a token of this order names; None without a token."""
    if text is None:
        return None
    try:
        named, key, id_ = _decode(text)
        place = (_read_key(key, key_type), UUID(id_))
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise Invalid("after", "is not a token that a listing returned") from None
    if named != order:
        raise Invalid("after", f"belongs to another listing, ordered by {str(named)[:40]!r}")
    return place


def check_limit(limit: int) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise Invalid("limit", f"is {limit!r}; it must be a positive integer")


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
    return read_instant(key)


def read_instant(text: str) -> datetime:
    """Return the time that a token holds, or raise ValueError."""
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError
    return instant
