"""One request on its way: checked, timed, counted, and its answer read to the end."""

import asyncio
import re
from collections.abc import Callable
from contextlib import aclosing
from typing import NamedTuple

import httpcore2
import httpx2
from httpx2 import Request, Response

from syncline.clock import monotonic
from syncline.errors import Permanent
from syncline.http.addresses import check_url
from syncline.http.body import plain_headers, read_body
from syncline.http.environment import Call, Exchange, HttpEnvironment
from syncline.http.json_body import JsonAnswer
from syncline.http.safe_url import address, describe
from syncline.http.transport import open_transport
from syncline.http.wire_log import unlogged

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


class Bounds(NamedTuple):
    """What a call may take: the loop's time when it ends, and the size of its answer."""

    until: float
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
        """Return the answer, whatever its status, and tell of it."""
        check_url(request.url, allow_private=self._environment.allow_private)
        began, call, failure = monotonic(), Call(), None
        try:
            with self._environment.telemetry.request(
                self._provider_slug, request.method, request.url.host
            ) as call:
                async with asyncio.timeout_at(bounds.until):
                    with unlogged():
                        return await self._exchange(request, bounds.body_bytes, call)
        except BaseException as error:
            failure = type(error).__name__
            raise
        finally:
            if self._environment.on_exchange is not None:
                url, seconds = scrub(address(request.url)), monotonic() - began
                told = (request.method, url, call.status, call.received_bytes, seconds, failure)
                self._environment.on_exchange(Exchange(*told))

    async def _exchange(self, request: Request, limit: int, call: Call) -> Response:
        asked = describe(request.method, request.url)
        answer = await self._transport.handle_async_request(request)
        call.status = answer.status_code
        async with aclosing(answer):
            body = await read_body(answer, limit=limit, asked=asked)
        call.received_bytes = len(body)
        headers = plain_headers(answer.headers)
        whole = JsonAnswer(answer.status_code, headers=headers, content=body, request=request)
        whole.max_json_values = self._environment.limits.max_json_values
        await whole.prepare()
        return whole


def check_headers(request: Request) -> Request:
    """Refuse what cannot be sent here, by its name: the layer below would quote it in its log."""
    for name, value in request.headers.raw:
        if not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
            shown = name.decode("ascii", errors="replace")
            raise Permanent(f"the header {shown!r} holds what cannot be sent in a header")
    return request


def reason(error: Exception) -> str:
    """Return what broke; a complaint about our own request may quote its headers."""
    if isinstance(error, httpcore2.LocalProtocolError | httpx2.LocalProtocolError):
        return "the request cannot be sent as it is"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
