"""How well a provider is doing, decided from counts alone."""

from dataclasses import dataclass
from enum import StrEnum

RATE_LIMITED_SHARE = 50  # rate_limited once 1 in 50 connections waits at the provider's request


class Health(StrEnum):
    OK = "ok"
    FAILING = "failing"
    RATE_LIMITED = "rate_limited"
    UNKNOWN = "unknown"  # no live worker has its connector


@dataclass(frozen=True, slots=True)
class ProviderCounts:
    """What health is judged by; `succeeded` and `failed` are outcomes of recent jobs."""

    workers: int
    connections: int
    rate_limited: int
    succeeded: int
    failed: int


def judge_health(counts: ProviderCounts) -> Health:
    """Return the first of these that holds: unknown, rate_limited, failing, ok."""
    if not counts.workers:
        return Health.UNKNOWN
    if counts.rate_limited * RATE_LIMITED_SHARE >= max(counts.connections, 1):
        return Health.RATE_LIMITED
    return Health.FAILING if counts.failed > counts.succeeded else Health.OK
