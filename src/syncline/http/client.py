"""The HTTP client of connectors: credentials for one origin, bounded responses, SDK errors."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import lru_cache
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack
from urllib.parse import urlencode

from syncline.clock import host_time
from syncline.errors import Permanent, SyncError, Transient
from syncline.http.addresses import describe, shown_url
from syncline.http.auth import Authentication, authentication_from, basic
from syncline.http.body import ACCEPTED
from syncline.http.budgets import Spender
from syncline.http.credentials import Credentials
from syncline.http.environment import HttpEnvironment
from syncline.http.failures import SLOW, reason
from syncline.http.messages import Request, Response, encode_body
from syncline.http.pagination import Find, VisitedPages, count_items, find, with_params
from syncline.http.redirects import is_redirect, next_request
from syncline.http.request import Bounds, Options, Sender, check_headers
from syncline.http.status_errors import ErrorMap, error_of, is_good
from syncline.http.url import Url, text_of
from syncline.redaction import LONGEST_TEXT, Scrubber, secrets_in

DEFAULT_HEADERS = {"accept-encoding": ACCEPTED, "user-agent": "syncline", "accept": "*/*"}
MAX_ERROR = 1_000  # characters of a message
Authenticate = Callable[[Mapping[str, Any]], Authentication]
"""A connector's own way to send credentials; called again after every token refresh."""


class NumberOptions(Options, total=False):
    """The options of a request, and one more for numbered pages."""

    size_parameter: str


class ClientOptions(TypedDict, total=False):
    """What a connector chooses for its client."""

    base_url: str | None
    headers: Mapping[str, str] | None
    authentication: Authentication | Authenticate | None
    errors: ErrorMap | None


CLIENT_OPTIONS = ClientOptions.__annotations__.keys()


