"""What every command needs: settings, connectors, an engine, and a clean end."""

import asyncio
import getpass
import os
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from syncline import eventloop
from syncline.cli.interrupts import Interrupted, Interrupts
from syncline.cli.output import say
from syncline.clock import pause
from syncline.errors import Refused, SettingsError
from syncline.text import one_line

if TYPE_CHECKING:  # imported by the commands that need them: the help stays quick
    from syncline.app import Engine
    from syncline.policy.audit import Actor
    from syncline.sdk.connector import Connector
    from syncline.settings import Settings

T = TypeVar("T")
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 5.0


@dataclass(frozen=True, slots=True)
class Session:
    """The global options of one invocation."""

    database_url: str | None = None
    schema: str | None = None
    connector_modules: tuple[str, ...] = ()
    log_level: str | None = None
    log_format: str = "text"

    def settings(self, **given: Any) -> "Settings":
        """Return the settings; options override the environment and the file."""
        from syncline.settings import Settings
        from syncline.settings.secret_files import ReadableByAll

        options = {"database_url": self.database_url, "schema": self.schema, **given}
        chosen = {name: value for name, value in options.items() if value is not None}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ReadableByAll)
            settings = Settings(**chosen)
        for warning in caught:
            say(f"syncline: {warning.message}")
        return settings

    def connectors(self, settings: "Settings") -> list["Connector"]:
        """Return the connectors of the modules named by the options and the settings."""
        modules = dict.fromkeys((*settings.connectors, *self.connector_modules))
        return [connector for module in modules for connector in _load(module)]

    @asynccontextmanager
    async def engine(
        self, settings: "Settings | None" = None, *, wait: bool = False
    ) -> AsyncIterator["Engine"]:
        """Open an engine and yield it; with `wait`, wait until the database can be reached."""
        from syncline.app import Engine

        chosen = settings or self.settings()
        engine = Engine(chosen, self.connectors(chosen))
        await (_enter_when_reachable(engine) if wait else engine.__aenter__())
        try:
            yield engine.acting_as(_user())
        finally:
            await engine.__aexit__(None, None, None)

    def call(self, work: Callable[["Engine"], Awaitable[T]]) -> T:
        """Open an engine, run the work on it, and return the result."""

        async def opened(_interrupts: Interrupts) -> T:
            async with self.engine() as engine:
                return await work(engine)

        with self.logs():
            return perform(opened)

    @contextmanager
    def logs(self, default_level: str | None = None) -> Iterator[None]:
        """Show logs on stderr inside the block, if a level is set or a default is given."""
        level = self.log_level or default_level
        if level is None:
            yield
            return
        from syncline.cli.logs import rendered_logs

        with rendered_logs(level=level, json=self.log_format == "json"):
            yield


def _user() -> "Actor":
    """Return the user of this machine who runs the command."""
    from syncline.policy.audit import Actor, ActorKind

    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user without a name
        name = f"uid {os.getuid()}"
    return Actor(ActorKind.COMMAND, name[:255])


async def _enter_when_reachable(engine: "Engine") -> None:
    """Open the engine once the database can be reached; say on stderr why it waits."""
    from syncline.services.availability import is_unreachable

    wait = FIRST_WAIT_SECONDS
    while True:
        try:
            await engine.__aenter__()
        except Exception as error:
            if not is_unreachable(error):
                raise
            reason = one_line(str(error)) or type(error).__name__
            say(f"syncline: waiting for the database: {reason}")
        else:
            return
        await pause(wait)
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)


def session_of(context: typer.Context) -> Session:
    session = context.find_object(Session)
    assert session is not None
    return session


def perform(work: Callable[[Interrupts], Coroutine[Any, Any, T]]) -> T:
    """Run the work to its end; a signal cancels it, so that it can clean up."""

    async def interruptible() -> T:
        task = asyncio.current_task()
        assert task is not None
        with Interrupts(react=task.cancel) as interrupts:
            try:
                return await work(interrupts)
            except asyncio.CancelledError:
                raise Interrupted from None

    return eventloop.run(interruptible())


def load_connector(name: str) -> "Connector":
    """Return an instance of the connector that MODULE:CLASS names."""
    from syncline.sdk.registry import connector_named

    _add_current_folder()
    try:
        return connector_named(name)
    except Refused as error:
        raise SettingsError(f"cannot load the connector {name!r}: {error}") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise SettingsError(f"cannot load the connector {name!r}: {reason}") from error


def _load(module: str) -> list["Connector"]:
    from syncline.sdk.registry import connectors_in

    _add_current_folder()
    try:
        found = connectors_in(module)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise SettingsError(f"cannot load the connectors of {module!r}: {reason}") from error
    if not found:
        raise SettingsError(f"the module {module!r} defines no connector")
    return found


def _add_current_folder() -> None:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # last, so that a file here never hides an installed package
