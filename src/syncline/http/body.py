"""Response bodies: read and decompressed within a limit."""

import zlib
from collections.abc import Iterator, Mapping

from aiohttp import ClientResponse
from multidict import CIMultiDict, CIMultiDictProxy

from syncline.clock import pause
from syncline.errors import Permanent, Transient
from syncline.http.addresses import describe
from syncline.http.messages import Headers, Request, Response

ACCEPTED = "gzip, deflate"
PIECE = 65_536
PIECES_IN_A_ROW = 64  # 10 ms of decompression, then the event loop gets a turn
GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
HOP_HEADERS = ("content-encoding", "content-length", "transfer-encoding")


async def read_body(answer: ClientResponse, limit: int, request: Request) -> bytes:
    """Return the decompressed body; raise `Permanent` as soon as it exceeds the limit."""
    announced = _announced(answer.headers)
    if announced is not None and announced > limit:
        raise _too_large(request, limit)
    encoding = answer.headers.get("content-encoding", "")
    if announced is not None and not encoding and "transfer-encoding" not in answer.headers:
        return await answer.read()
    pieces = Pieces(encoding, limit, request)
    async for raw in answer.content.iter_any():
        await pieces.add(raw)
    return pieces.joined()


async def unpack(response: Response, request: Request, limit: int) -> Response:
    """Return a response of an interceptor within the limit; its body may still be compressed."""
    pieces = Pieces(response.headers.get("content-encoding", ""), limit, request)
    for start in range(0, len(response.content), PIECE):
        await pieces.add(response.content[start : start + PIECE])
    headers = plain_headers(CIMultiDict(response.headers.multi_items()))
    return Response(response.status_code, headers, pieces.joined(), request=request)


def plain_headers(headers: "CIMultiDict[str] | CIMultiDictProxy[str]") -> Headers:
    """Return the headers without those that describe a compressed or chunked body."""
    fields = headers.copy()
    for name in HOP_HEADERS:
        fields.popall(name, None)
    return Headers(fields)


class Pieces:
    """The pieces of a body, decompressed and counted as they arrive."""

    def __init__(self, encoding: str, limit: int, request: Request) -> None:
        self._decoder = _decoder(encoding, request)
        self._limit, self._request = limit, request
        self._pieces: list[bytes] = []
        self._size = 0

    async def add(self, raw: bytes) -> None:
        for piece in self._decoder.feed(raw):
            self._size += len(piece)
            if self._size > self._limit:
                raise _too_large(self._request, self._limit)
            self._pieces.append(piece)
            if len(self._pieces) % PIECES_IN_A_ROW == 0:  # a few bytes may decompress into many
                await pause(0)

    def joined(self) -> bytes:
        return b"".join(self._pieces)


def _announced(headers: Mapping[str, str]) -> int | None:
    text = headers.get("content-length", "")
    return int(text[:18]) if text.isascii() and text.isdigit() else None


def _too_large(request: Request, limit: int) -> Permanent:
    described = describe(request.method, request.url)
    return Permanent(f"{described} answered with more than {limit} bytes (http.max_response_bytes)")


def _decoder(encoding: str, request: Request) -> "_Plain":
    match encoding.strip().lower():
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip" | "deflate":
            return _Compressed(request)
        case other:
            described = describe(request.method, request.url)
            raise Transient(
                f"{described} answered in the encoding {other!r}; it must be gzip or deflate"
            )


class _Plain:
    def feed(self, raw: bytes) -> Iterator[bytes]:
        yield raw


class _Compressed(_Plain):
    """Decompresses piece by piece, so that a small body never fills memory at once."""

    def __init__(self, request: Request) -> None:
        self._request = request
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
            described = describe(self._request.method, self._request.url)
            raise Transient(
                f"{described} answered with a body that cannot be decompressed: {error}"
            ) from None
        self._started = True
        return piece
