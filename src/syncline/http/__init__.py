"""HTTP for connectors: an async client that sends credentials and raises SDK errors.

`Connector.http(connection)` returns a client.

    async with self.http(connection, base_url="https://api.example.com") as http:
        async for page in http.pages_by_link("/tickets", params={"since": since}):
            tickets = page.json()

A client gets limits and telemetry from an `HttpEnvironment`, which the engine sets on each of its
connectors (`connector.http_environment`). A test or a tool may set its own, with hooks to record,
replay or print requests:

    connector.http_environment = HttpEnvironment(
        wrap_transport=lambda inner: Recorder(inner),   # httpx2.AsyncBaseTransport in and out
        on_exchange=lambda exchange: print(exchange),   # an `Exchange` after every request
    )

`wrap_transport` is called once for each client with the transport that opens sockets, and returns
the transport to use. A recorder calls `inner.handle_async_request(request)`; a replayer answers by
itself (`httpx2.MockTransport` works) and needs no network. The wrapper sees every request as it is
sent, each redirect on its own, *with* credentials in the headers, and responses whose bodies may
still be compressed (`await response.aread()` decompresses them). An `Exchange` is safe to show: its
URL has no user information, no query values and none of the connection's secrets.
"""

TYPE_CHECKING = False  # type checkers read it as typing's own; importing typing is slow

__all__ = [
    "Authentication",
    "BlockingHttpClient",
    "ErrorMap",
    "Exchange",
    "HttpClient",
    "HttpEnvironment",
    "HttpLimits",
    "Validators",
    "authentication_from",
    "wait_seconds",
]

if TYPE_CHECKING:
    from syncline.http.auth import Authentication, authentication_from
    from syncline.http.blocking_client import BlockingHttpClient
    from syncline.http.client import HttpClient
    from syncline.http.conditional import Validators
    from syncline.http.environment import Exchange, HttpEnvironment, HttpLimits
    from syncline.http.rate_limits import wait_seconds
    from syncline.http.status_errors import ErrorMap
else:
    _HOMES = {
        "auth": ("Authentication", "authentication_from"),
        "blocking_client": ("BlockingHttpClient",),
        "client": ("HttpClient",),
        "conditional": ("Validators",),
        "environment": ("Exchange", "HttpEnvironment", "HttpLimits"),
        "rate_limits": ("wait_seconds",),
        "status_errors": ("ErrorMap",),
    }

    def __getattr__(name):
        """Import a public name at its first use; many processes never make an HTTP request."""
        from importlib import import_module

        for home, names in _HOMES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
