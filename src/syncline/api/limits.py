"""Limits per caller: requests per second, requests at once, open streams, failed logins.

The counts belong to this process.
"""

import hashlib
import math
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from syncline.api.fair_queue import FairQueue, QueueFull
from syncline.api.problems import Problem
from syncline.api.timeouts import Timeouts
from syncline.clock import monotonic
from syncline.policy.rate_limit import Bucket, Rate, take
from syncline.settings import Settings
from syncline.telemetry.api import ApiTelemetry, Refusal

MOST_BUCKETS = 10_000  # many addresses must not fill the memory
MOST_WAITING = 200  # requests of one caller that may wait for a turn
MOST_KNOWN_KEYS = 10_000


class RateLimiter:
    """A token bucket per caller. When there are too many, the least recent are forgotten."""

    def __init__(self, rate: Rate, most: int = MOST_BUCKETS) -> None:
        self._rate = rate
        self._most = most
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, caller: str, now: float) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        bucket, wait = take(self._buckets.get(caller), self._rate, now)
        self._buckets[caller] = bucket
        self._buckets.move_to_end(caller)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return wait

    def wait(self, caller: str, now: float) -> float:
        """Return the seconds until there is a token, without taking it."""
        return take(self._buckets.get(caller), self._rate, now)[1]


class RequestLimits:
    """The limits that the middleware applies to every request."""

    def __init__(self, settings: Settings, telemetry: ApiTelemetry, timeouts: Timeouts) -> None:
        api = settings.api
        self.timeouts = timeouts
        self._telemetry = telemetry
        self._keys = RateLimiter(Rate(api.requests_per_second, api.burst))
        self._addresses = RateLimiter(Rate(api.address_requests_per_second, api.address_burst))
        # Requests may use half of the pool; one caller may use all but one session of that half.
        at_once = api.concurrent_requests or max(1, settings.pool_size // 2 - 1)
        self._queue = FairQueue(at_once, MOST_WAITING)
        self._streams: Counter[str] = Counter()
        self._most_streams = api.concurrent_streams

    def take_for_key(self, key_id: str) -> None:
        """Refuse a request if its key sends too many per second."""
        self._take(self._keys, key_id, "this key sends too many requests")

    def take_for_address(self, address: str) -> None:
        """Refuse a request without a valid key if its address sends too many per second."""
        self._take(self._addresses, address, "this address sends too many requests without a key")

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Hold one of the caller's turns, or refuse the request if too many are waiting."""
        try:
            async with self._queue.turn(caller):
                yield
        except QueueFull:
            raise self._refusal(Refusal.CONCURRENCY, 1, "too many requests at once") from None

    @asynccontextmanager
    async def stream(self, caller: str) -> AsyncIterator[None]:
        """Count an open stream of the caller, or refuse it if there are too many."""
        if self._streams[caller] >= self._most_streams:
            raise self._refusal(Refusal.CONCURRENCY, 10, "too many open streams")
        self._streams[caller] += 1
        try:
            yield
        finally:
            self._streams[caller] -= 1
            if not self._streams[caller]:
                del self._streams[caller]

    def _take(self, limiter: RateLimiter, caller: str, why: str) -> None:
        if wait := limiter.take(caller, monotonic()):
            raise self._refusal(Refusal.RATE, wait, why)

    def _refusal(self, reason: Refusal, wait: float, why: str) -> Problem:
        self._telemetry.request_refused(reason)
        return too_many(wait, why)


class LoginAttempts:
    """Slows down guessing of keys: an address may fail a few times a minute.

    It decides before the database is asked. A key that was valid recently is always tried, so
    that nobody can lock out others behind the same address.
    """

    def __init__(self, failures_per_minute: int, telemetry: ApiTelemetry) -> None:
        self._failures = RateLimiter(Rate(failures_per_minute / 60, failures_per_minute))
        self._known: OrderedDict[bytes, str] = OrderedDict()
        self._telemetry = telemetry

    def caller_of(self, secret: str) -> str | None:
        """Return whose key or session this is, if it was valid recently."""
        return self._known.get(_digest(secret))

    def check(self, secret: str, address: str) -> None:
        """Refuse an attempt from an address with too many failures."""
        wait = self._failures.wait(address, monotonic())
        if wait and _digest(secret) not in self._known:
            self._telemetry.request_refused(Refusal.FAILED_LOGINS)
            raise too_many(wait, "too many invalid keys came from this address")

    def failed(self, secret: str, address: str) -> None:
        self._known.pop(_digest(secret), None)
        self._failures.take(address, monotonic())
        self._telemetry.login_failed(address)

    def succeeded(self, secret: str, caller: str) -> None:
        digest = _digest(secret)
        self._known[digest] = caller
        self._known.move_to_end(digest)
        if len(self._known) > MOST_KNOWN_KEYS:
            self._known.popitem(last=False)


def too_many(wait: float, why: str) -> Problem:
    """Return the problem for a request that exceeds a limit."""
    seconds = math.ceil(wait)
    headers = {"Retry-After": str(seconds)}
    return Problem(429, "too-many-requests", f"{why}; try again in {seconds} s", headers=headers)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
