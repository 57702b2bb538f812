"""Requests over HTTP: retries with backoff, and problems as exceptions."""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlencode

import aiohttp
from pydantic import TypeAdapter
from pydantic_core import to_json
from yarl import URL

from syncline.client.calls import Call, Repeat
from syncline.client.errors import (
    ApiError,
    NotFound,
    TooManyRequests,
    Unavailable,
    Unreachable,
    error_of,
)
from syncline.clock import Dice, pause

T = TypeVar("T")
FIRST_DELAY, LONGEST_DELAY = 0.25, 10.0  # seconds between two attempts
LONGEST_WAIT = 60.0  # of a `Retry-After`; a longer one is left to the caller
IDLE_SECONDS = 4  # the server closes a connection that is idle for five seconds
LOST = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Options:
    """Where a client sends its requests, and how long it tries."""

    url: str
    key: str | None = field(repr=False)
    timeout: float = 60.0
    attempts: int = 5
    tls: ssl.SSLContext | None = None
    wait: Callable[[float], Awaitable[None]] = pause


class Transport:
    """Sends calls over connections that stay open between them."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._dice = Dice()
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(
        self, call: Call[T], *, attempts: float | None = None, timeout: float | None = None
    ) -> T:
        """Return the answer; what may pass is tried again, `attempts` times at most."""
        most, was_lost, number = attempts or self._options.attempts, False, 0
        while True:
            number += 1
            try:
                return await self._attempt(call, timeout or self._options.timeout)
            except NotFound:
                if was_lost and call.method == "DELETE" and call.answer is None:
                    return None  # type: ignore[return-value]  # the lost attempt deleted it
                raise
            except (ApiError, *LOST) as error:
                was_lost = was_lost or not _is_refusal(error)
                wait = self._wait_after(call, error, number)
                if wait is None or number >= most:
                    raise _shown(error) from None
            await self._options.wait(wait)

    async def _attempt(self, call: Call[T], timeout: float) -> T:
        options = self._options
        async with self._opened().request(
            call.method,
            _address(options.url + call.path, call.query),
            data=None if call.body is None else to_json(call.body),
            headers={**_headers(options.key, call.body is not None), **call.headers},
            timeout=aiohttp.ClientTimeout(total=timeout),
            allow_redirects=False,  # a redirect could take the key elsewhere
        ) as response:
            body = await response.read()
            if not 200 <= response.status < 300:
                raise error_of(response.status, body, response.headers.get("Retry-After", ""))
            return _result(call, body)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            tls = self._options.tls
            connector = aiohttp.TCPConnector(keepalive_timeout=IDLE_SECONDS, ssl=tls or True)
            self._session = aiohttp.ClientSession(
                connector=connector,
            )
            # Its own repetition of a lost request would hide that one was lost.
            self._session._retry_connection = False
        return self._session

    def _wait_after(self, call: Call[Any], error: BaseException, number: int) -> float | None:
        """Return the seconds until the next attempt; None if there must be none."""
        if not _may_repeat(call.repeat, error):
            return None
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(number - 1, 10))
        delay *= 0.5 + self._dice.roll() / 2  # so that clients do not come back together
        asked = error.retry_after if isinstance(error, ApiError) else None
        if asked is None:
            return delay
        return asked + delay if asked <= LONGEST_WAIT else None


def _may_repeat(repeat: Repeat, error: BaseException) -> bool:
    if isinstance(error, ApiError) and not isinstance(error, (TooManyRequests, Unavailable)):
        return False
    if repeat is Repeat.UNLESS_LOST:
        return _is_refusal(error) or isinstance(error, aiohttp.ClientConnectorError)
    return repeat is Repeat.ALWAYS


def _is_refusal(error: BaseException) -> bool:
    """Return whether the server said that it did nothing."""
    return isinstance(error, ApiError) and not isinstance(error, Unavailable)


def _shown(error: BaseException) -> BaseException:
    if isinstance(error, ApiError):
        return error
    return Unreachable(f"{type(error).__name__}: {error}".rstrip(": "))


def _headers(key: str | None, has_body: bool) -> dict[str, str]:
    headers = {"Accept": "application/json"}
    if has_body:
        headers["Content-Type"] = "application/json"
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    return headers


def _address(target: str, query: Mapping[str, Any]) -> URL:
    """Return the address as it is sent; nothing of it is decoded or normalised."""
    pairs = [
        (name, _text(one))
        for name, value in query.items()
        for one in (value if isinstance(value, (list, tuple)) else [value])
        if one is not None
    ]
    return URL(f"{target}?{urlencode(pairs)}" if pairs else target, encoded=True)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _result(call: Call[T], body: bytes) -> T:
    if call.answer is None:
        return None  # type: ignore[return-value]
    found = _adapter(call.answer).validate_json(body)
    return call.pick(found) if call.pick is not None else found


@cache
def _adapter(answer: Any) -> TypeAdapter[Any]:
    return TypeAdapter(answer)
