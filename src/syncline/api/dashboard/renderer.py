"""Renders templates, keeps what is costly for a moment, and turns refusals into pages."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from syncline import text
from syncline.api.auth import ScopedRoute
from syncline.api.dashboard import charts, formats
from syncline.api.login import DatabaseAway, SignInNeeded
from syncline.api.problems import Problem, problem_of
from syncline.app import Engine
from syncline.clock import monotonic
from syncline.policy.freshness import Freshness
from syncline.policy.stats import Minute, Overview, Providers

T = TypeVar("T")
OVERVIEW_KEPT_SECONDS = 1.5
FRESHNESS_KEPT_SECONDS = 10.0
PROVIDERS_KEPT_SECONDS = 3.0
TENANTS_KEPT_SECONDS = 30.0
TITLES = {
    "conflict": "That cannot be done",
    "csrf": "This form has expired",
    "internal": "Something went wrong here",
    "invalid": "That cannot be read",
    "not-found": "Not found",
    "operators-only": "For operators only",
    "too-slow": "That took too long",
    "unavailable": "The database does not answer",
}
NAVIGATION = (
    ("/", "Overview"),
    ("/connections", "Connections"),
    ("/jobs", "Jobs"),
    ("/signals", "Signals"),
    ("/providers", "Providers"),
    ("/workers", "Workers"),
)


class Kept(Generic[T]):
    """An answer that is asked for once in a while, however many look at it."""

    def __init__(self, read: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._found: tuple[float, T] | None = None
        self._turn = asyncio.Lock()

    async def get(self) -> T:
        async with self._turn:  # whoever comes meanwhile gets the same answer
            if self._found is None or monotonic() - self._found[0] >= self._seconds:
                self._found = (monotonic(), await self._read())
            return self._found[1]


class Views:
    """What the pages of one engine share."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.overview: Kept[Overview] = Kept(engine.stats.overview, OVERVIEW_KEPT_SECONDS)
        self.minutes: Kept[Sequence[Minute]] = Kept(engine.stats.minutes, OVERVIEW_KEPT_SECONDS)
        self.freshness: Kept[Freshness] = Kept(engine.stats.freshness, FRESHNESS_KEPT_SECONDS)
        self.providers: Kept[Providers] = Kept(engine.stats.providers, PROVIDERS_KEPT_SECONDS)
        self.tenants: Kept[list[str]] = Kept(engine.stats.tenants, TENANTS_KEPT_SECONDS)
        self._environment = Environment(
            loader=PackageLoader("syncline.api.dashboard", "templates"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
        )
        for module in (text, formats, charts):
            for name in vars(module):
                if not name.startswith("_") and callable(vars(module)[name]):
                    self._environment.globals[name] = vars(module)[name]
        self._environment.globals |= {"navigation": NAVIGATION, "version": version("syncline")}

    async def providers_known(self) -> list[str]:
        """Return the providers to choose from."""
        return [provider.provider_slug for provider in (await self.providers.get()).items]

    def page(
        self, template: str, request: Request, *, status: int = 200, **values: Any
    ) -> Response:
        """Return a page made from a template."""
        html = self._environment.get_template(template).render(
            path=request.url.path, schema=self.engine.settings.schema, **values
        )
        return HTMLResponse(html, status_code=status)

    def refusal(self, request: Request, error: Exception) -> Response:
        """Return the page that says why there is no other one."""
        if isinstance(error, DatabaseAway):
            problem = Problem(503, "unavailable", str(error))
        else:
            problem = problem_of(error)
        return self.page(
            "refusal.html",
            request,
            status=problem.status,
            title=TITLES.get(problem.slug) or HTTPStatus(problem.status).phrase,
            detail=text.shortened(text.one_line(problem.detail), 500),
            viewer=None,
        )


class PageRoute(ScopedRoute):
    """A route whose refusals are pages too."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except SignInNeeded:
                raise
            except Exception as error:
                return views_of(request).refusal(request, error)

        return answer


def views_of(request: Request) -> Views:
    views: Views = request.app.state.views
    return views


Shown = Annotated[Views, Depends(views_of)]
"""What the pages share, in the signature of a route."""
