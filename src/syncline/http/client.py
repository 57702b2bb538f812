"""The client that connectors call: one origin's credentials, bounded answers, our errors."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

import httpx2
from httpx2 import URL, Request, Response

from syncline.clock import host_time
from syncline.errors import Permanent, SyncError, Transient
from syncline.http.addresses import origin_of
from syncline.http.auth import Authentication, authentication_from, basic
from syncline.http.body import ACCEPTED
from syncline.http.conditional import Validators
from syncline.http.credentials import Credentials
from syncline.http.environment import HttpEnvironment
from syncline.http.pagination import Pages
from syncline.http.redirects import is_redirect, next_request
from syncline.http.request import BROKEN, SLOW, Bounds, Sender, check_headers, reason
from syncline.http.safe_url import address, describe
from syncline.http.status_errors import ErrorMap, error_of
from syncline.redaction import Scrubber, secrets_in

USER_AGENT = "syncline"
MAX_ERROR = 1_000  # characters of a message
Authenticate = Callable[[Mapping[str, Any]], Authentication]
"""A connector's own way to send credentials; called again whenever they are refreshed."""


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
        authentication: Authentication | Authenticate | None = None,
        errors: ErrorMap | None = None,
    ) -> None:
        self._environment = environment
        self._headers = {"user-agent": USER_AGENT, "accept": "*/*", **(headers or {})}
        self._errors = errors
        self._credentials = credentials
        self._given = authentication
        self._base: URL | None = None
        self._from_url: Authentication | None = None
        if base_url:
            self._base, self._from_url = _without_user(_parse(base_url))
        self._origin = origin_of(self._base) if self._base else None
        self._read_credentials()
        self._sender = Sender(environment, provider_slug)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._sender.aclose()

    async def get(self, url: str = "", **options: Unpack[Options]) -> Response:
        return await self.request("GET", url, **options)

    async def post(self, url: str = "", **options: Unpack[Options]) -> Response:
        return await self.request("POST", url, **options)

    async def request(self, method: str, url: str = "", **options: Unpack[Options]) -> Response:
        """Return the whole answer, or raise the error that it stands for.

        `url` is joined to the base; a status in `accept`, and 304, are answers like any other.
        """
        seconds = options.get("timeout_seconds") or self._environment.limits.timeout_seconds
        asked = f"{method.upper()} {address(self._join(url))}"
        try:
            answer = await self._call_refreshing(method.upper(), url, options)
            error = self._judge(answer, asked, options.get("accept", ()))
        except SLOW:
            error = Transient(f"{asked} did not answer within {seconds:g} s")
        except SyncError as raised:
            error = raised
        except BROKEN as broken:
            error = Transient(f"{asked} failed: {reason(broken)}")
        if error is not None:
            raise self._scrubbed(error) from None  # what lies behind may hold secrets
        return answer

    async def _call_refreshing(self, method: str, url: str, options: Options) -> Response:
        """Call with an access token that has not expired, and again with a new one if refused."""
        credentials = self._credentials
        if not isinstance(credentials, Credentials) or not credentials.can_be_refreshed:
            return await self._call(method, url, options)
        if credentials.is_expired(host_time()):
            await self._refresh(credentials, None)
        token = credentials.get("access_token")
        answer = await self._call(method, url, options)
        if answer.status_code != 401 or origin_of(answer.url) != self._origin:
            return answer
        await self._refresh(credentials, token)
        return await self._call(method, url, options)

    async def _refresh(self, credentials: Credentials, rejected: str | None) -> None:
        await credentials.refresh(rejected, self._environment)
        self._read_credentials()

    async def _call(self, method: str, url: str, options: Options) -> Response:
        request = self._build(method, url, options)
        asked = describe(request.method, request.url)
        limits = self._environment.limits
        seconds = options.get("timeout_seconds") or limits.timeout_seconds
        limit = options.get("max_bytes") or limits.max_response_bytes
        until = asyncio.get_running_loop().time() + seconds
        return await self._follow(request, asked, Bounds(until, limit))

    def _read_credentials(self) -> None:
        """Work out what is sent, and what must never be shown."""
        given = self._given
        own = given(self._credentials or {}) if callable(given) else given
        if own is None:
            own = authentication_from(self._credentials)
        self._authentication = own or self._from_url or own
        sent = secrets_in(self._authentication.headers) | secrets_in(self._authentication.query)
        self._scrub = Scrubber(secrets_in(self._credentials) | sent)

    def _build(self, method: str, url: str, options: Options) -> Request:
        target, from_url = _without_user(self._join(url))
        if self._origin is None:
            self._origin, self._from_url = origin_of(target), from_url
            self._read_credentials()
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
        return check_headers(self._authenticate(request))

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

    async def _follow(self, request: Request, asked: str, bounds: Bounds) -> Response:
        for _ in range(self._environment.limits.max_redirects + 1):
            answer = await self._sender.send(request, bounds, self._scrub)
            if not is_redirect(answer):
                return answer
            following = next_request(request, answer, asked=asked)
            request = check_headers(self._authenticate(following))
        raise Permanent(
            f"{asked} is redirected more than {self._environment.limits.max_redirects} times"
        )

    def _judge(self, answer: Response, asked: str, accepted: Collection[int]) -> SyncError | None:
        if answer.status_code in accepted:
            return None
        usual = error_of(answer, asked=asked, now=host_time())
        own = self._errors(answer) if usual is not None and self._errors else None
        return own or usual

    def _scrubbed(self, error: SyncError) -> SyncError:
        error.message = self._scrub(error.message, MAX_ERROR)
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
