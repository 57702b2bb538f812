"""A small JSON API on loopback: orders by time of change, in pages, at its own pace."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

FIRST = datetime(2025, 1, 1, tzinfo=UTC)
PAGE = 20


class OrdersServer:
    """The orders that the API serves, and the requests it got."""

    def __init__(self) -> None:
        self.orders: list[dict[str, Any]] = []
        self.pause_seconds = 0.0
        self.asked: list[dict[str, str]] = []
        self.url = ""

    def add(self, count: int, **fields: Any) -> None:
        for _ in range(count):
            number = len(self.orders)
            updated = (FIRST + timedelta(seconds=number)).strftime("%Y-%m-%dT%H:%M:%SZ")
            self.orders.append({"id": number, "updated": updated, "total": number * 10, **fields})

    def edit(self, id_: int, **fields: Any) -> None:
        """Change an order; it moves to the end, as the newest."""
        updated = (FIRST + timedelta(seconds=len(self.orders), days=1)).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        )
        order = next(one for one in self.orders if one["id"] == id_)
        self.orders.append({**order, **fields, "updated": updated})

    def answer(self, query: dict[str, str]) -> dict[str, Any]:
        self.asked.append(query)
        time.sleep(self.pause_seconds)
        since, page = query.get("since", "").rstrip("Z"), int(query.get("page", "1"))
        found = [one for one in self.orders if one["updated"].rstrip("Z") >= since]
        items = found[(page - 1) * PAGE : page * PAGE]
        more = {"next": page + 1} if page * PAGE < len(found) else {}
        return {"items": items, **more}


@contextmanager
def serve_orders() -> Iterator[OrdersServer]:
    orders = OrdersServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = {
                name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()
            }
            body = json.dumps(orders.answer(query)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        orders.url = f"http://127.0.0.1:{server.server_port}"
        yield orders
        server.shutdown()
