"""HTTP for connectors: an async client that carries credentials and speaks in our errors.

`Connector.http(connection)` gives one; everything below is what it is made of.

    async with self.http(connection, base_url="https://api.example.com") as http:
        async for page in http.pages_by_link("/tickets", params={"since": since}):
            tickets = page.json()

How it behaves comes from an `HttpEnvironment`, which the engine sets on each of its connectors
(`connector.http_environment`); a test or a tool may set its own. The hook for tools that record,
replay or print what is sent:

    connector.http_environment = HttpEnvironment(
        wrap_transport=lambda inner: Recorder(inner),   # httpx2.AsyncBaseTransport in and out
        on_exchange=lambda exchange: print(exchange),   # an `Exchange` after every request
    )

`wrap_transport` is called once for each client with the transport that opens sockets, and returns
the one to use: a recorder calls `inner.handle_async_request(request)`, a replayer answers by itself
(`httpx2.MockTransport` will do) and needs no network. It sees every request as it is sent, each
redirect apart, *with* credentials in its headers, and answers whose bodies may still be compressed
(`await response.aread()` gives them plain). An `Exchange` is safe to show: its URL has no user
information, no query values and none of the connection's secrets.
"""

TYPE_CHECKING = False  # read by type checkers as typing's own, whose import takes its time

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
    from syncline.http.blocking import BlockingHttpClient
    from syncline.http.client import HttpClient
    from syncline.http.conditional import Validators
    from syncline.http.environment import Exchange, HttpEnvironment, HttpLimits
    from syncline.http.rate_limits import wait_seconds
    from syncline.http.status_errors import ErrorMap
else:
    _HOMES = {
        "answers": ("ErrorMap",),
        "auth": ("Authentication", "authentication_from"),
        "blocking": ("BlockingHttpClient",),
        "client": ("HttpClient",),
        "conditional": ("Validators",),
        "environment": ("Exchange", "HttpEnvironment", "HttpLimits"),
        "rate_limits": ("wait_seconds",),
    }

    def __getattr__(name):
        """Import a public name when it is first asked for: a process may never call out."""
        from importlib import import_module

        for home, names in _HOMES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
