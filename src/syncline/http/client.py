"""The client that connectors call: one origin's credentials, bounded answers, our errors."""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, NamedTuple, Self, TypedDict, Unpack

import httpcore2
import httpx2
from httpx2 import URL, Request, Response

from syncline.clock import host_time, monotonic
from syncline.errors import Permanent, SyncError, Transient
from syncline.http.addresses import check_url, origin_of
from syncline.http.answers import ErrorMap, error_of
from syncline.http.auth import Authentication, authentication_from, basic
from syncline.http.body import ACCEPTED, plain_headers, read_body
from syncline.http.conditional import Validators
from syncline.http.environment import Call, Exchange, HttpEnvironment
from syncline.http.pages import Pages
from syncline.http.redirects import is_redirect, next_request
from syncline.http.transport import open_transport
from syncline.http.wording import Scrubber, address, describe, secrets_in

USER_AGENT = "syncline"
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
    """What every call takes."""

    params: Mapping[str, Any] | None
    headers: Mapping[str, str] | None
    json: Any
    data: Mapping[str, Any] | None
    content: bytes | str | None
    accept: Collection[int]  # statuses that are answers, not errors
    validators: Validators | None  # of the answer that is already known
    timeout_seconds: float | None
    max_bytes: int | None


class Bounds(NamedTuple):
    """What a call may take: the loop's time when it ends, and the size of its answer."""

    until: float
    body_bytes: int


