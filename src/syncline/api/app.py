"""The HTTP application: is it alive, is it ready, how does it fare."""

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from syncline.api.page import StatusPage
from syncline.api.wording import one_line, shortened
from syncline.engine.app import Engine

EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
# A page of another site must not read this one through a name of its own that leads here.
LOOPBACK_NAMES = ["localhost", "127.0.0.1", "::1", "[::1]"]
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def create_app(engine: Engine, *, page: bool = True) -> FastAPI:
    """Return the application of one engine, with the status page unless it is left out."""
    app = FastAPI(title="Syncline", openapi_url=None, docs_url=None, redoc_url=None)
    hosts = [*LOOPBACK_NAMES, engine.settings.api.host]
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    app.middleware("http")(_add_headers)
    _add_probes(app, engine)
    if page:
        _add_page(app, engine)
    return app


def _add_probes(app: FastAPI, engine: Engine) -> None:
    @app.get("/healthz")
    async def healthz() -> JSONResponse:
        return JSONResponse({"status": "alive"})

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        ill = {name: shortened(one_line(why), 300) for name, why in (await engine.health()).items()}
        if ill:
            return JSONResponse({"status": "not ready", "ill": ill}, status_code=503)
        return JSONResponse({"status": "ready"})

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(engine.telemetry.exposition(), headers={"Content-Type": EXPOSITION})


def _add_page(app: FastAPI, engine: Engine) -> None:
    status_page = StatusPage(engine)

    @app.get("/")
    async def status() -> HTMLResponse:
        html, is_answering = await status_page.render()
        return HTMLResponse(html, status_code=200 if is_answering else 503)

    for name, media_type in (("style.css", "text/css"), ("icon.svg", "image/svg+xml")):
        content = files("syncline.api").joinpath("assets", name).read_bytes()
        app.add_api_route(f"/{name}", _fixed(content, media_type))


def _fixed(content: bytes, media_type: str) -> Callable[[], Awaitable[Response]]:
    async def respond() -> Response:
        return Response(content, media_type=media_type)

    return respond


async def _add_headers(
    request: Request, call_next: Callable[[Request], Awaitable[Response]]
) -> Response:
    response = await call_next(request)
    response.headers.update(HEADERS)
    return response
