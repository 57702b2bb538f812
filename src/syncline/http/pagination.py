"""Pagination: each of the four usual ways is an async iterator of answers, one a page."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from httpx2 import Response

from syncline.errors import Transient

if TYPE_CHECKING:
    from syncline.http.client import Options

Find = str | Callable[[Any], Any]
"""Where something stands in a JSON answer: a path of keys such as "meta.next", or a function."""


class Pages(ABC):
    """What can be paged: anything with `get`."""

    @abstractmethod
    async def get(self, url: str = "", **options: "Unpack[Options]") -> Response: ...

    async def pages_by_link(
        self, url: str = "", **options: "Unpack[Options]"
    ) -> AsyncIterator[Response]:
        """Yield pages as their `Link: <…>; rel="next"` headers lead on."""
        seen: set[str] = set()
        answer = await self.get(url, **options)
        options.pop("params", None)  # the link carries them
        options.pop("validators", None)
        while True:
            yield answer
            link = answer.links.get("next", {}).get("url")
            if not link:
                return
            following = str(answer.url.join(link))
            _refuse_repetition(following, seen)
            answer = await self.get(following, **options)

    async def pages_by_number(
        self,
        url: str = "",
        *,
        items: Find,
        parameter: str = "page",
        first: int = 1,
        size: int | None = None,
        size_parameter: str = "per_page",
        **options: "Unpack[Options]",
    ) -> AsyncIterator[Response]:
        """Yield pages by their number, to the first that is empty or holds fewer than `size`."""
        number = first
        while True:
            own = {parameter: number} | ({size_parameter: size} if size else {})
            answer = await self.get(url, **_with_params(options, own))
            count = _count(answer, items)
            if count or number == first:
                yield answer
            if not count or (size and count < size):
                return
            number += 1

    async def pages_by_offset(
        self,
        url: str = "",
        *,
        items: Find,
        limit: int,
        parameter: str = "offset",
        limit_parameter: str = "limit",
        **options: "Unpack[Options]",
    ) -> AsyncIterator[Response]:
        """Yield pages from an offset that grows by what came, to the first with fewer than asked.

        A provider that caps the limit below `limit` is followed to its first empty page.
        """
        offset, most = 0, 0
        while True:
            own = {parameter: offset, limit_parameter: limit}
            answer = await self.get(url, **_with_params(options, own))
            count = _count(answer, items)
            if count or not offset:
                yield answer
            most = max(most, count)
            if not count or count < most or (most >= limit and count < limit):
                return
            offset += count

    async def pages_by_cursor(
        self,
        url: str = "",
        *,
        next_cursor: Find,
        parameter: str = "cursor",
        cursor: Any = None,
        **options: "Unpack[Options]",
    ) -> AsyncIterator[Response]:
        """Yield pages as the cursor in each leads on, until one names no other."""
        seen: set[str] = set()
        while True:
            own = {} if cursor is None else {parameter: cursor}
            answer = await self.get(url, **_with_params(options, own))
            yield answer
            cursor = find(answer, next_cursor)
            if cursor in (None, "", False):
                return
            _refuse_repetition(str(cursor), seen)


def find(answer: Response, where: Find) -> Any:
    """Return what stands at a place of a JSON answer, or None where it does not reach."""
    try:
        value = answer.json()
    except ValueError:
        raise Transient("the provider answered a page that is no JSON") from None
    if callable(where):
        return where(value)
    for key in where.split(".") if where else ():
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _count(answer: Response, items: Find) -> int:
    found = find(answer, items)
    if not isinstance(found, list):
        raise Transient(f"the provider answered a page without a list at {items!r}")
    return len(found)


def _with_params(options: "Options", own: Mapping[str, Any]) -> "Options":
    return {**options, "params": {**(options.get("params") or {}), **own}}


def _refuse_repetition(place: str, seen: set[str]) -> None:
    if place in seen:
        raise Transient("the provider's pages lead in a circle")
    seen.add(place)
