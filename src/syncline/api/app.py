"""The HTTP application: the API, its documentation, the probes and the dashboard."""

import math
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from syncline.api import login, openapi, problems
from syncline.api.auth import Authenticator, OperatorCanRead
from syncline.api.dashboard import setup
from syncline.api.limits import RequestLimits
from syncline.api.middleware import RequestMiddleware
from syncline.api.routes import (
    actions,
    audit,
    budgets,
    connections,
    credentials,
    jobs,
    keys,
    pauses,
    shares,
    signals,
    stats,
)
from syncline.api.timeouts import DEFAULT_TIMEOUTS, Timeouts
from syncline.app import Engine
from syncline.settings.checks import is_loopback
from syncline.text import one_line, shortened

TENANTS_OWN = (actions, audit, connections, credentials, jobs, signals)
ROUTES = (*TENANTS_OWN, stats, keys, budgets, shares, pauses)
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
# Another site must not read this one through a DNS name that resolves to this machine.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
# Open to everybody: probes, the login form, the API documentation, and their assets.
OPEN_PATHS = frozenset(
    {"/healthz", "/readyz", "/login", "/docs", "/openapi.json"}
    | {f"/{name}" for name in setup.ASSETS}
)


class FiniteJson(JSONResponse):
    """JSON that every client can parse: NaN and infinities in stored values become null."""

    def render(self, content: Any) -> bytes:
        try:
            return super().render(content)
        except ValueError:
            return super().render(_finite(content))


def create_app(
    engine: Engine, *, page: bool = True, timeouts: Timeouts = DEFAULT_TIMEOUTS
) -> FastAPI:
    """Return the application of one engine, with or without the dashboard."""
    api = engine.settings.api
    is_public = not is_loopback(api.host)
    app = FastAPI(
        title="Syncline",
        version=version("syncline"),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        default_response_class=FiniteJson,
    )
    app.state.engine = engine
    app.state.timeouts = timeouts
    authenticator = app.state.authenticator = Authenticator(engine, is_public=is_public)
    # Where a key is required, a request through a foreign name reads nothing anyway.
    hosts = None if is_public else {*LOOPBACK_NAMES, api.host, *api.hosts}
    limits = RequestLimits(engine.settings, engine.telemetry.api, timeouts)
    app.add_middleware(
        RequestMiddleware,
        authenticator=authenticator,
        limits=limits,
        hosts=hosts,
        open_paths=OPEN_PATHS,
    )
    problems.install(app)
    _add_probes(app, engine)
    for part in ROUTES:
        app.include_router(part.router)
    openapi.install(app)
    login.install(app)
    setup.install_assets(app)
    if page:
        setup.install(app, engine)
    return app


def _add_probes(app: FastAPI, engine: Engine) -> None:
    authenticator: Authenticator = app.state.authenticator

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> JSONResponse:
        return JSONResponse({"status": "alive"})

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> JSONResponse:
        if engine.is_draining:
            return JSONResponse({"status": "draining"}, status_code=503)
        ill = {name: shortened(one_line(why), 300) for name, why in (await engine.health()).items()}
        if not ill:
            return JSONResponse({"status": "ready"})
        # The reasons may name hosts and errors: once keys are required, only the names are shown.
        shown = sorted(ill) if authenticator.requires_key else ill
        return JSONResponse({"status": "not ready", "ill": shown}, status_code=503)

    @app.get("/metrics", include_in_schema=False)
    async def metrics(operator: OperatorCanRead) -> Response:  # noqa: ARG001
        return Response(engine.telemetry.exposition(), headers={"Content-Type": EXPOSITION})


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
