"""Response bodies: read and decompressed within a limit, and their JSON parsed within bounds."""

import threading
import zlib
from collections.abc import Iterator
from typing import Any

from httpx2 import Headers, Response

from syncline.clock import pause
from syncline.errors import Permanent, Transient
from syncline.http.addresses import describe
from syncline.json_bounds import MAX_NODES, JsonBounds, TooComplex, check_json, parse_json
from syncline.offload import SMALL_BYTES, in_thread

ACCEPTED = "gzip, deflate"
PIECE = 65_536
PIECES_IN_A_ROW = 64  # 10 ms of decompression, then the event loop gets a turn
GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
HOP_HEADERS = ("content-encoding", "content-length", "transfer-encoding")
LARGE_PARSES = threading.BoundedSemaphore(2)  # each may need 100 MB of memory
BLANKS = b" \t\r\n\xef\xbb\xbf"


async def read_body(response: Response, *, limit: int, described: str) -> bytes:
    """Return the decompressed body; raise `Permanent` as soon as it exceeds the limit."""
    if response.is_stream_consumed:  # a wrapped transport has read and decompressed it
        if len(response.content) > limit:
            raise _too_large(described, limit)
        return response.content
    _refuse_announced(response.headers, limit, described)
    decoder = _decoder(response.headers.get("content-encoding", ""), described)
    pieces: list[bytes] = []
    size = 0
    async for raw in response.aiter_raw():
        for piece in decoder.feed(raw):
            size += len(piece)
            if size > limit:
                raise _too_large(described, limit)
            pieces.append(piece)
            if len(pieces) % PIECES_IN_A_ROW == 0:  # a few bytes may decompress into many
                await pause(0)
    return b"".join(pieces)


def plain_headers(headers: Headers) -> Headers:
    """Return the headers without those that describe a compressed or chunked body."""
    return Headers([(k, v) for k, v in headers.multi_items() if k.lower() not in HOP_HEADERS])


class JsonResponse(Response):
    """The response that connectors get. Its JSON never blocks the event loop for long.

    A large document is parsed in a thread before the connector gets the response, and `json()`
    returns the same value every time.
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
            self._value = await in_thread(_parse_large, content, self._bounds)
        except ValueError as error:
            self._refusal = error
        self._is_parsed = True

    def json(self, **kwargs: Any) -> Any:
        """Return the parsed body; raise `Permanent` if it is too large, ValueError if not JSON."""
        try:
            if self._refusal is not None:
                raise self._refusal
            if kwargs:
                check_json(self.content, self._bounds)
                return super().json(**kwargs)
            return self._value if self._is_parsed else parse_json(self.content, self._bounds)
        except TooComplex as error:
            described = describe(self.request.method, self.request.url)
            setting = " (http.max_json_values)" if error.bound == "nodes" else ""
            raise Permanent(f"{described} answered with JSON that has {error}{setting}") from None

    @property
    def _bounds(self) -> JsonBounds:
        return JsonBounds(nodes=self.max_json_values)


def _refuse_announced(headers: Headers, limit: int, described: str) -> None:
    announced = headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:18]) > limit:
        raise _too_large(described, limit)


def _too_large(described: str, limit: int) -> Permanent:
    return Permanent(f"{described} answered with more than {limit} bytes (http.max_response_bytes)")


def _decoder(encoding: str, described: str) -> "_Plain":
    match encoding.strip().lower():
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip" | "deflate":
            return _Compressed(described)
        case other:
            raise Transient(
                f"{described} answered in the encoding {other!r}; it must be gzip or deflate"
            )


class _Plain:
    def feed(self, raw: bytes) -> Iterator[bytes]:
        yield raw


class _Compressed(_Plain):
    """Decompresses piece by piece, so that a small body never fills memory at once."""

    def __init__(self, described: str) -> None:
        self._described = described
        self._stream = zlib.decompressobj(GZIP_OR_ZLIB)
        self._started = False

    def feed(self, raw: bytes) -> Iterator[bytes]:
        rest = raw
        while rest and not self._stream.eof:
            yield self._decompress(rest)
            rest = self._stream.unconsumed_tail

    def _decompress(self, raw: bytes) -> bytes:
        try:
            piece = self._stream.decompress(raw, PIECE)
        except zlib.error as error:
            if not self._started:  # some servers say deflate and send a bare stream
                self._stream, self._started = zlib.decompressobj(-zlib.MAX_WBITS), True
                return self._decompress(raw)
            raise Transient(
                f"{self._described} answered with a body that cannot be decompressed: {error}"
            ) from None
        self._started = True
        return piece


def _parse_large(content: bytes, bounds: JsonBounds) -> Any:
    with LARGE_PARSES:
        return parse_json(content, bounds)
