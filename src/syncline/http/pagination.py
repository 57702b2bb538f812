"""What the client's `pages_by_…` iterators read from a page to find the next one."""

from collections.abc import Callable, Mapping
from typing import Any

from syncline.errors import Transient
from syncline.http.messages import Response
from syncline.http.request import Options

Find = str | Callable[[Any], Any]
"""Where a value is in a JSON body: a path of keys such as "meta.next", or a function."""


def find(response: Response, where: Find) -> Any:
    """Return the value at a place in a JSON body, or None if the path does not exist."""
    return find_in(parse(response), where)


def parse(response: Response) -> Any:
    """Return the JSON body of a page."""
    try:
        return response.json()
    except ValueError:
        raise Transient("the provider answered with a page that is not JSON") from None


def find_in(value: Any, where: Find) -> Any:
    """Return the value at a place in a document, or None if the path does not exist."""
    if callable(where):
        return where(value)
    for key in where.split(".") if where else ():
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def count_items(response: Response, items: Find) -> int:
    """Return the length of the list at a place in a JSON body."""
    found = find(response, items)
    if not isinstance(found, list):
        raise Transient(f"the provider answered with a page without a list at {items!r}")
    return len(found)


def with_params(options: Options, own: Mapping[str, Any]) -> Options:
    """Return the options with more query parameters."""
    return {**options, "params": {**(options.get("params") or {}), **own}}


class VisitedPages:
    """Remembers links and cursors, and refuses to follow one twice."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def add(self, place: str) -> None:
        if place in self._seen:
            raise Transient("the provider's pages lead in a circle")
        self._seen.add(place)
