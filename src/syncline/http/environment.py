"""What an HTTP client gets from outside: limits, permissions and telemetry."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from syncline.http.addresses import is_public

if TYPE_CHECKING:
    from ssl import SSLContext

    from syncline.http.budgets import CallBudgets
    from syncline.http.gate import ClosedProviders
    from syncline.http.messages import Request, Response
    from syncline.http.pool import ConnectionPool

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Resolves a host and port to addresses."""

Send = Callable[["Request"], Awaitable["Response"]]
"""Sends a request over the network and returns the response, decompressed."""

Intercept = Callable[["Request", Send], Awaitable["Response"]]
"""Stands between a client and the network: it may pass a request on, or answer by itself."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """How long a request may take, and how large its response may be."""

    timeout_seconds: float = 60
    connect_timeout_seconds: float = 10
    max_response_bytes: int = 64_000_000
    max_redirects: int = 5
    max_json_values: int = 1_000_000
    connections_per_origin: int = 64
    dns_cache_seconds: float = 30


@dataclass(slots=True)
class Call:
    """The result of one request: the client fills it in, telemetry reads it at the end."""

    status: int | None = None
    received_bytes: int = 0


class HttpTelemetry(Protocol):
    """Records every request, from start to end."""

    def request(
        self, provider_slug: str, method: str, host: str
    ) -> AbstractContextManager[Call]: ...


class NoTelemetry:
    """Records nothing; for clients outside an engine."""

    def request(
        self,
        provider_slug: str,  # noqa: ARG002
        method: str,  # noqa: ARG002
        host: str,  # noqa: ARG002
    ) -> AbstractContextManager[Call]:
        return nullcontext(Call())


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its result, without secrets; `failure` is the class of the error, if any."""

    method: str
    url: str
    status: int | None
    received_bytes: int
    seconds: float
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class HttpEnvironment:
    """What every client of a connector gets: limits, permissions, telemetry and hooks.

    The engine makes one from its settings. A test or a tool may set its own.
    """

    limits: HttpLimits = HttpLimits()
    allow_private: bool = False
    is_allowed: Callable[[str], bool] = is_public  # called with each resolved address
    telemetry: HttpTelemetry = field(default_factory=NoTelemetry)
    resolve: Resolve | None = None
    ssl_context: "SSLContext | None" = None
    intercept: Intercept | None = None
    on_exchange: Callable[[Exchange], None] | None = None
    closed: "ClosedProviders | None" = None  # those that nobody may call at present
    budgets: "CallBudgets | None" = None  # how many calls may be made
    pool: "ConnectionPool | None" = None  # without one, each client opens its own connections

    def with_limits(self, **changes: float | int) -> "HttpEnvironment":
        return replace(self, limits=replace(self.limits, **changes))  # type: ignore[arg-type]
