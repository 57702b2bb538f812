"""Clients of the HTTP application, inside the test's own process."""

import httpx2
from fastapi import FastAPI

from syncline import Engine
from syncline.api.app import create_app
from syncline.api.timeouts import DEFAULT_TIMEOUTS, Timeouts

BASE = "http://127.0.0.1:8080"


def client_of(
    engine: Engine,
    key: str | None = None,
    *,
    page: bool = True,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    app: FastAPI | None = None,
) -> httpx2.AsyncClient:
    """Return a client that sends the key, if there is one."""
    transport = httpx2.ASGITransport(app or create_app(engine, page=page, timeouts=timeouts))
    headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
    return httpx2.AsyncClient(transport=transport, base_url=BASE, headers=headers)
