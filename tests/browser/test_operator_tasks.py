"""What an operator wants to know or do, from the overview on, in at most four clicks each.

`tests/api/test_operator_tasks.py` and `tests/cli/test_operator_tasks.py` do the same elsewhere.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from support.dashboard_browser import Dashboard, Visit
from support.operator import Operator
from support.operator_tasks import FAILED_JOB, FRUITFUL_JOB, STATEMENTS
from syncline.keyring import new_key
from syncline.testing.database import TemporaryServer

CONNECTIONS = 300


@pytest.fixture(scope="module")
def site(chromium: Any, server: TemporaryServer) -> Iterator[Dashboard]:
    url = server.create_database()
    with Dashboard(url, connections=CONNECTIONS, secret_keys=new_key("k1")).open() as dashboard:
        for statement in STATEMENTS:
            dashboard.sql(statement)
        yield dashboard
    server.drop_database(url)


@pytest.fixture
def operator(chromium: Any, site: Dashboard) -> Iterator[Operator]:
    context = chromium.new_context()
    context.set_default_timeout(15_000)
    visit = Visit(context.new_page(), site)
    yield Operator(visit.page, site.url)
    context.close()
    assert visit.complaints == []


def test_why_does_it_not_sync(operator: Operator) -> None:
    operator.search("acme/revoked")
    operator.click("main a[href^='/connections/']")
    operator.reads("needs_reauth", "the grant was revoked", within="#why")


def test_which_provider_fails_since_when_and_whom(operator: Operator) -> None:
    operator.reads("mailbox does not answer since", "connections of", "tenants wait")


def test_retry_all_failures_of_a_provider(operator: Operator, site: Dashboard) -> None:
    operator.follow("Providers", "nav")
    operator.click("a[href='/jobs?provider=github&status=failed']")
    operator.follow("Retry…")
    operator.click("#confirm button")
    operator.reads("begun", within="#progress")
    [action] = site.sql("SELECT * FROM {schema}.bulk_actions")
    assert action["action"] == "retry"


def test_pause_a_tenant(operator: Operator, site: Dashboard) -> None:
    operator.follow("Connections", "nav")
    operator.type("form.filters [name=tenant]", "bluebird")
    operator.follow("Apply", "form.filters")
    operator.follow("Pause this tenant")
    operator.reads("Paused", "None of its jobs start")
    [paused] = site.sql("SELECT * FROM {schema}.tenant_pauses")
    assert paused["tenant_id"] == "bluebird"


def test_what_a_run_brought(operator: Operator) -> None:
    operator.follow("Jobs", "nav")
    operator.follow("succeeded", ".chips")
    operator.click(f"#rows a[href='/jobs/{FRUITFUL_JOB}']")
    operator.click(".facts a[href^='/signals?job=']")
    operator.reads("release_published", within="#rows")


def test_the_slowest(operator: Operator) -> None:
    operator.follow("Jobs", "nav")
    operator.follow("Slowest of the last day")
    operator.reads("acme/odd", "59 min", within="#rows tbody tr")


def test_who_changed_it(operator: Operator, site: Dashboard) -> None:
    operator.search("acme/waits")
    operator.click("main a[href^='/connections/']")
    operator.follow("Pause", ".actions")
    operator.follow("All changes of this connection")
    operator.reads("paused", "acme/waits")
    operator = Operator(operator.page, site.url)
    operator.follow("Audit", "nav")
    operator.reads("acme/waits")


def test_add_a_connection(operator: Operator, site: Dashboard) -> None:
    operator.follow("Connections", "nav")
    operator.follow("Add connection")
    operator.click("main a[href*='provider=demo']")
    operator.type("[name=tenant_id]", "acme")
    operator.type("[name=external_id]", "bakery")
    operator.follow("Add connection", "form")
    operator.reads("bakery")
    [row] = site.sql("SELECT status FROM {schema}.connections WHERE external_id = 'bakery'")
    assert row["status"] == "active"


def test_reconnect(operator: Operator, site: Dashboard) -> None:
    site.sql(
        "INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id, status)"
        " VALUES ('acme', 'github', 'acme/reconnected', 'needs_reauth')"
    )
    operator.search("acme/reconnected")
    operator.click("main a[href^='/connections/']")
    operator.follow("Reconnect", ".actions")
    operator.type("form.form input[type=password]", "a new token")
    operator.follow("Reconnect", "form.form")
    operator.reads("active", within="#status")


def test_change_an_interval(operator: Operator) -> None:
    operator.search("acme/odd")
    operator.click("main a[href^='/connections/']")
    operator.type("#seconds", "300")
    operator.follow("Set", ".interval")
    operator.reads("5 min", within="#why")


def test_how_much_of_a_quota_is_used(operator: Operator) -> None:
    operator.follow("Providers", "nav")
    operator.reads("Budget github:", "5,000 calls in 1 h")


def test_the_load_of_workers(operator: Operator) -> None:
    operator.follow("Workers", "nav")
    operator.reads("sync-1.eu", "9 / 64")


def test_the_log_and_the_calls_of_a_run(operator: Operator) -> None:
    operator.follow("Jobs", "nav")
    operator.follow("failed", ".chips")
    operator.click(f"#rows a[href='/jobs/{FAILED_JOB}']")
    operator.reads("the repository is gone", "in github.py, line 7")
    operator.reads("GET", "https://api.example.com/repos", "410", "123 ms", within=".calls")


def test_the_backlog_of_a_day(operator: Operator) -> None:
    operator.follow("24h", ".periods")
    operator.reads("now", within="section.chart:has(#c-backlog)")
    chart = operator.page.locator("section.chart:has(#c-backlog)").text_content()
    assert "4,321 due" in chart
