"""A real Chromium, and a dashboard server with sample data for it to visit."""

import asyncio
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from support import sample_data
from syncline import Engine, Settings
from syncline.api.server import Listener, serving
from syncline.settings import ApiSettings

# Nothing but our pages is loaded, and nothing of its own is fetched.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
HEARTBEAT_SECONDS = 3.0


def find_chromium() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


class Dashboard:
    """The dashboard, served by a thread, on a database full of sample data."""

    def __init__(self, url: str, *, connections: int, **settings: Any) -> None:
        self.database_url = url
        self.url = ""
        self._connections = connections
        self._settings = settings
        self._engine: Engine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    def sql(self, statement: str, *arguments: Any) -> Any:
        """Run a statement in the server's loop."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(
            self._sql(statement, *arguments), self._loop
        ).result()

    def create_key(self, name: str) -> str:
        """Return a new operator's key."""
        assert self._loop is not None
        assert self._engine is not None
        making = self._engine.access.create_key(name)
        return asyncio.run_coroutine_threadsafe(making, self._loop).result()[1]

    async def _sql(self, statement: str, *arguments: Any) -> Any:
        session = await asyncpg.connect(self.database_url)
        try:
            return await session.fetch(statement.replace("{schema}", "syncline"), *arguments)
        finally:
            await session.close()

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._leave = asyncio.get_running_loop(), asyncio.Event()
        async with Engine(Settings(database_url=self.database_url, **self._settings)) as engine:
            self._engine = engine
            await engine.migrate()
            made = await sample_data.fill(self.database_url, count=self._connections)
            with closing(Listener(ApiSettings(port=0))) as listener:
                async with serving(engine, listener, page=True):
                    self.url = listener.url
                    self._ready.set()
                    await self._beat_until_left(made)

    async def _beat_until_left(self, made: sample_data.SampleData) -> None:
        assert self._leave is not None
        while not self._leave.is_set():
            with suppress(OSError, asyncpg.PostgresError):  # a test may have stopped Postgres
                session = await asyncpg.connect(self.database_url)
                try:
                    await sample_data.write_heartbeats(session, made)
                finally:
                    await session.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._leave.wait()

    @contextmanager
    def open(self) -> Iterator["Dashboard"]:
        thread = threading.Thread(target=self.run, name="dashboard")
        thread.start()
        self._ready.wait()
        try:
            if self._failure is not None:
                raise self._failure
            yield self
        finally:
            if self._loop is not None and self._leave is not None:
                self._loop.call_soon_threadsafe(self._leave.set)
            thread.join()


class Visit:
    """A page in the browser, and complaints: errors, warnings, requests to other hosts."""

    def __init__(self, page: Any, dashboard: Dashboard) -> None:
        self.page = page
        self.dashboard = dashboard
        self.complaints: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(f"page error: {error}"))
        page.on("request", self._on_request)

    def goto(self, path: str) -> Any:
        self.page.goto(self.dashboard.url + path)
        return self.page

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console: {message.text}")

    def _on_request(self, request: Any) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.dashboard.url).netloc:
            self.complaints.append(f"another host: {request.url}")
