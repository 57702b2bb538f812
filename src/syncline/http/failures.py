"""Requests that got no response: one small set of errors for every way to fail."""

import aiohttp

SLOW = TimeoutError


class TransportError(OSError):
    """The request got no response, or only a part of one."""


class ConnectError(TransportError):
    """No connection could be opened."""


class ReadError(TransportError):
    """The connection was lost."""


class ProtocolError(TransportError):
    """The other side does not speak HTTP."""


class InvalidRequest(TransportError):
    """The request cannot be sent. The text of the cause may quote its headers."""

    def __init__(self) -> None:
        super().__init__("the request is not valid HTTP")


def failure_of(error: Exception) -> Exception:
    """Return our own error for one of the library, whose text may hold a URL with secrets."""
    match error:
        case TransportError():
            return error
        case TimeoutError():
            return TimeoutError()
        case aiohttp.ClientConnectorError():
            return ConnectError(str(error.os_error) or type(error.os_error).__name__)
        case aiohttp.ServerDisconnectedError():
            return ReadError("the server closed the connection without a response")
        case aiohttp.ClientPayloadError():
            return ReadError("the connection was lost within the body")
        case aiohttp.ClientResponseError():
            return ProtocolError(error.message.partition("\n")[0].rstrip(":"))
        case OSError():
            return ReadError(error.strerror or str(error) or type(error).__name__)
    return InvalidRequest()


def reason(error: Exception) -> str:
    """Return why a request failed."""
    if isinstance(error, InvalidRequest):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
