"""Adds the dashboard and its assets to an application."""

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import FastAPI, Response

from syncline.api.dashboard import (
    actions,
    audit,
    bulk,
    connection_forms,
    connections,
    overview,
    providers,
    records,
    search,
    tenants,
)
from syncline.api.dashboard.renderer import Dashboard
from syncline.app import Engine

ASSETS = {
    "style.css": "text/css",
    "icon.svg": "image/svg+xml",
    "theme.js": "text/javascript",
    "dashboard.js": "text/javascript",
}


def install(app: FastAPI, engine: Engine) -> None:
    """Add all pages and forms."""
    app.state.dashboard = Dashboard(engine.for_request(None))  # all pages are for operators only
    listed = (overview, connections, records, search, providers, tenants, audit)
    for part in (bulk, connection_forms, actions, *listed):
        app.include_router(part.router)


def install_assets(app: FastAPI) -> None:
    """Add the assets, which the login form and the API documentation need too."""
    for name, media_type in ASSETS.items():
        content = files("syncline.api").joinpath("assets", name).read_bytes()
        app.add_api_route(f"/{name}", _fixed(content, media_type), include_in_schema=False)


def _fixed(content: bytes, media_type: str) -> Callable[[], Awaitable[Response]]:
    async def respond() -> Response:
        return Response(content, media_type=media_type)

    return respond
