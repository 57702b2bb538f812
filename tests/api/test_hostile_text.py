"""Whatever somebody wrote, in whichever field: it is text on every page, and never markup."""

import json
import re
from html.parser import HTMLParser
from uuid import uuid4

import httpx2
import pytest

from support.world import World

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    '"><script>alert(1)</script>',
    "'><img src=x onerror=alert(1)>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<body onload=alert(1)>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)' autofocus='",
    "` onclick=alert(1) `",
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)//",
    "data:text/html,<script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</pre></code><iframe src=//evil.example>",
    "</textarea><script>alert(1)</script>",
    "--><script>alert(1)</script><!--",
    "<!--<img src='--><img src=x onerror=alert(1)>'>",
    "<a href='javascript:alert(1)'>x</a>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "<base href=//evil.example>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<object data=javascript:alert(1)>",
    "{{ 7 * 1919191 }}{% for x in (1,) %}{% endfor %}",
    "&lt;script&gt;alert(1)&lt;/script&gt;&#60;img&#62;",
    "\u202e<input autofocus onfocus=alert(1)>\u2028\u0085<x>",
)
# Those that end an attribute or a tag; every page shows all of the others too.
ECHOED = HOSTILE[2:12]
TAGS = re.findall(
    r"\w+",
    """html head meta title link script body a header img b nav ul li div button span main footer
    h1 h2 h3 p section svg g rect table thead tbody tr th td small time code pre form input label
    select option datalist output dl dt dd details summary bdi fieldset legend textarea""",
)
OUR_SCRIPTS = {"/theme.js", "/dashboard.js"}
ADDRESSES = ("href", "src", "action", "srcdoc", "formaction", "data", "xlink:href")


class Inspector(HTMLParser):
    """Notes what a browser would do with a page beyond showing text."""

    def __init__(self) -> None:
        super().__init__()
        self.offences: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in TAGS:
            self.offences.append(f"<{tag}>")
        if tag == "script" and given.get("src") not in OUR_SCRIPTS:
            self.offences.append(f"a script of others: {attrs}")
        for name, value in attrs:
            if name.startswith("on") or name == "style":
                self.offences.append(f"{name}={value}")
            if name in ADDRESSES and not re.match(r"[/#](?!/)", value or ""):
                self.offences.append(f"{name}={value}")
        if tag == "meta" and "http-equiv" in given:
            self.offences.append("a meta refresh")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture
async def addresses(world: World) -> list[str]:
    """Every page there is, on a database where every text field is hostile."""
    found = ["/", "/connections", "/jobs", "/signals", "/providers", "/workers"]
    for text in HOSTILE:
        found += await fill_every_field(world, text)
    for text in ECHOED:
        found += searches_for(text)
    return [*found, "/connections?order=staleness", "/jobs?status=failed"]


async def fill_every_field(world: World, text: str) -> list[str]:
    now = world.clock()
    error = json.dumps({"class": text, "message": text, "details": {text: text}})
    connection = await world.engine.connections.create(
        tenant_id=text, provider_slug=text[:100], external_id=text, config={text: text}
    )
    await world.engine.connections.set_cursor(connection.id, {text: text})
    ended = await world.job(
        connection, status="failed", started_at=now, finished_at=now, error=error, cursor=f'"{1}"'
    )
    await world.job(connection, started_at=now, retry_after=now, attempts=2, error=error)
    await world.sql(
        "UPDATE {schema}.connections SET status = 'error', status_reason = $2 WHERE id = $1",
        *(connection.id, json.dumps({"why": text, "by": text, "since": text})),
    )
    await world.sql(
        "INSERT INTO {schema}.workers VALUES"
        " ($1, $2, 7, $2, ARRAY[$2], ARRAY[$2], 8, 3, false, $3, $3)",
        *(uuid4(), text, now),
    )
    [row] = await world.sql(
        "INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, job_id, kind,"
        " payload, dedupe_key, occurred_at, received_at)"
        " VALUES ($1, $1, $2, $3, $1, $4, $1, $5, $5) RETURNING id",
        *(text, connection.id, ended, json.dumps({text: [text]}), now),
    )
    return [
        f"/connections/{connection.id}",
        f"/connections/{connection.id}/edit",
        f"/connections/{connection.id}/reconnect",
        f"/jobs/{ended}",
        f"/signals?show={row['id']}",
    ]


def searches_for(text: str) -> list[str]:
    """Return pages that repeat a text of their address."""
    return [
        str(httpx2.URL("/connections", params={"q": text, "tenant": text, "order": "id"})),
        str(httpx2.URL("/signals", params={"kind": text, "provider": text})),
        str(httpx2.URL("/jobs", params={"tenant": text, "provider": text})),
        str(httpx2.URL("/connections", params={"status": text})),
        str(httpx2.URL("/connections/new", params={"provider": text, "tenant": text})),
    ]


async def test_no_field_makes_markup_on_any_page(
    addresses: list[str], local: httpx2.AsyncClient
) -> None:
    shown = ""
    for address in addresses:
        page = await local.get(address)
        assert page.status_code in (200, 422), (address, page.text)
        inspector = Inspector()
        inspector.feed(page.text)
        assert inspector.offences == [], address
        assert str(7 * 1919191) not in page.text
        shown += "".join(inspector.texts)

    for text in HOSTILE[:-1]:
        assert text in shown
    assert "\u202e" not in shown  # what would turn a line around is written out
    assert "\\u202e<input autofocus onfocus=alert(1)>" in shown


async def test_the_name_of_a_key_is_text_too(world: World, local: httpx2.AsyncClient) -> None:
    for text in ECHOED:
        _, secret = await world.engine.access.create_key(text)
        await local.post("/login", data={"key": secret})
        inspector = Inspector()
        inspector.feed((await local.get("/connections")).text)
        assert inspector.offences == []
