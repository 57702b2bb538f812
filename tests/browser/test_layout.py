"""Every page at every width: nothing leaves its box, all is readable, and a keyboard suffices.

The pages show the longest texts and the largest numbers that the tables allow.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.conftest import watch
from browser.pages import OPEN, addresses
from support import extreme_data
from support.dashboard_browser import Dashboard, Visit
from support.extreme_data import Subjects
from syncline import Engine, Settings
from syncline.api.app import create_app
from syncline.api.dashboard.renderer import PageRoute
from syncline.testing.database import TemporaryServer

WIDTHS = (390, 768, 1280, 1440)
THEMES = ("light", "dark")
NOBODY = Subjects(extreme_data.NOBODY, extreme_data.NOBODY, extreme_data.NOBODY)
ROUTES = (*addresses(NOBODY), *OPEN)
AXE_PACKAGE = "axe-core@4"
AXE_WITHIN_SECONDS = 60
MOST = 60  # Tabs on a page: rows of a long table are alike
LAYOUT = (Path(__file__).parent / "layout.js").read_text("utf-8").partition("\n")[2].strip()


def ask(page: Any, question: str) -> Any:
    """Call a function of layout.js in the page."""
    return page.evaluate(f"{LAYOUT}.{question}()")


@pytest.fixture(scope="module")
def extreme(chromium: Any, server: TemporaryServer) -> Iterator[tuple[Dashboard, Subjects]]:
    url = server.create_database()
    with Dashboard(url, connections=250).open() as dashboard:
        yield dashboard, extreme_data.add(dashboard.sql)
    server.drop_database(url)


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, from npm's registry."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is missing, so axe-core cannot be installed")
    folder: Path = tmp_path_factory.mktemp("axe")
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", AXE_PACKAGE]
    try:
        subprocess.run(
            [*command, "--prefix", str(folder)],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=AXE_WITHIN_SECONDS,
        )
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"axe-core could not be installed: {type(error).__name__}")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


def visits(
    chromium: Any, extreme: tuple[Dashboard, Subjects], route: str, **window: Any
) -> Iterator[Visit]:
    """Yield a visit to each address of a route."""
    dashboard, seen = extreme
    for address in addresses(seen).get(route, (route,)):
        for visit in watch(chromium, dashboard, window):
            if route == "/workers":
                extreme_data.add_worker(dashboard.sql)
            visit.goto(address)
            yield visit


async def test_every_page_is_in_the_list(database_url: str) -> None:
    async with Engine(Settings(database_url=database_url)) as engine:
        await engine.migrate()
        app = create_app(engine)
        listed = {
            route.path
            for part in app.routes
            for route in getattr(getattr(part, "original_router", None), "routes", [part])
            if isinstance(route, PageRoute) and "GET" in (route.methods or ())
        }

    assert listed == set(addresses(NOBODY)), "add the page to tests/browser/pages.py"


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("route", ROUTES)
def test_nothing_leaves_its_box(
    chromium: Any, extreme: tuple[Dashboard, Subjects], route: str, theme: str
) -> None:
    for visit in visits(chromium, extreme, route, color_scheme=theme):
        for width in WIDTHS:
            visit.page.set_viewport_size({"width": width, "height": 900})
            assert ask(visit.page, "escapes") == [], f"{width} px wide"


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("route", ROUTES)
def test_axe_finds_nothing(
    chromium: Any, extreme: tuple[Dashboard, Subjects], axe: str, route: str, theme: str
) -> None:
    for visit in visits(chromium, extreme, route, color_scheme=theme):
        visit.page.evaluate(axe)  # a script element would break the policy of the page
        for width in (WIDTHS[0], WIDTHS[2]):
            visit.page.set_viewport_size({"width": width, "height": 900})
            found = visit.page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
            complaints = [
                (one["id"], node["html"][:200], node["failureSummary"][:300])
                for one in found
                for node in one["nodes"][:2]
            ]
            assert complaints == [], f"{width} px wide"


@pytest.mark.parametrize("route", ROUTES)
def test_a_keyboard_reaches_everything_and_shows_where_it_is(
    chromium: Any, extreme: tuple[Dashboard, Subjects], route: str
) -> None:
    for visit in visits(chromium, extreme, route, viewport={"width": 1280, "height": 900}):
        page = visit.page
        freeze(page)
        wanted = min(len(ask(page, "focusable")), MOST)
        reached = set()
        for _ in range(wanted + 2):
            page.keyboard.press("Tab")
            focused = ask(page, "focused")
            if focused["html"].startswith("<body"):
                continue  # between the last one and the first
            assert focused["isOutlined"], focused["html"]
            assert focused["isSeen"], focused["html"]
            reached.add(focused["place"])
        assert len(reached - {-1}) >= wanted - 1  # the login form has the focus from the start


@pytest.mark.parametrize("route", ROUTES)
def test_without_scripts_a_page_tells_the_same(
    chromium: Any, extreme: tuple[Dashboard, Subjects], route: str
) -> None:
    with_scripts = [ask(freeze(one.page), "said") for one in visits(chromium, extreme, route)]
    without = [
        ask(one.page, "said") for one in visits(chromium, extreme, route, java_script_enabled=False)
    ]

    for plain, scripted in zip(without, with_scripts, strict=True):
        assert set(plain) ^ set(scripted) == set()


def freeze(page: Any) -> Any:
    """Stop the live updates of a page."""
    live = page.locator("#live")
    if live.count() and live.is_visible():
        live.click()
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        page.evaluate("getSelection().removeAllRanges()")
    return page


@pytest.mark.window(viewport={"width": 1280, "height": 900})
def test_a_connection_is_added_and_edited_by_keyboard_alone(look: Visit) -> None:
    page = look.goto("/connections")

    def go_to(name: str) -> None:
        for _ in range(80):
            page.keyboard.press("Tab")
            if name in ask(page, "focused")["name"]:
                return
        raise AssertionError(f"no Tab leads to {name!r}")

    go_to("Add connection")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1 >> text=Add a connection")
    go_to("Another provider")
    page.keyboard.type("nobody")
    page.keyboard.press("Enter")
    page.wait_for_selector("form.form")
    go_to("Tenant")
    page.keyboard.type("keys")
    go_to("External id")
    page.keyboard.type("by-keyboard")
    go_to("Config")
    page.keyboard.type('{"a": 1}')
    go_to("Add it even if")
    page.keyboard.press("Space")
    go_to("Add connection")
    page.keyboard.press("Enter")
    page.wait_for_selector(".done >> text=queued to sync now")
    go_to("Edit")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1 >> text=Edit by-keyboard")
    go_to("Interval")
    page.keyboard.type("600")
    page.keyboard.press("Enter")
    page.wait_for_selector(".facts >> text=10 min")


@pytest.mark.window(java_script_enabled=False)
def test_a_wrong_field_keeps_what_was_typed_without_scripts(look: Visit) -> None:
    page = look.goto("/connections/new?provider=nobody&tenant=plain")
    page.fill("[name=external_id]", "typed-before")
    page.fill("[name=config]", "{oops")
    page.click("text=Add connection >> nth=-1")

    page.wait_for_selector(".wrong >> text=Is not JSON")
    assert page.input_value("[name=external_id]") == "typed-before"
    assert page.input_value("[name=config]") == "{oops"
    assert re.search("look", page.inner_text("[role=alert] h2"))
    look.complaints.clear()  # the browser reports the answer 422
