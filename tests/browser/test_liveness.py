"""An open page says whether what it shows is fresh, and recovers by itself (R3)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.dashboard_browser import Dashboard, Visit
from support.dashboard_process import DashboardProcess
from syncline.testing.database import TemporaryServer

SOON = 5_000  # milliseconds
TABS = 10


@pytest.fixture
def own_server() -> Iterator[TemporaryServer]:
    with TemporaryServer() as server:
        yield server


def state_is(page: Any, text: str, within: int = SOON) -> None:
    page.wait_for_function(
        "text => document.getElementById('live')?.innerText.startsWith(text)",
        arg=text,
        timeout=within,
    )


def test_a_page_says_so_while_nothing_can_be_read_and_recovers(
    chromium: Any, own_server: TemporaryServer
) -> None:
    url = own_server.create_database()
    with Dashboard(url, connections=20).open() as dashboard:
        context = chromium.new_context()
        page, late = context.new_page(), context.new_page()
        page.goto(dashboard.url)
        state_is(page, "Live")
        dashboard.sql("ALTER TABLE {schema}.connections RENAME TO away")  # every page fails

        state_is(page, "Stale for", within=SOON + 3000)  # counted from the last good answer
        late.goto(dashboard.url)
        assert "tries again by itself" in late.inner_text("main")

        dashboard.sql("ALTER TABLE {schema}.away RENAME TO connections")
        state_is(page, "Live")
        late.wait_for_selector("#t-connections", timeout=SOON)  # an error page comes back too
        context.close()


def test_postgres_stops_and_starts_under_an_open_page(
    chromium: Any, own_server: TemporaryServer
) -> None:
    url = own_server.create_database()
    with Dashboard(url, connections=20).open() as dashboard:
        context = chromium.new_context()
        page, late = context.new_page(), context.new_page()
        page.goto(dashboard.url)
        state_is(page, "Live")

        own_server.stop()
        state_is(page, "Stale for", within=SOON + 3000)  # counted from the last good answer
        late.goto(dashboard.url + "/providers")
        assert "tries again by itself" in late.inner_text("main")
        assert "Providers" in late.inner_text("header")

        own_server.start()
        state_is(page, "Live", within=2 * SOON)
        late.wait_for_selector("#providers", timeout=2 * SOON)
        state_is(late, "Live")
        context.close()


def test_the_server_is_restarted_under_an_open_page(
    chromium: Any, server: TemporaryServer, tmp_path: Path
) -> None:
    process = DashboardProcess(server.create_database(), tmp_path)
    context = chromium.new_context()
    try:
        page = context.new_page()
        page.goto(process.start())
        state_is(page, "Live")

        process.kill()
        state_is(page, "Offline")

        process.start()
        state_is(page, "Live", within=2 * SOON)
    finally:
        context.close()
        process.kill()


def test_a_page_without_its_server_is_offline_and_comes_back(look: Visit) -> None:
    page = look.goto("/")
    state_is(page, "Live")
    page.context.set_offline(True)
    state_is(page, "Offline")
    page.context.set_offline(False)
    state_is(page, "Live")
    look.complaints.clear()  # the browser reports requests that failed


def test_ten_tabs_are_all_alive(look: Visit) -> None:
    pages = [look.page.context.new_page() for _ in range(TABS)]
    for page in pages:
        page.goto(look.dashboard.url)
    for page in pages:
        page.bring_to_front()
        state_is(page, "Live")


def test_a_revoked_key_leads_to_the_login(look_guarded: Visit) -> None:
    secret = look_guarded.dashboard.create_key("ann")
    page = look_guarded.goto("/")
    page.fill("input[name=key]", secret)
    page.click("button[type=submit]")
    state_is(page, "Live")
    look_guarded.dashboard.sql("UPDATE {schema}.api_keys SET revoked_at = now()")
    page.wait_for_selector("input[name=key]", timeout=3 * SOON)


def test_a_page_that_wakes_up_says_how_old_it_is_until_it_is_fresh(look: Visit) -> None:
    look.page.clock.install()
    page = look.goto("/")
    state_is(page, "Live")
    held: list[Any] = []
    page.route("**/", lambda request: held.append(request))  # no answer yet

    page.clock.fast_forward("01:00:00")

    state_is(page, "Stale for 60 min")
    assert held
    for request in held:
        request.continue_()
    page.unroute("**/")
    page.clock.run_for(2500)
    state_is(page, "Live")


def test_a_page_that_slept_says_how_old_it_is(look: Visit) -> None:
    page = look.goto("/")
    page.clock.install()
    page.context.set_offline(True)
    page.clock.fast_forward("01:00:00")
    state_is(page, "Offline")
    page.context.set_offline(False)
    page.clock.run_for(4000)
    state_is(page, "Live")
    look.complaints.clear()
