"""What every request passes before its route: host, authentication, limits, body, deadline.

The body is read only after authentication.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request

from syncline.api.auth import EXPIRY_HEADER, SAFE_METHODS, Authenticator, Principal, address_of
from syncline.api.limits import RequestLimits
from syncline.api.problems import Problem, begin_trace, problem_of
from syncline.json_bounds import JsonBounds, JsonScanner, TooComplex
from syncline.text import one_line, rfc3339, shortened

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_BODY, LARGEST_BULK, LARGEST_LOGIN = 1_000_000, 16_000_000, 8_000
LONGEST_TARGET = 8_000
JSON_BOUNDS = JsonBounds(nodes=500_000)  # a full bulk request has a third of that
API_PREFIX, METRICS_PATH, BULK_PATH = "/v1/", "/metrics", "/v1/connections/bulk"
LIVENESS_PATH = "/healthz"
# They stay open while nothing happens, so they take no turn from ordinary requests.
STREAMS = {"/v1/signals/stream", "/v1/signals/tail", "/v1/signals/follow", "/events"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With `no-referrer`, a browser sends our own forms with `Origin: null`, like a foreign site.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}


class RequestMiddleware:
    """Wraps the application. With `hosts`, only requests to these host names are answered."""

    def __init__(
        self,
        app: App,
        authenticator: Authenticator,
        limits: RequestLimits,
        hosts: Collection[str] | None,
        open_paths: Collection[str],
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._limits = limits
        self._timeouts = limits.timeouts
        self._hosts = hosts
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, scope)
        begin_trace(Headers(scope=scope).get("traceparent", ""))
        try:
            self._check_target(scope)
            caller = await self._identify(Request(scope))
            body = await self._read_body(scope, receive)
            async with asyncio.timeout(self._timeouts.answer_seconds) as deadline:
                answer.on_start = lambda: deadline.reschedule(None)  # a stream has no end
                async with self._turn(scope["path"], caller):
                    await self._app(scope, _replaying(body, receive), answer)
        except Exception as error:
            if answer.has_started:
                raise
            answer.on_start = _nothing  # the deadline has passed
            if isinstance(error, TimeoutError):
                error = Problem(
                    503,
                    "too-slow",
                    "the answer took too long; narrow the filter or lower the limit",
                )
            await problem_of(error).response()(scope, receive, answer)

    def _check_target(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._hosts is not None and _name_of(host) not in self._hosts:
            detail = (
                f"unrecognised Host header {shortened(one_line(host), 100)!r}; add it to api.hosts"
            )
            raise Problem(400, "host", detail)
        if len(scope["raw_path"] or b"") + len(scope["query_string"]) > LONGEST_TARGET:
            raise Problem(
                400, "too-long", f"path and query may have at most {LONGEST_TARGET} bytes"
            )
        if scope["method"] not in SAFE_METHODS and not _is_own(headers, host):
            raise Problem(
                403, "foreign-origin", "a page of another site may not change anything here"
            )

    async def _identify(self, request: Request) -> str:
        """Put the principal on the request's state, and return the caller it counts for.

        The API refuses a stranger here. A page's route gets the refusal instead, with an empty
        body, and redirects to the login form.
        """
        path, address = request.scope["path"], address_of(request)
        if path in self._open_paths:
            if path != LIVENESS_PATH:
                self._limits.take_for_address(address)
            return address
        try:
            principal = await self._authenticate(request, address)
        except Exception as error:
            if isinstance(error, Problem):
                self._limits.take_for_address(address)
            if path.startswith(API_PREFIX) or path == METRICS_PATH:
                raise problem_of(error) from None  # 503 if the database does not answer in time
            request.state.refusal = error
            return address
        if principal.key_id is not None:
            self._limits.take_for_key(str(principal.key_id))
        request.state.principal = principal
        return principal.caller

    async def _authenticate(self, request: Request, address: str) -> Principal:
        """Authenticate in a turn of the caller, or of the address while the caller is unknown."""
        caller = self._authenticator.recognise(request) or address
        async with asyncio.timeout(self._timeouts.identify_seconds), self._limits.turn(caller):
            return await self._authenticator.identify(request)

    def _turn(self, path: str, caller: str) -> AbstractAsyncContextManager[None]:
        if path == LIVENESS_PATH:  # a busy process must not look dead
            return nullcontext()
        return self._limits.stream(caller) if path in STREAMS else self._limits.turn(caller)

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes:
        if scope["method"] in SAFE_METHODS or "refusal" in scope.get("state", ()):
            return b""
        headers, path = Headers(scope=scope), scope["path"]
        limit = self._largest_body(path)
        try:
            async with asyncio.timeout(self._timeouts.body_seconds):
                body = await _receive_all(receive, limit, headers.get("content-length", ""))
        except TimeoutError:
            raise Problem(408, "slow-body", "the body took too long to arrive") from None
        if body:
            _check_kind(headers.get("content-type", ""), path)
        return body

    def _largest_body(self, path: str) -> int:
        if path in self._open_paths:
            return LARGEST_LOGIN
        return LARGEST_BULK if path == BULK_PATH else LARGEST_BODY


class _Answer:
    """Adds the headers of every answer, and knows whether the answer has begun."""

    def __init__(self, send: Send, scope: Scope) -> None:
        self._send = send
        self._scope = scope
        self.has_started = False
        self.on_start: Callable[[], None] = _nothing

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            self.on_start()
            given = {name for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *(
                    (name.lower().encode(), value.encode())
                    for name, value in (HEADERS | self._headers_of_key()).items()
                    if name.lower().encode() not in given
                ),
            ]
        await self._send(message)

    def _headers_of_key(self) -> dict[str, str]:
        """Return the header that warns of a key that expires soon."""
        principal: Principal | None = self._scope.get("state", {}).get("principal")
        if principal is None or principal.key_expires_at is None:
            return {}
        return {EXPIRY_HEADER: rfc3339(principal.key_expires_at)}


def _nothing() -> None:
    pass


async def _receive_all(receive: Receive, limit: int, announced: str) -> bytes:
    too_large = Problem(413, "too-large", f"the body may have at most {limit} bytes")
    if announced.isdigit() and int(announced[:20]) > limit:
        raise too_large
    chunks: list[bytes] = []
    scanner = JsonScanner(JSON_BOUNDS)
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Problem(400, "cut-short", "the body ended early")
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise too_large
        _check_json(scanner, chunks[-1])
        more = message.get("more_body", False)
    return b"".join(chunks)


def _check_json(scanner: JsonScanner, chunk: bytes) -> None:
    try:
        scanner.feed(chunk)
    except TooComplex as error:
        if error.bound == "depth":
            detail = f"JSON may be nested at most {JSON_BOUNDS.depth} levels deep"
            raise Problem(400, "too-deep", detail) from None
        raise Problem(413, "too-large", f"the JSON has {error}") from None


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Return a receive that yields the body again, and then what the client sends."""
    pending = [body]

    async def replay() -> Message:
        if pending:
            return {"type": "http.request", "body": pending.pop(), "more_body": False}
        return await receive()

    return replay


def _check_kind(content_type: str, path: str) -> None:
    kind = content_type.partition(";")[0].strip().lower()
    allowed = (
        "application/json" if path.startswith(API_PREFIX) else "application/x-www-form-urlencoded"
    )
    if kind not in (allowed, "application/json"):
        raise Problem(415, "media-type", f"the body must be {allowed}")


def _is_own(headers: Headers, host: str) -> bool:
    """Return whether the request comes from our own pages, or from no page at all."""
    origin = headers.get("origin")
    if origin is not None:
        return urlsplit(origin).netloc.lower() == host.lower()
    return headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def _name_of(host: str) -> str:
    """Return the host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()
