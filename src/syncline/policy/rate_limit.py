"""Rate limit of API clients: a token bucket that refills at a steady rate."""

import ipaddress
from dataclasses import dataclass

IPV6_PREFIX = 64  # a customer usually has a whole /64, so its single addresses share a limit


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens added per second, and how many a bucket holds."""

    per_second: float
    burst: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """The tokens in a bucket at an instant."""

    tokens: float
    at: float


def take(bucket: Bucket | None, rate: Rate, now: float) -> tuple[Bucket, float]:
    """Take a token: return the bucket and 0, or the bucket unchanged and the seconds to wait."""
    tokens = _tokens_at(bucket, rate, now)
    if tokens >= 1:
        return Bucket(tokens - 1, now), 0.0
    return Bucket(tokens, now), (1 - tokens) / rate.per_second


def _tokens_at(bucket: Bucket | None, rate: Rate, now: float) -> float:
    """Return the tokens at `now`; an unused bucket is full."""
    if bucket is None:
        return rate.burst
    return min(rate.burst, bucket.tokens + max(0.0, now - bucket.at) * rate.per_second)


def network_of(address: str) -> str:
    """Return the address itself, or the /64 of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, IPV6_PREFIX), strict=False))