class HttpClient:
    """Calls one provider for one connection.

    `Connector.http` makes it; use it with `async with`. Failed requests raise SDK errors.
    """

    def __init__(
        self,
        environment: HttpEnvironment,
        *,
        provider_slug: str = "",
        spender: Spender | None = None,
        credentials: Mapping[str, Any] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Make a client; its calls count in the budgets of the spender."""
        self._environment = environment
        if not options.keys() <= CLIENT_OPTIONS:
            unknown = min(options.keys() - CLIENT_OPTIONS)
            raise TypeError(f"HttpClient() has no option {unknown!r}")
        self._headers = DEFAULT_HEADERS.copy()
        for name, value in (options.get("headers") or {}).items():
            self._headers[name.lower()] = value
        self._errors = options.get("errors")
        self._credentials = credentials
        self._given = options.get("authentication")
        self._base: Url | None = None
        self._from_url: Authentication | None = None
        self._folder: Url | None = None  # the base, for references that are joined below it
        self._origin: tuple[str, str, int] | None = None
        if base_url := options.get("base_url"):
            self._read_base(base_url)
        self._known_secrets: Scrubber | None = None
        self._read_credentials()
        self._sender = Sender(environment, spender or Spender(provider_slug))

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
        """Return the whole response, or raise the SDK error that its status means.

        `url` is joined to the base URL. Statuses in `accept`, and 304, raise no error.
        """
        method = method.upper()
        try:
            response = await self._call_refreshing(method, url, options)
            error = self._judge(response, method, url, options)
        except SLOW:
            seconds = options.get("timeout_seconds") or self._environment.limits.timeout_seconds
            described = describe(method, self._join(url))
            error = Transient(f"{described} did not answer within {seconds:g} s")
        except SyncError as raised:
            error = raised
        except OSError as broken:
            error = Transient(f"{describe(method, self._join(url))} failed: {reason(broken)}")
        if error is not None:
            raise self._scrubbed(error) from None  # the cause may hold secrets
        return response

    async def pages_by_link(
        self, url: str = "", **options: Unpack[Options]
    ) -> AsyncIterator[Response]:
        """Yield pages, following each `Link: <…>; rel="next"` header."""
        visited = VisitedPages()
        response = await self.get(url, **options)
        options.pop("params", None)  # the link has them
        options.pop("validators", None)
        while True:
            yield response
            link = response.links.get("next", {}).get("url")
            if not link:
                return
            following = str(response.url.join(link))
            visited.add(following)
            response = await self.get(following, **options)

    async def pages_by_number(
        self,
        url: str = "",
        *,
        items: Find,
        parameter: str = "page",
        first: int = 1,
        size: int | None = None,
        **options: Unpack[NumberOptions],
    ) -> AsyncIterator[Response]:
        """Yield numbered pages until one is empty or has fewer items than `size`.

        `size_parameter` names the query parameter for the size; it is "per_page" by default.
        """
        size_parameter = options.pop("size_parameter", "per_page")
        number = first
        while True:
            own = {parameter: number} | ({size_parameter: size} if size else {})
            response = await self.get(url, **with_params(options, own))
            count = count_items(response, items)
            if count or number == first:
                yield response
            if not count or (size and count < size):
                return
            number += 1

    async def pages_by_offset(
        self,
        url: str = "",
        *,
        items: Find,
        limit: int,
        parameter: str = "offset",
        limit_parameter: str = "limit",
        **options: Unpack[Options],
    ) -> AsyncIterator[Response]:
        """Yield pages from a growing offset until one is shorter than the ones before.

        If the provider caps the limit below `limit`, the iterator stops at the first shorter page.
        """
        offset, most = 0, 0
        while True:
            own = {parameter: offset, limit_parameter: limit}
            response = await self.get(url, **with_params(options, own))
            count = count_items(response, items)
            if count or not offset:
                yield response
            most = max(most, count)
            if not count or count < most or (most >= limit and count < limit):
                return
            offset += count

    async def pages_by_cursor(
        self,
        url: str = "",
        *,
        next_cursor: Find,
        parameter: str = "cursor",
        cursor: Any = None,
        **options: Unpack[Options],
    ) -> AsyncIterator[Response]:
        """Yield pages, following the cursor in each, until a page has none."""
        visited = VisitedPages()
        while True:
            own = {} if cursor is None else {parameter: cursor}
            response = await self.get(url, **with_params(options, own))
            yield response
            cursor = find(response, next_cursor)
            if cursor in (None, "", False):
                return
            visited.add(str(cursor))

    async def _call_refreshing(self, method: str, url: str, options: Options) -> Response:
        """Call with a token that has not expired; if it is refused, refresh it and call again."""
        credentials = self._credentials
        if not isinstance(credentials, Credentials) or not credentials.can_refresh:
            return await self._call(method, url, options)
        if credentials.is_expired(host_time()):
            await self._refresh(credentials, None)
        token = credentials.get("access_token")
        response = await self._call(method, url, options)
        if response.status_code != 401 or response.url.origin != self._origin:
            return response
        await self._refresh(credentials, token)
        return await self._call(method, url, options)

    async def _refresh(self, credentials: Credentials, rejected: str | None) -> None:
        await credentials.refresh(rejected, self._environment)
        self._read_credentials()

    async def _call(self, method: str, url: str, options: Options) -> Response:
        first = request = self._build(method, url, options)
        limits = self._environment.limits
        seconds = options.get("timeout_seconds") or limits.timeout_seconds
        limit = options.get("max_bytes") or limits.max_response_bytes
        bounds = Bounds(asyncio.get_running_loop().time() + seconds, limit)
        for _ in range(limits.max_redirects + 1):
            response = await self._sender.send(request, bounds, self._scrub)
            if not is_redirect(response):
                return response
            following = next_request(request, response, first=first)
            request = check_headers(self._authenticate(following))
        described = describe(first.method, first.url)
        raise Permanent(f"{described} was redirected more than {limits.max_redirects} times")

    def _read_base(self, base_url: str) -> None:
        if "@" in base_url:  # it may have a password, which no cache keeps
            self._base, self._from_url = _without_user(_parse(base_url))
            self._folder = self._base.as_folder()
        else:
            self._base, self._folder = _base(base_url)
        self._origin = self._base.origin

    def _read_credentials(self) -> None:
        """Work out what to send."""
        given = self._given
        own = given(self._credentials or {}) if callable(given) else given
        if own is None:
            own = authentication_from(self._credentials)
        self._authentication = own or self._from_url or own
        self._known_secrets = None

    def _scrub(self, text: str, longest: int = LONGEST_TEXT) -> str:
        """Mask the secrets of the connection; only messages need them, so they are found late."""
        if self._known_secrets is None:
            sent = secrets_in(self._authentication.headers) | secrets_in(self._authentication.query)
            self._known_secrets = Scrubber(secrets_in(self._credentials) | sent)
        return self._known_secrets(text, longest)

    def _build(self, method: str, url: str, options: Options) -> Request:
        target, from_url = _without_user(self._join(url))
        if self._origin is None:
            self._origin, self._from_url = target.origin, from_url
            self._read_credentials()
        if params := options.get("params"):
            target = target.with_params(params)
        kind, content = _body(options)
        request = Request(method, target, self._headers, content)
        if validators := options.get("validators"):
            request.headers.update(validators.headers())
        if kind is not None:
            request.headers["content-type"] = kind
        for name, value in (options.get("headers") or {}).items():
            request.headers[name.lower()] = value
        return check_headers(self._authenticate(request))

    def _join(self, url: str) -> Url:
        if self._base is None:
            return _parse(url)
        if not url:
            return self._base
        base = self._base if url.startswith("/") else self._folder
        assert base is not None
        try:
            return base.join(url)
        except ValueError:
            raise Permanent("the URL cannot be parsed") from None

    def _authenticate(self, request: Request) -> Request:
        """Add the credentials if the request goes to their own origin."""
        if not self._authentication or request.url.origin != self._origin:
            return request
        if request.url.scheme != "https" and not self._environment.allow_private:
            raise Permanent(
                f"{shown_url(request.url)} is not https; credentials are never sent unencrypted"
            )
        if self._authentication.query:
            request.url = request.url.with_params(self._authentication.query)
        for name, value in self._authentication.headers.items():
            request.headers.setdefault(name.lower(), value)
        return request

    def _judge(
        self, response: Response, method: str, url: str, options: Options
    ) -> SyncError | None:
        if is_good(response.status_code) or response.status_code in options.get("accept", ()):
            return None
        described = describe(method, self._join(url))
        usual = error_of(response, described=described, now=host_time())
        return (self._errors(response) if self._errors else None) or usual

    def _scrubbed(self, error: SyncError) -> SyncError:
        error.message = self._scrub(error.message, MAX_ERROR)
        error.args = (error.message,)
        return error


def _parse(url: str) -> Url:
    try:
        return Url(url)
    except (TypeError, ValueError):
        raise Permanent("the URL cannot be parsed") from None


@lru_cache(maxsize=1_000)
def _base(base_url: str) -> tuple[Url, Url]:
    """Return a base URL as it is, and as a folder; every run of a connection has the same."""
    base = _parse(base_url)
    return base, base.as_folder()


def _without_user(url: Url) -> tuple[Url, Authentication | None]:
    """Return the URL without its user information, and that as basic authentication."""
    if not url.userinfo:
        return url, None
    own = Authentication({"authorization": basic(*url.user)})
    return url.without_user(), own


def _body(options: Options) -> tuple[str | None, bytes]:
    """Return the body of a request, and its content type."""
    content = options.get("content")
    if content is not None:
        return None, content.encode() if isinstance(content, str) else content
    if (data := options.get("data")) is not None:
        fields = [
            (name, text_of(one))
            for name, value in data.items()
            for one in (value if isinstance(value, list | tuple) else (value,))
        ]
        return "application/x-www-form-urlencoded", urlencode(fields).encode()
    if (value := options.get("json")) is not None:
        return "application/json", encode_body(value)
    return None, b""
