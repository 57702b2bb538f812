"""Chromium and a dashboard with 400 connections; without Chromium, the tests are skipped."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.dashboard_browser import FLAGS, Dashboard, Visit, find_chromium
from syncline.testing.database import TemporaryServer

CONNECTIONS = 400
WITHIN_MILLISECONDS = 10_000


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: make browser")
    path = find_chromium()
    if path is None:
        pytest.skip("no chromium was found on this machine")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def dashboard(chromium: Any, server: TemporaryServer) -> Iterator[Dashboard]:
    url = server.create_database()
    with Dashboard(url, connections=CONNECTIONS).open() as dashboard:
        yield dashboard
    server.drop_database(url)


@pytest.fixture
def look(request: pytest.FixtureRequest, chromium: Any, dashboard: Dashboard) -> Iterator[Visit]:
    """A fresh browser; the mark `window` gives it another size or colour scheme."""
    mark = request.node.get_closest_marker("window")
    yield from watch(chromium, dashboard, mark.kwargs if mark else {})


@pytest.fixture
def look_guarded(chromium: Any, server: TemporaryServer) -> Iterator[Visit]:
    """A browser with its own small dashboard, for tests that create a key."""
    url = server.create_database()
    with Dashboard(url, connections=250).open() as dashboard:
        yield from watch(chromium, dashboard, {})
    server.drop_database(url)


def watch(chromium: Any, dashboard: Dashboard, window: dict[str, Any]) -> Iterator[Visit]:
    context = chromium.new_context(**window)
    context.set_default_timeout(WITHIN_MILLISECONDS)
    watched = Visit(context.new_page(), dashboard)
    yield watched
    context.close()
    assert watched.complaints == []
