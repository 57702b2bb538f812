"""How often somebody may ask: a bucket of tokens that refills at a steady rate."""

import ipaddress
from dataclasses import dataclass

IPV6_PREFIX = 64  # what one customer of a provider has; single addresses are free


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens that come back each second, and how many a bucket holds."""

    per_second: float
    burst: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """How many tokens there were, and when."""

    tokens: float
    at: float


def take(bucket: Bucket | None, rate: Rate, now: float) -> tuple[Bucket, float]:
    """Return the bucket after a token was taken, and 0; or as it is, and the seconds to wait."""
    tokens = _tokens_at(bucket, rate, now)
    if tokens >= 1:
        return Bucket(tokens - 1, now), 0.0
    return Bucket(tokens, now), (1 - tokens) / rate.per_second


def _tokens_at(bucket: Bucket | None, rate: Rate, now: float) -> float:
    """Return how many tokens there are now; a bucket that nobody used is full."""
    if bucket is None:
        return rate.burst
    return min(rate.burst, bucket.tokens + max(0.0, now - bucket.at) * rate.per_second)


def network_of(address: str) -> str:
    """Return whom an address stands for: itself, or of IPv6 the /64 that it lies in."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, IPV6_PREFIX), strict=False))
