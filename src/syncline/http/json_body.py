"""An answer whose JSON is parsed within bounds, and beside the loop where it is large."""

import threading
from typing import Any

from httpx2 import Response

from syncline.errors import Permanent
from syncline.http.safe_url import describe
from syncline.json_bounds import MAX_NODES, JsonBounds, TooComplex, check_json, parse_json
from syncline.offload import SMALL_BYTES, in_thread

AT_ONCE = threading.BoundedSemaphore(2)  # large documents: each may become 100 MB
BLANKS = b" \t\r\n\xef\xbb\xbf"


class JsonAnswer(Response):
    """The answer that connectors get; `json()` costs the loop little, whatever the provider sent.

    A large document is parsed once, before the connector gets the answer, and `json()` returns
    that same value every time.
    """

    max_json_values = MAX_NODES
    _is_parsed = False
    _value: Any = None
    _refusal: Exception | None = None

    async def prepare(self) -> None:
        """Parse a large document in a thread, so that `json()` need not."""
        content = self.content
        if len(content) <= SMALL_BYTES or content[:100].lstrip(BLANKS)[:1] not in (b"[", b"{"):
            return
        try:
            self._value = await in_thread(_parse_in_turn, content, self._bounds)
        except ValueError as error:
            self._refusal = error
        self._is_parsed = True

    def json(self, **kwargs: Any) -> Any:
        """Return the value; raise `Permanent` where it exceeds a bound, ValueError for no JSON."""
        try:
            if self._refusal is not None:
                raise self._refusal
            if kwargs:
                check_json(self.content, self._bounds)
                return super().json(**kwargs)
            return self._value if self._is_parsed else parse_json(self.content, self._bounds)
        except TooComplex as error:
            asked = describe(self.request.method, self.request.url)
            setting = " (http.max_json_values)" if error.bound == "nodes" else ""
            raise Permanent(f"{asked} answered JSON that holds {error}{setting}") from None

    @property
    def _bounds(self) -> JsonBounds:
        return JsonBounds(nodes=self.max_json_values)


def _parse_in_turn(content: bytes, bounds: JsonBounds) -> Any:
    with AT_ONCE:
        return parse_json(content, bounds)
