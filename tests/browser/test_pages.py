"""Every page in a real Chromium: the actions of an operator, without errors in the console."""

import json
import re
from typing import Any
from uuid import UUID, uuid4

import pytest

from support.dashboard_browser import Visit

PAGES = ("/", "/connections", "/jobs", "/signals", "/providers", "/workers")
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
HOSTILE = """<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>"""


def add(look: Visit, external_id: str, *, tenant: str = "zebra") -> UUID:
    id_ = uuid4()
    look.dashboard.sql(
        "INSERT INTO {schema}.connections (id, tenant_id, provider_slug, external_id)"
        " VALUES ($1, $2, 'github', $3)",
        *(id_, tenant, external_id),
    )
    return id_


def status_of(look: Visit, id_: UUID) -> str:
    [row] = look.dashboard.sql("SELECT status FROM {schema}.connections WHERE id = $1", id_)
    return str(row["status"])


def names(page: Any) -> list[str]:
    return sorted(page.locator("#rows a.name").all_inner_texts())


@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens_and_can_be_reached_by_keyboard(look: Visit, path: str) -> None:
    page = look.goto(path)

    assert page.locator("nav a[aria-current=page]").count() == 1
    assert page.locator("h1").count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    unnamed = page.evaluate(
        """[...document.querySelectorAll('input:not([type=hidden]), select')]
           .filter((field) => !field.labels.length && !field.ariaLabel).length"""
    )
    assert unnamed == 0


@pytest.mark.parametrize("path", PAGES)
def test_every_link_of_the_navigation_leads_somewhere(look: Visit, path: str) -> None:
    page = look.goto("/workers" if path == "/" else "/")

    page.click(f'nav[aria-label=Pages] a[href="{path}"]')

    page.wait_for_url(look.dashboard.url + path)


def test_connections_are_searched_and_filtered(look: Visit) -> None:
    add(look, "needle-1")
    add(look, "needle-2", tenant="yak")
    page = look.goto("/connections")

    page.fill(".filters input[name=q]", "needle")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("q=needle"))
    assert names(page) == ["needle-1", "needle-2"]

    page.fill("input[name=tenant]", "yak")
    page.click("text=Apply")
    page.wait_for_url(re.compile("tenant=yak"))
    assert names(page) == ["needle-2"]

    page.goto(look.dashboard.url + "/connections")
    page.click(".chips a:has-text('paused')")
    page.wait_for_url(re.compile("status=paused"))
    assert set(page.locator("#rows .badge").all_inner_texts()) == {"paused"}


def test_many_connections_are_selected_paused_and_resumed(look: Visit) -> None:
    chosen = [add(look, f"herd-{number}") for number in range(3)]
    page = look.goto("/connections?q=herd")

    assert page.locator("button[value=pause]").is_disabled()
    page.check("[data-all]")
    assert page.inner_text("[data-chosen]") == "3 selected"
    page.click("button[value=pause]")
    page.wait_for_selector(".done >> text=3 connections are paused.")
    assert {status_of(look, id_) for id_ in chosen} == {"paused"}

    page.locator("input[name=ids]").nth(1).check()
    page.click("button[value=resume]")
    page.wait_for_selector(".done >> text=1 connection is active again.")
    assert sorted(status_of(look, id_) for id_ in chosen) == ["active", "paused", "paused"]


def test_a_connection_is_synced_paused_resumed_and_slowed(look: Visit) -> None:
    id_ = add(look, "one-of-a-kind")
    page = look.goto(f"/connections/{id_}")

    page.click("text=Sync now")
    page.wait_for_selector(".done >> text=is queued to sync now")
    assert "Job" in page.inner_text("#why")
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("text=Full resync")
    page.wait_for_selector(".done >> text=full resync")
    page.fill("#seconds", "600")
    page.click("text=Set")
    page.wait_for_selector(".facts >> text=10 min")
    page.click("button:has-text('Pause')")
    page.wait_for_selector("#status >> text=paused")
    assert "paused on the dashboard" in page.inner_text(".why")
    page.click("button:has-text('Resume')")
    page.wait_for_selector("#status >> text=active")


def test_an_open_page_shows_changes(look: Visit) -> None:
    id_ = add(look, "watched")
    page = look.goto(f"/connections/{id_}")
    page.evaluate("window.untouched = true")

    look.dashboard.sql(
        "UPDATE {schema}.connections SET status = 'needs_reauth', status_reason = $2 WHERE id = $1",
        *(id_, json.dumps({"why": "the grant was revoked"})),
    )

    page.wait_for_selector("#why >> text=the grant was revoked")
    assert page.evaluate("window.untouched")


