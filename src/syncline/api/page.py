"""The status page: made on the server, escaped throughout, without a script."""

import asyncio
from importlib.metadata import version

from jinja2 import Environment, PackageLoader

from syncline.api import wording
from syncline.engine.app import Engine
from syncline.model import ConnectionStatus
from syncline.store.status import Status

LINES = 12
REFRESH_SECONDS = 5
ANSWER_SECONDS = 5


class StatusPage:
    """Renders how one engine's database looks at this moment."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        environment = Environment(
            loader=PackageLoader("syncline.api", "assets"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        for function in (
            wording.ago,
            wording.until,
            wording.duration,
            wording.error_text,
            wording.reason_text,
            wording.one_line,
        ):
            environment.globals[function.__name__] = function
        self._template = environment.get_template("status.html")

    async def render(self) -> tuple[str, bool]:
        """Return the page, and whether the database answered."""
        status, problem = await self._look()
        ill = await self._engine.health() if status else {}
        return self._show(status, problem, ill), status is not None

    def render_problem(self, problem: str) -> str:
        """Return the page that says why there is nothing to be seen."""
        return self._show(None, wording.one_line(problem), {})

    def _show(self, status: Status | None, problem: str, ill: dict[str, str]) -> str:
        return self._template.render(
            status=status,
            problem=problem,
            ill=ill,
            statuses=list(ConnectionStatus),
            refresh_seconds=REFRESH_SECONDS,
            schema=self._engine.settings.schema,
            version=version("syncline"),
        )

    async def _look(self) -> tuple[Status | None, str]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._engine.status(limit=LINES), ""
        except Exception as error:
            return None, wording.one_line(f"{type(error).__name__}: {error}")
