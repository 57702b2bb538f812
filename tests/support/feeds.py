"""A site with feeds, on a real HTTP server."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Site:
    """What the server has at each path, and what it was asked."""

    address: str = ""
    documents: dict[str, bytes] = field(default_factory=dict)
    kind: str = "application/xml"
    failure: tuple[int, dict[str, str]] | None = None
    asked: list[tuple[str, int]] = field(default_factory=list)
    breaks_off: bool = False  # in the middle of each answer
    has_etags: bool = True

    def put(self, document: str | bytes, path: str = "/feed") -> str:
        text = document.encode() if isinstance(document, str) else document
        self.documents[path] = text
        return self.address + path


class Handler(BaseHTTPRequestHandler):
    site: Site

    def do_GET(self) -> None:
        if self.site.failure:
            self.answer(*self.site.failure, b'{"message": "not now"}')
            return
        document = self.site.documents.get(self.path)
        if document is None:
            self.answer(404, {}, b"")
            return
        etag = f'"{hashlib.sha256(document).hexdigest()[:12]}"'
        if self.site.has_etags and self.headers["If-None-Match"] == etag:
            self.answer(304, {"ETag": etag}, b"")
        else:
            headers = {"ETag": etag} if self.site.has_etags else {}
            self.answer(200, headers | {"Content-Type": self.site.kind}, document)

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.site.asked.append((self.path, status))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.site.breaks_off else body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[Site]:
    site = Site()
    handler = type("SiteHandler", (Handler,), {"site": site})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=partial(server.serve_forever, poll_interval=0.02))
        thread.start()
        site.address = f"http://127.0.0.1:{server.server_port}"
        yield site
        server.shutdown()
        thread.join()


def rss(*items: str, extra: str = "") -> str:
    return (
        '<?xml version="1.0"?><rss version="2.0"><channel><title>News</title>'
        f"<link>https://news.example</link>{extra}{''.join(items)}</channel></rss>"
    )


def item(number: int, title: str = "", body: str = "text") -> str:
    return (
        f"<item><guid>n-{number}</guid><title>{title or f'Item {number}'}</title>"
        f"<link>https://news.example/{number}</link><description>{body}</description>"
        f"<pubDate>Wed, 01 Jan 2025 {9 + number % 12:02}:00:00 GMT</pubDate></item>"
    )
