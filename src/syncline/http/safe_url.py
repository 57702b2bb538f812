"""What may be said about a request: never user information, never query values."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from httpx2 import URL


def describe(method: str, url: "URL") -> str:
    """Return a request in words: the method, and the address without what may be secret."""
    return f"{method} {address(url)}"


def address(url: "URL") -> str:
    """Return an address without user information and without the values of its query."""
    names = "&".join(f"{name}=…" for name in url.params)
    port = f":{url.port}" if url.port else ""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}{port}{url.path}{'?' + names if names else ''}"
