"""The feed connector against a real HTTP server."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from syncline import Permanent, RateLimited, Signal, SyncError, Transient, Unauthorized
from syncline.connectors.feed.connector import Feed
from syncline.testing import TrialPage, take_pages
from syncline.testing.conformance import ConnectorConformance
from syncline.testing.trial import prepare_trial

NINE = datetime(2025, 1, 1, 9, tzinfo=UTC)


@dataclass
class Site:
    """The documents of the server by path, and the requests that it got."""

    address: str = ""
    documents: dict[str, bytes] = field(default_factory=dict)
    kind: str = "application/xml"
    failure: tuple[int, dict[str, str]] | None = None
    asked: list[tuple[str, int]] = field(default_factory=list)
    has_etags: bool = True

    def put(self, document: str | bytes, path: str = "/feed") -> str:
        text = document.encode() if isinstance(document, str) else document
        self.documents[path] = text
        return self.address + path


class Handler(BaseHTTPRequestHandler):
    site: Site

    def do_GET(self) -> None:
        if self.site.failure:
            self.answer(*self.site.failure, b'{"message": "not now"}')
            return
        document = self.site.documents.get(self.path)
        if document is None:
            self.answer(404, {}, b"")
            return
        etag = f'"{hashlib.sha256(document).hexdigest()[:12]}"'
        if self.site.has_etags and self.headers["If-None-Match"] == etag:
            self.answer(304, {"ETag": etag}, b"")
        else:
            headers = {"ETag": etag} if self.site.has_etags else {}
            self.answer(200, headers | {"Content-Type": self.site.kind}, document)

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.site.asked.append((self.path, status))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(ConnectionError):  # the client hangs up when a body is too large
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    handler = type("SiteHandler", (Handler,), {"site": site})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=partial(server.serve_forever, poll_interval=0.005))
        thread.start()
        site.address = f"http://127.0.0.1:{server.server_port}"
        yield site
        server.shutdown()
        thread.join()


def rss(*items: str, extra: str = "") -> str:
    return (
        '<?xml version="1.0"?><rss version="2.0"><channel><title>News</title>'
        f"<link>https://news.example</link>{extra}{''.join(items)}</channel></rss>"
    )


def item(number: int, title: str = "", body: str = "text") -> str:
    return (
        f"<item><guid>n-{number}</guid><title>{title or f'Item {number}'}</title>"
        f"<link>https://news.example/{number}</link><description>{body}</description>"
        f"<pubDate>Wed, 01 Jan 2025 {9 + number % 12:02}:00:00 GMT</pubDate></item>"
    )


async def read(url: str, cursor: Any = None, **config: Any) -> list[TrialPage]:
    return await take_pages(prepare_trial(Feed()), {"url": url, **config}, cursor=cursor)


async def follow(url: str, cursor: Any = None, **config: Any) -> tuple[list[Signal], Any]:
    pages = await read(url, cursor, **config)
    return [signal for page in pages for signal in page.signals], pages[-1].next_cursor


def titles(signals: list[Signal]) -> list[str]:
    return [signal.payload["title"] for signal in signals]


class TestConformance(ConnectorConformance):
    connector = Feed

    @pytest.fixture(autouse=True)
    def served(self, site: Site) -> None:
        url = site.put(rss(*(item(n) for n in range(7))))
        self.config = {"url": url, "page_size": 3}


async def test_an_entry_becomes_a_signal(site: Site) -> None:
    enclosure = '<enclosure url="https://news.example/1.mp3" type="audio/mpeg" length="9"/>'
    entry = item(0, "A &amp; B").replace("</item>", f"<category>tech</category>{enclosure}</item>")

    [signal], _ = await follow(site.put(rss(entry)))

    assert (signal.kind, signal.occurred_at) == ("entry_published", NINE)
    assert signal.dedupe_key is not None
    assert signal.dedupe_key.startswith("n-0#")
    assert signal.payload == {
        "id": "n-0",
        "title": "A & B",
        "link": "https://news.example/0",
        "author": None,
        "summary": "text",
        "content": "",
        "tags": ["tech"],
        "enclosures": [{"url": "https://news.example/1.mp3", "type": "audio/mpeg"}],
        "published_at": "2025-01-01T09:00:00+00:00",
        "updated_at": None,
        "feed": "News",
    }


async def test_atom_is_read_with_its_edits_and_relative_links(site: Site) -> None:
    url = site.put(
        '<feed xmlns="http://www.w3.org/2005/Atom"><title>Log</title><id>urn:x</id>'
        '<entry><id>urn:x:1</id><title>One</title><link href="/posts/1"/>'
        "<published>2025-01-01T09:00:00Z</published><updated>2025-01-02T10:00:00+02:00</updated>"
        "<author><name>Ada</name></author><content type='html'>&lt;p&gt;Hi&lt;/p&gt;</content>"
        "</entry></feed>"
    )

    [signal], _ = await follow(url)

    assert (signal.kind, signal.occurred_at) == (
        "entry_updated",
        datetime(2025, 1, 2, 8, tzinfo=UTC),
    )
    assert signal.payload["link"] == f"{site.address}/posts/1"
    assert (signal.payload["author"], signal.payload["content"]) == ("Ada", "<p>Hi</p>")


async def test_json_feed_is_read(site: Site) -> None:
    feed = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": "Notes",
        "items": [
            {
                "id": 7,
                "url": "https://notes.example/7",
                "content_text": "Hello",
                "date_published": "2025-01-01T10:00:00+01:00",
                "authors": [{"name": "Ada"}, {"name": "Grace"}],
                "attachments": [{"url": "https://notes.example/7.mp3", "mime_type": "audio/mpeg"}],
            }
        ],
    }

    [signal], _ = await follow(site.put("\ufeff" + json.dumps(feed)))

    assert (signal.kind, signal.occurred_at) == ("entry_published", NINE)
    assert (signal.payload["id"], signal.payload["author"]) == ("7", "Ada, Grace")
    assert (signal.payload["content"], signal.payload["feed"]) == ("Hello", "Notes")
    assert signal.payload["enclosures"][0]["type"] == "audio/mpeg"


async def test_an_unchanged_feed_costs_a_304(site: Site) -> None:
    url = site.put(rss(item(1)))
    _, cursor = await follow(url)

    again, unchanged = await follow(url, cursor)

    assert (again, unchanged) == ([], cursor)
    assert [status for _, status in site.asked] == [200, 304]


async def test_without_etags_the_same_entries_are_not_sent_again(site: Site) -> None:
    site.has_etags = False
    built = "<lastBuildDate>Wed, 01 Jan 2025 {}:00:00 GMT</lastBuildDate>"
    _, cursor = await follow(site.put(rss(item(1), extra=built.format("10"))))

    again, _ = await follow(site.put(rss(item(1), extra=built.format("11"))), cursor)

    assert again == []


async def test_a_new_entry_arrives_and_the_old_keep_their_keys(site: Site) -> None:
    before, cursor = await follow(site.put(rss(item(1), item(2))))

    after, _ = await follow(site.put(rss(item(3), item(1), item(2))), cursor)

    assert titles(after) == ["Item 3", "Item 1", "Item 2"]
    assert [signal.dedupe_key for signal in after[1:]] == [s.dedupe_key for s in before]


async def test_an_edited_entry_comes_again_under_another_key(site: Site) -> None:
    [first], cursor = await follow(site.put(rss(item(1, "Draft"))))

    [second], _ = await follow(site.put(rss(item(1, "Final"))), cursor)

    assert second.payload["id"] == first.payload["id"]
    assert second.payload["title"] == "Final"
    assert second.dedupe_key != first.dedupe_key


async def test_a_long_feed_is_fetched_once_and_comes_in_pages(site: Site) -> None:
    url = site.put(rss(*(item(n) for n in range(10))))

    pages = await read(url, page_size=4)

    assert [len(page.signals) for page in pages] == [4, 4, 2]
    assert len(site.asked) == 1


async def test_an_interrupted_read_continues_where_it_stopped(site: Site) -> None:
    url = site.put(rss(*(item(n) for n in range(10))))
    [first, *_] = await read(url, page_size=4)

    rest, cursor = await follow(url, first.next_cursor, page_size=4)

    assert titles(rest) == [f"Item {n}" for n in range(4, 10)]
    assert await follow(url, cursor, page_size=4) == ([], cursor)


async def test_a_feed_that_changed_during_an_interruption_is_read_again(site: Site) -> None:
    url = site.put(rss(*(item(n) for n in range(1, 10))))
    [first, *_] = await read(url, page_size=4)

    site.put(rss(*(item(n) for n in range(4, 12))))  # the old position would skip four
    rest, cursor = await follow(url, first.next_cursor, page_size=4)
    again, _ = await follow(url, cursor, page_size=4)

    assert titles(rest) == [f"Item {n}" for n in range(8, 12)]
    assert titles(again) == [f"Item {n}" for n in range(4, 12)]


async def test_entries_without_ids_or_dates_have_stable_keys(site: Site) -> None:
    url = site.put(
        rss("<item><title>Bare</title></item><item><link>https://x.example/</link></item>")
    )

    first, _ = await follow(url)
    second, _ = await follow(url)

    assert first == second
    assert [signal.occurred_at.year for signal in first] == [1970, 1970]
    assert len({signal.dedupe_key for signal in first}) == 2


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ((401, {}), Unauthorized),
        ((404, {}), Permanent),
        ((410, {}), Permanent),
        ((429, {"Retry-After": "33"}), RateLimited),
        ((500, {}), Transient),
        ((503, {"Retry-After": "33"}), RateLimited),
    ],
)
async def test_error_statuses_become_errors(
    failure: tuple[int, dict[str, str]], expected: type[SyncError], site: Site
) -> None:
    url = site.put(rss(item(1)))
    site.failure = failure

    with pytest.raises(expected) as caught:
        await read(url)

    assert caught.type is expected
    assert getattr(caught.value, "retry_after_seconds", 33) == 33


@pytest.mark.parametrize(
    "document",
    ["<html><title>Sign in</title></html>", "", '{"items": []}', "{", "\x89PNG"],
)
async def test_a_document_that_is_not_a_feed_is_permanent_first_and_transient_later(
    document: str, site: Site
) -> None:
    _, cursor = await follow(site.put(rss(item(1))))
    url = site.put(document)

    with pytest.raises(Permanent, match=r"config\.url"):
        await read(url)
    with pytest.raises(Transient, match=r"config\.url"):
        await read(url, cursor)


async def test_a_document_that_names_a_file_does_not_read_it(site: Site) -> None:
    url = site.put(__file__)

    with pytest.raises(Permanent) as caught:
        await read(url)

    assert "real HTTP server" not in caught.value.message


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "document",
    [
        # Entities that would grow to gigabytes.
        '<?xml version="1.0"?><!DOCTYPE r [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">'
        + "".join(
            f'<!ENTITY {chr(c)} "{f"&{chr(c - 1)};" * 8}">' for c in range(ord("c"), ord("q"))
        )
        + ']><rss version="2.0"><channel><item><guid>1</guid><title>&p;</title></item>'
        "</channel></rss>",
        # A file of this machine.
        '<?xml version="1.0"?><!DOCTYPE r [<!ENTITY f SYSTEM "file:///etc/passwd">]>'
        '<rss version="2.0"><channel><item><guid>1</guid><title>&f;</title></item></channel></rss>',
        # Deep nesting.
        '<rss version="2.0"><channel><item><guid>1</guid><title>t</title><description>'
        + "<div>" * 20_000
        + "</description></item></channel></rss>",
        # Characters that cannot be stored, and impossible dates.
        '{"version": "https://jsonfeed.org/version/1", "items": [{"id": "\\u0000\\ud800x", '
        '"title": "a\\u0000b", "date_published": "0001-01-01T00:00:00+14:00", "tags": [1, null]}]}',
        rss(item(1).replace("01 Jan 2025", "41 Jan 0000"), item(2, "x" * 5_000_000)),
    ],
    ids=["entities", "local file", "depth", "characters", "length"],
)
async def test_hostile_feeds_are_contained(document: str, site: Site) -> None:
    url = site.put(document)

    try:
        signals, _ = await follow(url)
    except SyncError:
        return

    for signal in signals:
        assert len(json.dumps(dict(signal.payload))) < 1_000_000
        assert "root:" not in signal.payload["title"]


async def test_a_feed_that_is_too_large_is_refused(site: Site) -> None:
    url = site.put(rss(item(1, body="x" * 20_000)))

    with pytest.raises(SyncError, match="10000"):
        await take_pages(prepare_trial(Feed(max_bytes=10_000)), {"url": url})


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({}, r"config\.url"),
        ({"url": "ftp://news.example"}, r"config\.url"),
        ({"url": "https://news.example", "page_size": 0}, r"config\.page_size"),
    ],
)
async def test_a_bad_config_names_its_field(config: dict[str, Any], named: str) -> None:
    with pytest.raises(Permanent, match=named):
        await take_pages(prepare_trial(Feed()), config)


@pytest.mark.parametrize("cursor", ["x", {"version": 1}, {"position": -1}, {"position": "1"}])
async def test_a_bad_cursor_is_refused(cursor: Any, site: Site) -> None:
    with pytest.raises(Permanent, match="cursor"):
        await read(site.put(rss(item(1))), cursor)
