"""Send one request: check it, time it, record it, and read the whole response."""

import asyncio
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple, TypedDict

import httpcore2
import httpx2
from httpx2 import Request, Response

from syncline.clock import monotonic
from syncline.errors import Permanent
from syncline.http.addresses import check_url, describe, shown_url
from syncline.http.body import JsonResponse, plain_headers, read_body
from syncline.http.conditional import Validators
from syncline.http.environment import Call, Exchange, HttpEnvironment
from syncline.http.transport import open_transport, without_wire_log

HEADER_NAME = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
HEADER_VALUE = re.compile(rb"([!-~\x80-\xff]([\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
SLOW = (TimeoutError, httpcore2.TimeoutException, httpx2.TimeoutException)
BROKEN = (
    OSError,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ConnectionNotAvailable,
    httpx2.TransportError,
    httpx2.StreamError,
)


class Options(TypedDict, total=False):
    """What every request takes."""

    params: Mapping[str, Any] | None
    headers: Mapping[str, str] | None
    json: Any
    data: Mapping[str, Any] | None
    content: bytes | str | None
    accept: Collection[int]  # statuses that raise no error
    validators: Validators | None  # of the version that is already known
    timeout_seconds: float | None
    max_bytes: int | None


class Bounds(NamedTuple):
    """The limits of a request: its deadline on the event loop's clock, and the size of the body."""

    deadline: float
    body_bytes: int


class Sender:
    """Sends the requests of one client over its own connections."""

    def __init__(self, environment: HttpEnvironment, provider_slug: str) -> None:
        self._environment = environment
        self._provider_slug = provider_slug
        self._transport = open_transport(environment)

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def send(self, request: Request, bounds: Bounds, scrub: Callable[[str], str]) -> Response:
        """Return the response, whatever its status, and report the exchange."""
        check_url(request.url, allow_private=self._environment.allow_private)
        began, call, failure = monotonic(), Call(), None
        try:
            with self._environment.telemetry.request(
                self._provider_slug, request.method, request.url.host
            ) as call:
                return await self._exchange(request, bounds, call)
        except BaseException as error:
            failure = type(error).__name__
            raise
        finally:
            if self._environment.on_exchange is not None:
                exchange = Exchange(
                    request.method,
                    scrub(shown_url(request.url)),
                    call.status,
                    call.received_bytes,
                    seconds=monotonic() - began,
                    failure=failure,
                )
                self._environment.on_exchange(exchange)

    async def _exchange(self, request: Request, bounds: Bounds, call: Call) -> Response:
        async with asyncio.timeout_at(bounds.deadline):
            with without_wire_log():
                return await self._read_response(request, bounds.body_bytes, call)

    async def _read_response(self, request: Request, limit: int, call: Call) -> Response:
        described = describe(request.method, request.url)
        response = await self._transport.handle_async_request(request)
        call.status = response.status_code
        async with aclosing(response):
            body = await read_body(response, limit=limit, described=described)
        call.received_bytes = len(body)
        headers = plain_headers(response.headers)
        whole = JsonResponse(response.status_code, headers=headers, content=body, request=request)
        whole.max_json_values = self._environment.limits.max_json_values
        await whole.prepare()
        return whole


def check_headers(request: Request) -> Request:
    """Refuse a bad header by its name; the layer below would quote its value in an error."""
    for name, value in request.headers.raw:
        if not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
            shown = name.decode("ascii", errors="replace")
            raise Permanent(f"the header {shown!r} has characters that a header cannot carry")
    return request


def reason(error: Exception) -> str:
    """Return why a request failed; an error about our own request may quote its headers."""
    if isinstance(error, httpcore2.LocalProtocolError | httpx2.LocalProtocolError):
        return "the request is not valid HTTP"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
