"""Real Postgres for every test: one server a session, one migrated database, emptied each time.

Scenarios and tests of the store run on the embedded server, and on the machine's own Postgres
where it has one. Scenarios run a third time, without the optional features of Postgres.
"""

import logging
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from support.databases import Databases, Mode, modes
from support.world import Logged, World, open_world
from syncline.testing.database import TemporaryServer

TESTS = Path(__file__).parent
SCENARIOS, STORE = TESTS / "scenarios", TESTS / "store"
MODES = modes()
EMBEDDED = MODES[0]

# The same examples at every run, however busy the machine: no property fails by chance.
hypothesis.settings.register_profile("steady", derandomize=True, deadline=None)
hypothesis.settings.load_profile("steady")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "engine(**settings): the settings of the world's engine")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    path = metafunc.definition.path
    if "mode" not in metafunc.fixturenames:
        return
    if path.is_relative_to(SCENARIOS):
        metafunc.parametrize("mode", MODES, ids=str, indirect=True)
    elif path.is_relative_to(STORE):  # `portable` changes no statement of the store
        on_each_server = [mode for mode in MODES if mode.is_citus or not mode.portable]
        metafunc.parametrize("mode", on_each_server, ids=str, indirect=True)


@pytest.fixture(scope="session", autouse=True)
def no_settings_from_outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the tests from whatever the shell or the home folder says about Syncline."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("SYNCLINE_"):
                patch.delenv(name)
        patch.setenv("SYNCLINE_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def databases(no_settings_from_outside: None) -> Iterator[Databases]:
    databases = Databases()
    yield databases
    databases.close()


@pytest.fixture(scope="session")
def server(databases: Databases) -> TemporaryServer:
    """The embedded Postgres of this test session."""
    return databases.server(EMBEDDED)


@pytest.fixture(scope="session")
def migrated_url(databases: Databases) -> str:
    """The embedded server's database with the schema, shared by the tests."""
    return databases.migrated_url(EMBEDDED)


@pytest.fixture
def mode(request: pytest.FixtureRequest) -> Mode:
    """How this test runs; embedded, unless its folder is one that runs in every mode."""
    mode: Mode = getattr(request, "param", EMBEDDED)
    if mode.skip_reason:
        pytest.skip(mode.skip_reason)
    return mode


@pytest.fixture
def database_url(databases: Databases, mode: Mode) -> str:
    """The mode's database, with the schema and without rows."""
    url = databases.migrated_url(mode)
    databases.empty(url)
    return url


@pytest.fixture
def engine_settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings of the world's engine: what the mark `engine` says, unless overridden."""
    marker = request.node.get_closest_marker("engine")
    return dict(marker.kwargs) if marker else {}


@pytest.fixture
async def world(
    database_url: str, mode: Mode, engine_settings: dict[str, Any]
) -> AsyncIterator[World]:
    async with open_world(database_url, **{"portable": mode.portable, **engine_settings}) as world:
        yield world


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Logged:
    """The fields of each log record of an event, by the name of the event."""
    caplog.set_level(logging.DEBUG, "syncline")
    return lambda event: [
        vars(record) for record in caplog.records if vars(record).get("event") == event
    ]
