"""HTTP for connectors: an async client that sends credentials and raises SDK errors.

`Connector.http(connection)` returns a client.

    async with self.http(connection, base_url="https://api.example.com") as http:
        async for page in http.pages_by_link("/tickets", params={"since": since}):
            tickets = page.json()

A client gets limits and telemetry from an `HttpEnvironment`, which the engine sets on each of its
connectors (`connector.http_environment`). The clients of an engine share its connections. A test
or a tool may set its own environment, with hooks to record, replay or print requests:

    async def answer(request, send):                    # a `Request`, and how to send it
        return Response(200, json=[])                   # or: return await send(request)

    connector.http_environment = HttpEnvironment(
        intercept=answer,
        on_exchange=lambda exchange: print(exchange),   # an `Exchange` after every request
    )

`intercept` is called for every request as it is about to be sent, each redirect on its own, *with*
credentials in the headers. What it returns is the response; without a call of `send` it needs no
network. A response of `send` is decompressed. One that the hook makes itself may have a
`content-encoding`; the client then decompresses it within its limits. An `Exchange` is safe to
show: its URL has no user information, no query values and none of the connection's secrets.
"""

TYPE_CHECKING = False  # type checkers read it as typing's own; importing typing is slow

__all__ = [
    "Authentication",
    "BlockingHttpClient",
    "ConnectError",
    "ErrorMap",
    "Exchange",
    "Headers",
    "HttpClient",
    "HttpEnvironment",
    "HttpLimits",
    "ProtocolError",
    "ReadError",
    "Request",
    "Response",
    "TransportError",
    "Url",
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
    from syncline.http.failures import ConnectError, ProtocolError, ReadError, TransportError
    from syncline.http.messages import Headers, Request, Response
    from syncline.http.rate_limits import wait_seconds
    from syncline.http.status_errors import ErrorMap
    from syncline.http.url import Url
else:
    _HOMES = {
        "auth": ("Authentication", "authentication_from"),
        "blocking_client": ("BlockingHttpClient",),
        "client": ("HttpClient",),
        "conditional": ("Validators",),
        "environment": ("Exchange", "HttpEnvironment", "HttpLimits"),
        "failures": ("ConnectError", "ProtocolError", "ReadError", "TransportError"),
        "messages": ("Headers", "Request", "Response"),
        "rate_limits": ("wait_seconds",),
        "status_errors": ("ErrorMap",),
        "url": ("Url",),
    }

    def __getattr__(name):
        """Import a public name at its first use; many processes never make an HTTP request."""
        from importlib import import_module

        for home, names in _HOMES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
