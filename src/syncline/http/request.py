"""Send one request: check it, time it, record it, and read the whole response."""

import asyncio
import re
from collections.abc import Collection, Mapping
from io import BytesIO
from typing import Any, NamedTuple, TypedDict

import aiohttp
from aiohttp import ClientSession
from yarl import URL

from syncline.clock import host_time, monotonic
from syncline.errors import Permanent
from syncline.http.addresses import check_url, port_of, shown_url
from syncline.http.body import plain_headers, read_body, unpack
from syncline.http.budgets import CallBudgets, Spender
from syncline.http.calls import Made, Scrub
from syncline.http.conditional import Validators
from syncline.http.environment import Call, Exchange, HttpEnvironment
from syncline.http.failures import failure_of
from syncline.http.messages import Request, Response
from syncline.http.pool import ConnectionPool
from syncline.http.rate_limits import remaining_calls
from syncline.http.resolution import is_numeric, numeric_host
from syncline.offload import SMALL_BYTES
from syncline.redaction import LONGEST_TEXT

NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]++")
VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
USUAL = frozenset({"accept", "accept-encoding", "authorization", "content-type", "user-agent"})
# They decide where a request ends. Connections are shared, so only the library sets them.
FRAMING = frozenset(
    {"connection", "content-length", "expect", "keep-alive", "proxy-connection", "trailer",
     "transfer-encoding", "upgrade"}
)  # fmt: skip
LONGEST_HOLD_SECONDS = 1.0  # from when a call is taken out of a budget until it is sent
LARGE_BODY = 1_000_000  # the library sends bytes at once, and larger bodies in pieces


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
    """Sends the requests of one client, over the pool of its environment or over its own."""

    __slots__ = ("_environment", "_own_pool", "_provider_slug", "_session", "_spender")

    def __init__(self, environment: HttpEnvironment, spender: Spender) -> None:
        self._environment = environment
        self._spender = spender
        self._provider_slug = spender.provider_slug
        self._own_pool: ConnectionPool | None = None
        self._session: ClientSession | None = None

    async def aclose(self) -> None:
        """Close the client's own connections; those of a shared pool stay open."""
        self._session = None
        if self._own_pool is not None:
            await self._own_pool.close()

    async def send(self, request: Request, bounds: Bounds, scrub: Scrub) -> Response:
        """Return the response, whatever its status, and report the exchange."""
        environment = self._environment
        check_url(request.url, allow_private=environment.allow_private)
        if environment.closed is not None:
            await environment.closed.wait(self._provider_slug)
        budgets = environment.budgets
        if budgets is not None and budgets.applies_to(self._provider_slug):
            return await self._send_budgeted(request, bounds, scrub, budgets)
        return await self._send(request, bounds, scrub)

    async def _send_budgeted(
        self, request: Request, bounds: Bounds, scrub: Scrub, budgets: CallBudgets
    ) -> Response:
        """Send a request once there is room for it, and learn what the provider has left."""
        await budgets.take(self._spender)
        most = self._environment.limits.connections_per_origin
        turns = budgets.connections
        async with turns.take(request.url.origin, most, bounds.deadline) as waited:
            if waited > LONGEST_HOLD_SECONDS:  # the call that was taken has lapsed
                await budgets.take(self._spender)
            response = await self._send(request, bounds, scrub)
        if (left := remaining_calls(response.headers, now=host_time())) is not None:
            budgets.learn(self._spender, left)
        return response

    async def _send(self, request: Request, bounds: Bounds, scrub: Scrub) -> Response:
        environment, calls = self._environment, self._spender.calls
        if calls is not None or environment.on_exchange is not None:
            return await self._send_reporting(request, bounds, scrub)
        with environment.telemetry.request(
            self._provider_slug, request.method, request.url.host
        ) as call:
            return await self._exchange(request, bounds, call)

    async def _send_reporting(self, request: Request, bounds: Bounds, scrub: Scrub) -> Response:
        """Send a request, note it among the calls of the run, and tell who wants to know."""
        environment = self._environment
        began, call, failure = monotonic(), Call(), None
        try:
            with environment.telemetry.request(
                self._provider_slug, request.method, request.url.host
            ) as call:
                return await self._exchange(request, bounds, call)
        except BaseException as error:
            failure = type(error).__name__
            raise
        finally:
            seconds = monotonic() - began
            if self._spender.calls is not None:
                made = (request.method, request.url, call.status, seconds, failure, scrub)
                self._spender.calls.add(Made(*made))
            if environment.on_exchange is not None:
                url = scrub(shown_url(request.url), LONGEST_TEXT)
                exchange = Exchange(
                    request.method, url, call.status, call.received_bytes, seconds, failure
                )
                environment.on_exchange(exchange)

    async def _exchange(self, request: Request, bounds: Bounds, call: Call) -> Response:
        environment, limit = self._environment, bounds.body_bytes
        async with asyncio.timeout_at(bounds.deadline):
            if environment.intercept is None:
                response = await self._call(request, limit, call)
            else:

                async def send(request: Request) -> Response:
                    return await self._call(request, limit, call)

                response = await environment.intercept(request, send)
                call.status = response.status_code
                response = await unpack(response, request, limit)
            call.received_bytes = len(response.content)
            response.max_json_values = environment.limits.max_json_values
            if len(response.content) > SMALL_BYTES:
                await response.prepare()
            return response

    async def _call(self, request: Request, limit: int, call: Call) -> Response:
        """Send a request over the network and read the response."""
        session = self._session or self._open_session()
        url = request.url
        host, headers = url.host, request.headers
        if is_numeric(host):
            host = await numeric_host(self._environment, host, port_of(url))
            if host != url.host:
                headers = {"host": url.netloc, **headers}
        try:
            answer = await session.request(
                request.method,
                _wire_url(request, host),
                headers=headers,
                data=_payload(request.content),
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise failure_of(error) from None
        call.status = answer.status
        try:
            content = await read_body(answer, limit, request)
        except (aiohttp.ClientError, OSError) as error:
            raise failure_of(error) from None
        finally:
            answer.close()  # a body that was not read to its end takes its connection along
        return Response(answer.status, plain_headers(answer.headers), content, request=request)

    def _open_session(self) -> ClientSession:
        pool = self._environment.pool
        if pool is None or not pool.is_open_here():
            self._own_pool = pool = ConnectionPool()
        self._session = session = pool.session(self._environment)
        return session


def check_headers(request: Request) -> Request:
    """Refuse a bad header by its name; the layer below would quote its value in an error."""
    headers = request.headers
    if not FRAMING.isdisjoint(headers):
        shown = min(FRAMING.intersection(headers))
        raise Permanent(f"the header {shown!r} cannot be set: it belongs to the connection")
    for name, value in headers.items():
        if (name not in USUAL and not NAME.fullmatch(name)) or not VALUE.fullmatch(value):
            shown = name.encode("ascii", "replace").decode()
            raise Permanent(f"the header {shown!r} has characters that a header cannot carry")
    return request


def _wire_url(request: Request, host: str) -> URL:
    """Return the URL for the library, made of checked parts: nothing is parsed again."""
    url = request.url
    return URL.build(
        scheme=url.scheme,
        host=f"[{host}]" if ":" in host else host,
        port=url.port,
        path=url.raw_path or "/",
        query_string=url.query or "",
        encoded=True,
    )


def _payload(content: bytes) -> bytes | BytesIO | None:
    if len(content) > LARGE_BODY:
        return BytesIO(content)
    return content or None
