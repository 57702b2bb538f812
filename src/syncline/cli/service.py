"""What `up` and `run` do: open the engine, serve HTTP beside it, and close both in order."""

import asyncio
import logging
import sys
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from syncline.api.server import Listener, serving
from syncline.app import Engine
from syncline.cli.demo import add_demo_connections, allow_repository
from syncline.cli.interrupts import Interrupts
from syncline.cli.otel import exported_spans
from syncline.cli.session import Session, perform
from syncline.cli.views.live import show
from syncline.engine.garbage_collector import RARE_COLLECTIONS
from syncline.errors import SettingsError
from syncline.home import resolve_home
from syncline.settings import Settings

LOG = logging.getLogger("syncline.http")
DEMO_TICK_SECONDS = 5  # with the default minute, a newcomer would see nothing happen


def run_headless(
    session: Session, settings: Settings, roles: "Roles", *, dashboard: bool, wait: bool
) -> bool:
    """Run the chosen roles until a signal; return whether the end was clean."""

    async def work(interrupts: Interrupts) -> bool:
        async with session.engine(settings, wait=wait) as engine:
            await engine.connections.list(limit=1)  # refuses a schema that does not fit
            async with serving(engine, listener, page=dashboard):
                interrupts.react = engine.stop
                LOG.info("serving %s", listener.url)
                with RARE_COLLECTIONS:  # this process is the engine's, though signals are ours
                    return await engine.run(
                        handle_signals=False, scheduler=roles.scheduler, executor=roles.executor
                    )

    with session.logs("info"), closing(Listener(settings.api)) as listener, exported_spans():
        return perform(work)


@dataclass(frozen=True, slots=True)
class Roles:
    """Which roles a process takes."""

    scheduler: bool
    executor: bool


def run_with_view(session: Session, settings: Settings, *, demo: bool, wait: bool) -> bool:
    """Run all roles until a signal, with a live view; return whether the end was clean."""
    if demo:
        settings = allow_repository(_with_short_tick(settings), Path.cwd())

    async def work(interrupts: Interrupts) -> bool:
        say(f"Starting on {_describe(settings)} …")
        async with session.engine(settings, wait=wait) as engine:
            await engine.migrate()
            for sentence in await add_demo_connections(engine, Path.cwd()) if demo else ():
                say(sentence)
            async with serving(engine, listener, page=True):
                return await _run_beside_view(engine, listener.url, session, interrupts)

    with closing(_listen(settings, or_anywhere=demo)) as listener, exported_spans():
        clean = perform(work)
    say(f"Stopped. The data stays in {_describe(settings)}.")
    return clean


async def _run_beside_view(
    engine: Engine, url: str, session: Session, interrupts: Interrupts
) -> bool:
    # Logs and a view that is redrawn would garble each other.
    is_live = sys.stdout.isatty() and session.log_level is None
    with session.logs("error"):
        view = asyncio.create_task(show(engine, url, live=is_live), name="syncline view")

        def stop() -> None:
            view.cancel()
            engine.stop()

        interrupts.react = stop
        try:
            with RARE_COLLECTIONS:
                return await engine.run(handle_signals=False)
        finally:
            view.cancel()
            with suppress(asyncio.CancelledError, OSError):  # the terminal may be gone
                await view


def say(sentence: str) -> None:
    with suppress(OSError):
        print(sentence, flush=True)


def _with_short_tick(settings: Settings) -> Settings:
    """Return the settings with a short tick, unless a tick interval is set."""
    if "tick_interval_seconds" in settings.scheduler.model_fields_set:
        return settings
    quick = {"tick_interval_seconds": DEMO_TICK_SECONDS}
    return settings.model_copy(update={"scheduler": settings.scheduler.model_copy(update=quick)})


def _listen(settings: Settings, *, or_anywhere: bool) -> Listener:
    """Bind the port; a demo without a chosen port may take any free one."""
    try:
        return Listener(settings.api)
    except SettingsError:
        if not or_anywhere or "port" in settings.api.model_fields_set:
            raise
    return Listener(settings.api.model_copy(update={"port": 0}))


def _describe(settings: Settings) -> str:
    """Return the database in words, without its password."""
    if settings.database_url is None:
        return f"the embedded Postgres in {resolve_home()}"
    parts = urlsplit(settings.database_url)
    return f"the database {parts.path.removeprefix('/')} on {parts.hostname or 'this machine'}"
