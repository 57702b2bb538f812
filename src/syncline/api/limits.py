"""How often, and how many at once, each caller may ask. The state is this process's own."""

import hashlib
import math
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from syncline.api.fair_queue import FairQueue, QueueFull
from syncline.api.problems import Problem
from syncline.clock import monotonic
from syncline.policy.rate_limit import Bucket, Rate, take
from syncline.settings import Settings
from syncline.telemetry.api import ApiTelemetry, Refusal

MOST_BUCKETS = 10_000  # an attacker with many addresses must not fill the memory
MOST_WAITING = 200  # requests of one caller that wait for their turn
MOST_KNOWN_KEYS = 10_000


class RateLimiter:
    """A bucket for each caller; of more callers than fit, those not seen the longest are new."""

    def __init__(self, rate: Rate, most: int = MOST_BUCKETS) -> None:
        self._rate = rate
        self._most = most
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, caller: str, now: float) -> float:
        """Take a token, or return the seconds until there is one."""
        bucket, wait = take(self._buckets.get(caller), self._rate, now)
        self._buckets[caller] = bucket
        self._buckets.move_to_end(caller)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return wait

    def wait(self, caller: str, now: float) -> float:
        """Return the seconds until there is a token, and take none."""
        return take(self._buckets.get(caller), self._rate, now)[1]


class RequestLimits:
    """What the middleware asks before it goes on with a request."""

    def __init__(self, settings: Settings, telemetry: ApiTelemetry) -> None:
        api = settings.api
        self._telemetry = telemetry
        self._keys = RateLimiter(Rate(api.requests_per_second, api.burst))
        self._addresses = RateLimiter(Rate(api.address_requests_per_second, api.address_burst))
        # People's questions have half of the pool: one caller leaves some of it to the others.
        at_once = api.concurrent_requests or max(1, settings.pool_size // 2 - 1)
        self._queue = FairQueue(at_once, MOST_WAITING)
        self._streams: Counter[str] = Counter()
        self._most_streams = api.concurrent_streams

    def take_for_key(self, key_id: str) -> None:
        """Refuse a request of a key that asks too often."""
        self._take(self._keys, key_id, "this key asks too often")

    def take_for_address(self, address: str) -> None:
        """Refuse a request without a good key from an address that asks too often."""
        self._take(self._addresses, address, "this address asks too often without a key")

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Hold one of the caller's turns; who asks for more at once than may wait is refused."""
        try:
            async with self._queue.turn(caller):
                yield
        except QueueFull:
            raise self._refusal(Refusal.CONCURRENCY, 1, "too many requests at once") from None

    @asynccontextmanager
    async def stream(self, caller: str) -> AsyncIterator[None]:
        """Count a request that stays open among the caller's; one too many is refused."""
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
    """Slows down whoever tries keys: an address gets a few failures a minute.

    It is asked before the database is. A key that was good lately may always be tried, so that
    nobody locks out the others behind the same address.
    """

    def __init__(self, failures_per_minute: int, telemetry: ApiTelemetry) -> None:
        self._failures = RateLimiter(Rate(failures_per_minute / 60, failures_per_minute))
        self._known: OrderedDict[bytes, str] = OrderedDict()
        self._telemetry = telemetry

    def caller_of(self, secret: str) -> str | None:
        """Return whose key or session this is, if it was good lately."""
        return self._known.get(_digest(secret))

    def check(self, secret: str, address: str) -> None:
        """Refuse a try from an address with too many failures."""
        wait = self._failures.wait(address, monotonic())
        if wait and _digest(secret) not in self._known:
            self._telemetry.request_refused(Refusal.FAILED_LOGINS)
            raise too_many(wait, "too many wrong keys came from this address")

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
    """Return the answer to one request too many."""
    seconds = math.ceil(wait)
    headers = {"Retry-After": str(seconds)}
    return Problem(429, "too-many-requests", f"{why}; try again in {seconds} s", headers=headers)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