class HttpClient(Pages):
    """Calls one provider for one connection; made by `Connector.http`, used with `async with`."""

    def __init__(
        self,
        environment: HttpEnvironment,
        *,
        provider_slug: str = "",
        credentials: Mapping[str, Any] | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        authentication: Authentication | None = None,
        errors: ErrorMap | None = None,
    ) -> None:
        self._environment = environment
        self._provider_slug = provider_slug
        self._headers = {"user-agent": USER_AGENT, "accept": "*/*", **(headers or {})}
        self._errors = errors
        own = authentication or authentication_from(credentials)
        self._base: URL | None = None
        from_url: Authentication | None = None
        if base_url:
            self._base, from_url = _without_user(_parse(base_url))
        self._authentication = own or from_url or own
        self._origin = origin_of(self._base) if self._base else None
        self._scrub = Scrubber(
            secrets_in(credentials)
            | secrets_in(self._authentication.headers)
            | secrets_in(self._authentication.query)
        )
        self._transport = open_transport(environment)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._transport.aclose()

    async def get(self, url: str = "", **options: Unpack[Options]) -> Response:
        return await self.request("GET", url, **options)

    async def post(self, url: str = "", **options: Unpack[Options]) -> Response:
        return await self.request("POST", url, **options)

    async def request(self, method: str, url: str = "", **options: Unpack[Options]) -> Response:
        """Return the whole answer, or raise the error that it stands for.

        `url` is joined to the base; a status in `accept`, and 304, are answers like any other.
        """
        request = self._build(method.upper(), url, options)
        asked = describe(request.method, request.url)
        limits = self._environment.limits
        seconds = options.get("timeout_seconds") or limits.timeout_seconds
        limit = options.get("max_bytes") or limits.max_response_bytes
        until = asyncio.get_running_loop().time() + seconds
        try:
            answer = await self._follow(request, asked, Bounds(until, limit))
            error = self._judge(answer, asked, options.get("accept", ()))
        except SLOW:
            error = Transient(f"{asked} did not answer within {seconds:g} s")
        except SyncError as raised:
            error = raised
        except BROKEN as broken:
            error = Transient(f"{asked} failed: {_reason(broken)}")
        if error is not None:
            raise self._scrubbed(error) from None  # what lies behind may hold secrets
        return answer

    def _build(self, method: str, url: str, options: Options) -> Request:
        target, from_url = _without_user(self._join(url))
        if self._origin is None:
            self._origin = origin_of(target)
            self._authentication = self._authentication or from_url or self._authentication
        validators = options.get("validators") or Validators()
        headers = {**self._headers, **validators.headers(), **(options.get("headers") or {})}
        if params := options.get("params"):
            target = target.copy_merge_params(params)
        request = Request(
            method,
            target,
            headers={"accept-encoding": ACCEPTED, **headers},
            content=options.get("content"),
            data=options.get("data"),
            json=options.get("json"),
            extensions={"timeout": self._timeouts(options.get("timeout_seconds"))},
        )
        return self._authenticate(request)

    def _join(self, url: str) -> URL:
        if self._base is None:
            return _parse(url)
        path = self._base.path.rstrip("/") + "/"
        base = self._base.copy_with(path=path) if url and not url.startswith("/") else self._base
        try:
            return base.join(url) if url else base
        except (httpx2.InvalidURL, ValueError):
            raise Permanent("the address cannot be read") from None

    def _authenticate(self, request: Request) -> Request:
        """Add the credentials, if the request goes to the origin that they are for."""
        if not self._authentication or origin_of(request.url) != self._origin:
            return request
        if request.url.scheme != "https" and not self._environment.allow_private:
            raise Permanent(
                f"{address(request.url)} is not https; credentials would go in the open"
            )
        if self._authentication.query:
            request.url = request.url.copy_merge_params(self._authentication.query)
        for name, value in self._authentication.headers.items():
            request.headers.setdefault(name, value)
        return request

    async def _follow(self, request: Request, asked: str, bounds: "Bounds") -> Response:
        for _ in range(self._environment.limits.max_redirects + 1):
            answer = await self._send(request, bounds)
            if not is_redirect(answer):
                return answer
            request = self._authenticate(next_request(request, answer, asked=asked))
        raise Permanent(
            f"{asked} is redirected more than {self._environment.limits.max_redirects} times"
        )

    async def _send(self, request: Request, bounds: "Bounds") -> Response:
        check_url(request.url, allow_private=self._environment.allow_private)
        began, call, failure = monotonic(), Call(), None
        try:
            with self._environment.telemetry.request(
                self._provider_slug, request.method, request.url.host
            ) as call:
                async with asyncio.timeout_at(bounds.until):
                    return await self._exchange(request, bounds.body_bytes, call)
        except BaseException as error:
            failure = type(error).__name__
            raise
        finally:
            if self._environment.on_exchange is not None:
                url = self._scrub(address(request.url))
                seconds = monotonic() - began
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
        return Response(answer.status_code, headers=headers, content=body, request=request)

    def _judge(self, answer: Response, asked: str, accepted: Collection[int]) -> SyncError | None:
        if answer.status_code in accepted:
            return None
        usual = error_of(answer, asked=asked, now=host_time())
        own = self._errors(answer) if usual is not None and self._errors else None
        return own or usual

    def _scrubbed(self, error: SyncError) -> SyncError:
        error.message = self._scrub(error.message)
        error.args = (error.message,)
        return error

    def _timeouts(self, seconds: float | None) -> dict[str, float]:
        limits = self._environment.limits
        connect, rest = limits.connect_timeout_seconds, seconds or limits.timeout_seconds
        return {"connect": min(connect, rest), "read": rest, "write": rest, "pool": rest}


def _parse(url: str) -> URL:
    try:
        return URL(url)
    except (httpx2.InvalidURL, TypeError, ValueError):
        raise Permanent("the address cannot be read") from None


def _without_user(url: URL) -> tuple[URL, Authentication | None]:
    """Return the address without its user information, and that as basic authentication."""
    if not url.userinfo:
        return url, None
    own = Authentication({"authorization": basic(url.username, url.password)})
    return url.copy_with(userinfo=b""), own


def _reason(error: Exception) -> str:
    """Return what broke; a complaint about our own request may quote its headers."""
    if isinstance(error, httpcore2.LocalProtocolError | httpx2.LocalProtocolError):
        return "the request cannot be sent as it is"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
