"""A session with an IMAP server: address checks, login, and SDK errors."""

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from syncline.connectors.config import Configuration
from syncline.errors import Permanent, RateLimited, SyncError, Transient, Unauthorized
from syncline.http.addresses import is_public, not_public

if TYPE_CHECKING:
    from imapclient import IMAPClient

TIMEOUT_SECONDS = 60
BUSY = ("[LIMIT]", "[INUSE]", "too many", "rate limit")
LOGIN = "username and password, or username and access_token"


class Account(Configuration):
    """The server and the mailboxes of an account."""

    host: str = Field(min_length=1)
    port: int = Field(default=993, ge=1, le=65_535)
    security: Literal["tls", "starttls", "none"] = "tls"
    mailboxes: list[str] = Field(default_factory=lambda: ["INBOX"], min_length=1, max_length=50)
    page_size: int = Field(default=100, ge=1, le=1000)


@contextmanager
def logged_in(
    account: Account, credentials: Mapping[str, Any] | None, *, allow_private: bool
) -> Iterator["IMAPClient"]:
    """Yield a logged-in client; its errors inside the block become SDK errors."""
    try:
        from imapclient.exceptions import IMAPClientAbortError, IMAPClientError
    except ImportError:
        raise Permanent("imap needs an extra: pip install 'syncline[imap]'") from None
    client: IMAPClient | None = None
    try:
        client = _open(account, _addresses(account, allow_private=allow_private))
        _log_in(client, credentials or {})
        if client.has_capability("ENABLE") and client.has_capability("CONDSTORE"):
            client.enable("CONDSTORE")  # some servers count changes only after this
        yield client
    except SyncError:
        raise
    except (IMAPClientAbortError, OSError, EOFError) as error:
        raise Transient(f"{account.host} failed: {type(error).__name__}: {error}") from None
    except IMAPClientError as error:
        raise _refused(account, str(error)) from None
    finally:
        if client is not None:
            _leave(client)


def _leave(client: "IMAPClient") -> None:
    try:
        client.logout()
    except Exception:  # the session is over; only close the socket
        with suppress(Exception):
            client.shutdown()


class _NamedContext(ssl.SSLContext):
    """Verifies certificates for the host's name while connecting to its address."""

    host: str

    def wrap_socket(self, sock: Any, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return super().wrap_socket(sock, *arguments, **{**options, "server_hostname": self.host})


def _context(host: str) -> ssl.SSLContext:
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    context.host = host
    return context


def _open(account: Account, addresses: list[str]) -> "IMAPClient":
    """Return a client connected to the first address that answers."""
    from imapclient import IMAPClient

    is_tls = account.security == "tls"
    tls = {"ssl": is_tls, "ssl_context": _context(account.host) if is_tls else None}
    for address in addresses:
        try:
            client = IMAPClient(address, account.port, timeout=TIMEOUT_SECONDS, **tls)
        except OSError:
            if address == addresses[-1]:
                raise
        else:
            break
    if account.security == "starttls":
        client.starttls(_context(account.host))
    client.normalise_times = False  # INTERNALDATE keeps its zone
    return client


def _log_in(client: "IMAPClient", credentials: Mapping[str, Any]) -> None:
    from imapclient.exceptions import IMAPClientError, LoginError

    name, password = credentials.get("username"), credentials.get("password")
    token = credentials.get("access_token")
    if not isinstance(name, str) or not isinstance(token or password, str):
        raise Unauthorized(f"the credentials must have {LOGIN}")
    try:
        if token:
            client.oauth2_login(name, str(token))
        else:
            client.login(name, str(password))
    except LoginError as error:
        text = _without(str(error), credentials)
        if any(sign.lower() in text.lower() for sign in (*BUSY, "[UNAVAILABLE]")):
            raise RateLimited(f"the server accepts no logins at the moment: {text}") from None
        raise Unauthorized(f"the server refused the login: {text}") from None
    except IMAPClientError as error:
        raise Transient(f"the login failed: {_without(str(error), credentials)}") from None


def _addresses(account: Account, *, allow_private: bool) -> list[str]:
    """Resolve the host once and return its checked addresses, to which the client connects.

    Private addresses and unencrypted passwords are refused unless the settings allow them.
    """
    if account.security == "none" and not allow_private:
        raise Permanent("config.security: passwords would be unencrypted; use tls or starttls")
    try:
        found = socket.getaddrinfo(account.host, account.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Transient(f"{account.host} cannot be resolved: {error}") from None
    addresses = [str(address[0]) for *_, address in found]
    for address in addresses:
        if not allow_private and not is_public(address):
            raise not_public(account.host, address)
    return list(dict.fromkeys(addresses))


def _refused(account: Account, text: str) -> SyncError:
    if any(sign.lower() in text.lower() for sign in BUSY):
        return RateLimited(f"{account.host} asks for a pause: {text}")
    if "NONEXISTENT" in text or "doesn't exist" in text:
        return Permanent(f"config.mailboxes: {text}")
    return Transient(f"{account.host} refused: {text}")


def _without(text: str, credentials: Mapping[str, Any]) -> str:
    for value in credentials.values():
        if isinstance(value, str) and value:
            text = text.replace(value, "***")
    return text
