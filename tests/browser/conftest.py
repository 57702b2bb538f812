"""Chromium, and a house of 400 connections; where either is missing, the tests are skipped."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.browsing import FLAGS, House, Watched, find_chromium
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
def house(chromium: Any, server: TemporaryServer) -> Iterator[House]:
    url = server.create_database()
    with House(url, connections=CONNECTIONS).open() as house:
        yield house
    server.drop_database(url)


@pytest.fixture
def look(request: pytest.FixtureRequest, chromium: Any, house: House) -> Iterator[Watched]:
    """A fresh browser; the mark `window` gives it another size or colour scheme."""
    mark = request.node.get_closest_marker("window")
    yield from watch(chromium, house, mark.kwargs if mark else {})


@pytest.fixture
def look_guarded(chromium: Any, server: TemporaryServer) -> Iterator[Watched]:
    """A browser at a small house of its own, for which a key may be made."""
    url = server.create_database()
    with House(url, connections=250).open() as house:
        yield from watch(chromium, house, {})
    server.drop_database(url)


def watch(chromium: Any, house: House, window: dict[str, Any]) -> Iterator[Watched]:
    context = chromium.new_context(**window)
    context.set_default_timeout(WITHIN_MILLISECONDS)
    watched = Watched(context.new_page(), house)
    yield watched
    context.close()
    assert watched.complaints == []
