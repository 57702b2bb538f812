"""Reads a body to its end, plain, and never more of it than was allowed."""

import zlib
from collections.abc import Iterator

from httpx2 import Headers, Response

from syncline.clock import pause
from syncline.errors import Permanent, Transient

ACCEPTED = "gzip, deflate"
PIECE = 65_536
PIECES_IN_A_ROW = 64  # then the loop has its turn: 10 ms of decompression
GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
HOP_HEADERS = ("content-encoding", "content-length", "transfer-encoding")


async def read_body(answer: Response, *, limit: int, asked: str) -> bytes:
    """Return the body decompressed; one over the limit is refused as soon as it is."""
    if answer.is_stream_consumed:  # by a tool around the transport: it is plain already
        if len(answer.content) > limit:
            raise _too_large(asked, limit)
        return answer.content
    _refuse_announced(answer.headers, limit, asked)
    decoder = _decoder(answer.headers.get("content-encoding", ""), asked)
    pieces: list[bytes] = []
    size = 0
    async for raw in answer.aiter_raw():
        for piece in decoder.feed(raw):
            size += len(piece)
            if size > limit:
                raise _too_large(asked, limit)
            pieces.append(piece)
            if len(pieces) % PIECES_IN_A_ROW == 0:  # a little that came may become a lot
                await pause(0)
    return b"".join(pieces)


def plain_headers(headers: Headers) -> Headers:
    """Return the headers of a body that is no longer compressed or cut into chunks."""
    return Headers([(k, v) for k, v in headers.multi_items() if k.lower() not in HOP_HEADERS])


def _refuse_announced(headers: Headers, limit: int, asked: str) -> None:
    announced = headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:18]) > limit:
        raise _too_large(asked, limit)


def _too_large(asked: str, limit: int) -> Permanent:
    return Permanent(f"{asked} answered more than http.max_response_bytes ({limit})")


def _decoder(encoding: str, asked: str) -> "_Plain":
    match encoding.strip().lower():
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip" | "deflate":
            return _Compressed(asked)
        case other:
            raise Transient(f"{asked} answered in the encoding {other!r}, which was not asked for")


class _Plain:
    def feed(self, raw: bytes) -> Iterator[bytes]:
        yield raw


class _Compressed(_Plain):
    """Decompresses piece by piece, so that a small answer never becomes a large one at once."""

    def __init__(self, asked: str) -> None:
        self._asked = asked
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
            if not self._started:  # some servers mean the bare stream when they say deflate
                self._stream, self._started = zlib.decompressobj(-zlib.MAX_WBITS), True
                return self._decompress(raw)
            raise Transient(
                f"{self._asked} answered what cannot be decompressed: {error}"
            ) from None
        self._started = True
        return piece
