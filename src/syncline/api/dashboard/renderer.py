"""Renders the templates, caches costly queries for a moment, and turns errors into pages."""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache, partial
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from syncline import text
from syncline.api.auth import ScopedRoute, engine_of
from syncline.api.dashboard import charts, formats
from syncline.api.login import DatabaseAway, SignInNeeded
from syncline.api.problems import Problem, problem_of
from syncline.app import Engine
from syncline.clock import monotonic
from syncline.policy.audit import change_text
from syncline.policy.figures import PERIODS
from syncline.policy.freshness import Freshness
from syncline.policy.stats import (
    FLOODS_SHOWN,
    History,
    Overview,
    Providers,
    flood_trouble,
    list_failures,
    provider_trouble,
)

T = TypeVar("T")
OVERVIEW_CACHED_SECONDS = 1.5
FRESHNESS_CACHED_SECONDS = 10.0
PROVIDERS_CACHED_SECONDS = 3.0
TENANTS_CACHED_SECONDS = 30.0
TITLES = {
    "conflict": "Not possible now",
    "csrf": "This form has expired",
    "internal": "Something went wrong",
    "invalid": "Invalid input",
    "not-found": "Not found",
    "operators-only": "For operators only",
    "too-slow": "The query took too long",
    "unavailable": "The database does not answer",
}
NAVIGATION = (
    ("/", "Overview"),
    ("/connections", "Connections"),
    ("/jobs", "Jobs"),
    ("/signals", "Signals"),
    ("/tenants", "Tenants"),
    ("/providers", "Providers"),
    ("/workers", "Workers"),
    ("/audit", "Audit"),
)


class Cached(Generic[T]):
    """A query whose result is reused for a few seconds, however many pages show it."""

    def __init__(self, read: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._found: tuple[float, T] | None = None
        self._turn = asyncio.Lock()

    async def get(self) -> T:
        async with self._turn:  # concurrent callers share one query
            if self._found is None or monotonic() - self._found[0] >= self._seconds:
                self._found = (monotonic(), await self._read())
            return self._found[1]


class Dashboard:
    """What all pages of one engine share: templates and cached queries."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.overview: Cached[Overview] = Cached(engine.stats.overview, OVERVIEW_CACHED_SECONDS)
        self.history: dict[str, Cached[History]] = {
            period: Cached(partial(engine.stats.history, period), OVERVIEW_CACHED_SECONDS)
            for period in PERIODS
        }
        self.freshness: Cached[Freshness] = Cached(engine.stats.freshness, FRESHNESS_CACHED_SECONDS)
        self.providers: Cached[Providers] = Cached(self._read_providers, PROVIDERS_CACHED_SECONDS)
        self.tenants: Cached[list[str]] = Cached(engine.stats.tenants, TENANTS_CACHED_SECONDS)
        self._environment = _environment()

    async def _read_providers(self) -> Providers:
        return await self.engine.stats.providers(overview=await self.overview.get())

    async def known_providers(self) -> list[str]:
        """Return the providers to filter by."""
        return [provider.provider_slug for provider in (await self.providers.get()).items]

    def render(
        self, template: str, request: Request, *, status: int = 200, **values: Any
    ) -> Response:
        """Return the page that a template renders."""
        html = self._environment.get_template(template).render(
            path=request.url.path, schema=self.engine.settings.schema, **values
        )
        return HTMLResponse(html, status_code=status)

    def render_error(self, request: Request, error: Exception) -> Response:
        """Return the page that shows an error."""
        if isinstance(error, DatabaseAway):
            problem = Problem(503, "unavailable", str(error))
        else:
            problem = problem_of(error)
        return self.render(
            "refusal.html",
            request,
            status=problem.status,
            title=TITLES.get(problem.code) or HTTPStatus(problem.status).phrase,
            is_passing=problem.status >= 500,
            detail=text.shortened(text.one_line(problem.detail), 500),
            viewer=None,
        )


@cache
def _environment() -> Environment:
    """Return the templates, which are compiled once in a process."""
    environment = Environment(
        loader=PackageLoader("syncline.api.dashboard", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    for module in (text, formats, charts):
        for name in vars(module):
            if not name.startswith("_") and callable(vars(module)[name]):
                environment.globals[name] = vars(module)[name]
    environment.globals |= {"navigation": NAVIGATION, "version": version("syncline")}
    environment.globals["change_text"] = change_text
    environment.globals |= {"provider_trouble": provider_trouble, "flood_trouble": flood_trouble}
    environment.globals["list_failures"] = list_failures
    environment.globals["floods_shown"] = FLOODS_SHOWN
    return environment


class PageRoute(ScopedRoute):
    """A route that shows errors as pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except SignInNeeded:
                raise
            except Exception as error:
                return dashboard_of(request).render_error(request, error)

        return answer


def dashboard_of(request: Request) -> Dashboard:
    dashboard: Dashboard = request.app.state.dashboard
    return dashboard


def dashboard_for_viewer(request: Request) -> Dashboard:
    """Return the dashboard for a request: what its forms change is done by the viewer."""
    dashboard = copy.copy(dashboard_of(request))
    dashboard.engine = engine_of(request)
    return dashboard


CurrentDashboard = Annotated[Dashboard, Depends(dashboard_for_viewer)]
"""The dashboard, in the signature of a route."""