def test_the_overview_updates_and_can_be_paused(look: Visit) -> None:
    page = look.goto("/")
    total = int(page.inner_text("#t-connections + .big").replace(",", ""))

    add(look, "newcomer")
    page.wait_for_selector(f"#t-connections + .big >> text={total + 1}")

    page.click("#live")
    assert page.get_attribute("#live", "aria-pressed") == "false"
    assert page.inner_text("#live") == "Paused"


def test_a_selection_survives_a_live_update(look: Visit) -> None:
    id_ = add(look, "chosen-one")
    page = look.goto("/connections?q=chosen-one")
    page.check("input[name=ids]")

    look.dashboard.sql("UPDATE {schema}.connections SET status = 'paused' WHERE id = $1", id_)
    for _ in range(2):  # the page asks again only after it has used the first answer
        with page.expect_request(lambda request: "chosen-one" in request.url):
            pass

    assert page.is_checked("input[name=ids]")


@pytest.mark.window(color_scheme="dark")
def test_dark_mode_follows_the_system_and_the_users_choice(look: Visit) -> None:
    page = look.goto("/")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    assert max(int(part) for part in re.findall(r"\d+", dark)[:3]) < 40

    page.click("#theme")  # always dark
    page.click("#theme")
    assert page.inner_text("#theme") == "Light"
    page.reload()
    light = page.evaluate(paper)
    assert min(int(part) for part in re.findall(r"\d+", light)[:3]) > 200


@pytest.mark.window(**PHONE)
@pytest.mark.parametrize("path", PAGES)
def test_a_phone_shows_every_page_without_scrolling_sideways(look: Visit, path: str) -> None:
    page = look.goto(path)

    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    small = page.evaluate(
        """[...document.querySelectorAll('main button')]
           .filter((one) => one.checkVisibility() && one.offsetHeight < 24).length"""
    )
    assert small == 0


@pytest.mark.window(**PHONE)
def test_a_phone_shows_a_connection(look: Visit) -> None:
    page = look.goto(f"/connections/{add(look, 'a-rather-long-name-' * 8)}")

    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.window(java_script_enabled=False)
def test_everything_works_without_scripts(look: Visit) -> None:
    id_ = add(look, "plain")
    page = look.goto("/connections?q=plain")
    page.check("input[name=ids]")
    page.click("button[value=pause]")
    page.wait_for_selector(".done >> text=1 connection is paused.")

    assert status_of(look, id_) == "paused"


def test_a_hostile_payload_is_shown_as_text(look: Visit) -> None:
    id_ = add(look, HOSTILE)
    [row] = look.dashboard.sql(
        "INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, kind, payload)"
        " VALUES ('zebra', 'github', $1, $2, $3) RETURNING id",
        *(id_, HOSTILE, json.dumps({HOSTILE: HOSTILE})),
    )

    for path in (f"/signals?show={row['id']}", f"/connections/{id_}", "/connections?q=<img"):
        page = look.goto(path)  # until `load`, which comes after errors of images
        assert HOSTILE in page.inner_text("main")
        assert page.title() != "owned"
        assert page.locator("img:not([src='/icon.svg'])").count() == 0


def test_jobs_and_signals_lead_to_each_other(look: Visit) -> None:
    page = look.goto("/jobs?status=failed")
    page.locator("#rows a[href^='/jobs/']").first.click()
    page.wait_for_url(re.compile("/jobs/"))
    assert page.locator("pre.json").count() >= 1

    page.goto(look.dashboard.url + "/signals")
    page.locator("#rows a[href*='show=']").first.click()
    page.wait_for_selector("#payload pre.json")
    page.click("#payload a[href^='/connections/']")
    page.wait_for_selector("#h-why")


def test_an_operator_signs_in_acts_and_signs_out(look_guarded: Visit) -> None:
    look = look_guarded
    id_ = add(look, "guarded")
    secret = look.dashboard.create_key("ann")
    page = look.goto("/connections?q=guarded")
    assert page.title() == "Sign in · Syncline"
    page.fill("#key", secret)
    page.keyboard.press("Enter")
    page.wait_for_selector("#bulk")
    page.goto(f"{look.dashboard.url}/connections/{id_}")
    page.click("button:has-text('Pause')")
    page.wait_for_selector("#status >> text=paused")
    assert "by ann" in page.inner_text(".why")
    page.click("text=Sign out")
    page.wait_for_selector("#key")
