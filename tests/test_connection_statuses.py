"""A status of a connection must be known in many places; each test names those of one kind."""

import re
from pathlib import Path

import asyncpg
import pytest

from support.http import client_of
from support.world import World
from syncline.cli.output import COLOURS
from syncline.model import ConnectionStatus
from syncline.policy.evidence import Reason

ROOT = Path(__file__).parents[1]
STYLE = (ROOT / "src/syncline/api/assets/style.css").read_text("utf-8")
LISTS = {
    "docs/spec/data.md": "| `status` | `active`",
    "docs/reference/schema.md": "| `status` | text | `active`",
    "docs/reference/cli.md": "| `--status` | Only in this status: `active`",
}
ADVICE = ("docs/guide/explain.md", "docs/guide/operating.md")


@pytest.mark.parametrize("status", ConnectionStatus)
async def test_it_can_be_stored_explained_counted_and_shown(
    world: World, status: ConnectionStatus
) -> None:
    connection = await world.connection(status=status)
    reason = (await world.engine.explain(connection.id)).reason
    overview = await world.engine.stats.overview()
    of_tenant = await world.engine.stats.overview(tenant_id="acme")

    async with client_of(world.engine) as browser:
        paths = ("/", f"/connections?status={status}", f"/connections/{connection.id}")
        pages = [await browser.get(path) for path in paths]

    assert status == ConnectionStatus.ACTIVE or reason == status.value
    assert overview.counts.by_status[status].count == 1
    assert of_tenant.counts.by_status[status].count == 1
    assert [page.status_code for page in pages] == [200, 200, 200]
    assert all(f'class="badge is-{status}"' in page.text for page in pages)


async def test_the_database_knows_no_other(world: World) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await world.connection(status="unheard_of")


@pytest.mark.parametrize("status", ConnectionStatus)
def test_it_has_a_colour_in_the_terminal_and_on_the_pages(status: ConnectionStatus) -> None:
    selectors = set(re.findall(r"\.[a-z_.-]+", STYLE))

    assert status in COLOURS
    assert f".c-{status}" in selectors
    assert not selectors.isdisjoint((f".is-{status}", f".badge.is-{status}"))
    assert status == ConnectionStatus.ACTIVE or f".why.is-{status}" in selectors


@pytest.mark.parametrize("page", LISTS)
def test_the_pages_that_list_statuses_are_complete(page: str) -> None:
    (line,) = [
        line for line in (ROOT / page).read_text("utf-8").splitlines() if LISTS[page] in line
    ]

    assert [status for status in ConnectionStatus if f"`{status}`" not in line] == []


@pytest.mark.parametrize("page", ADVICE)
def test_the_guides_say_what_to_do_for_each_reason(page: str) -> None:
    first_cells = re.findall(r"^\| (.*?) \|", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    named = {word for cell in first_cells for word in re.findall("`([a-z_]+)`", cell)}

    assert [reason for reason in Reason if reason not in named] == []
