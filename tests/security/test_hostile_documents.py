"""Whatever a provider answers, the loop is not held for longer than 250 ms."""

import gc
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.httpserver import HttpServer, Reply, http_server
from support.loop_hold import watched_loop
from support.runs import make_run
from syncline import Signal, SyncError, SyncResult, Transient
from syncline.children import parsers
from syncline.children.parsers import PARSERS, ParserFailed, Parsers
from syncline.children.process import PASSED_ON
from syncline.connectors.caldav.connector import CalDav
from syncline.connectors.feed.connector import Feed
from syncline.connectors.feed.documents import PARSE_FEED
from syncline.connectors.foreign.pages import parse_line
from syncline.connectors.github import GitHub
from syncline.connectors.imap.connector import _envelope as read_envelope
from syncline.connectors.matrix import Matrix
from syncline.connectors.rest.connector import Rest
from syncline.engine.secrets.vault import without_secrets
from syncline.engine.worker.attempt import PageChecker
from syncline.errors import ContractError
from syncline.http import HttpClient, HttpEnvironment
from syncline.http.credentials import Credentials
from syncline.redaction import LONGEST_TEXT
from syncline.sdk.connector import Connector
from syncline.settings import ExecutorSettings
from syncline.testing.trial import prepare_trial, trial_connection

LONGEST_HOLD = 0.25
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENVELOPE = ("message_id", "in_reply_to", "date", "from_", "to", "cc", "sender", "reply_to", "bcc")
RECORD = '{"id": %d, "at": "2026-01-01T00:00:00Z", "content": {"n": [1, 2]}}'
ITEM = "<item><guid>%d</guid><title>t</title></item>"
LAUGHS = (
    '<!DOCTYPE a [<!ENTITY a0 "ha">'
    + "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(12))
    + ']><rss version="2.0"><channel><title>&a12;</title></channel></rss>'
)
MULTISTATUS = '<multistatus xmlns="DAV:">%s<sync-token>t</sync-token></multistatus>'
RESPONSE = (
    "<response><href>/%d</href><propstat><prop><getetag>x</getetag></prop></propstat></response>"
)


def rss(inside: str) -> str:
    return f'<rss version="2.0"><channel><title>x</title>{inside}</channel></rss>'


COMMENTS = rss(f"<item><description><![CDATA[{'<!--' * 90_000}]]></description></item>")


def rest(url: str) -> tuple[Connector, dict[str, Any]]:
    return Rest(), {
        "base_url": url, "path": "x", "records": "", "kind": "note", "time": "at", "id": "id",
        "pagination": {"style": "link"},
    }  # fmt: skip


def feed(url: str) -> tuple[Connector, dict[str, Any]]:
    return Feed(), {"url": f"{url}/feed"}


def caldav(url: str) -> tuple[Connector, dict[str, Any]]:
    return CalDav(), {"url": f"{url}/calendar/"}


def github(url: str) -> tuple[Connector, dict[str, Any]]:
    return GitHub(), {"base_url": url, "repositories": ["a/b"], "include": ["comments"]}


def matrix(url: str) -> tuple[Connector, dict[str, Any]]:
    return Matrix(), {"base_url": url}


def sync_of(events: str) -> str:
    room = '{"timeline":{"events":[' + events + "]}}"
    return '{"next_batch":"x","rooms":{"join":{"!r":' + room + "}}}"


EVENT = '{"event_id":"%d","type":"m","origin_server_ts":1,"content":{}}'
COMMENT = '{"id":%d,"updated_at":"2026-01-01T00:00:00Z"}'
SEPARATOR = '","'
LARGE = '{"id":1,"at":"2026-01-01T00:00:00Z","a":["%s"]}'


def many(text: str, count: int) -> str:
    return ",".join(text % number for number in range(count))


# What is served, to which connector, and a word of what it says to that.
HOSTILE: dict[str, tuple[Any, Any, str]] = {
    "lists without end": (rest, lambda: f"[{'[],' * 21_000_000}[]]", "http.max_json_values"),
    "lists within the bound": (rest, lambda: f"[{'[],' * 480_000}[]]", "no list of objects"),
    "a float of 10 million digits": (rest, lambda: f"[1.{'1' * 10_000_000}]", "a number of"),
    "an integer of 10 million digits": (rest, lambda: f"[{'1' * 10_000_000}]", "a number of"),
    "nested a million deep": (rest, lambda: "[" * 1_000_000, "nested deeper than 64"),
    "nested deep and small": (rest, lambda: "[" * 60_000, "nested deeper than 64"),
    "a string of 60 MB": (rest, lambda: f'["{"a" * 60_000_000}"]', "a string of"),
    "15 MB of escapes": (rest, lambda: '["' + "\\n" * 7_900_000 + '"]', "no list of objects"),
    "60 MB of blanks": (rest, lambda: f"[{' ' * 60_000_000}]", "blanks in a row"),
    "450,000 keys": (rest, lambda: "{" + many('"%d":1', 450_000) + "}", "no list of objects"),
    "30,000 records": (rest, lambda: f"[{many(RECORD, 30_000)}]", "30000 signals"),
    "a record of 56 MB": (
        rest,
        lambda: f"[{LARGE % SEPARATOR.join(['é' * 7_000_000] * 4)}]",
        "limit",
    ),
    "30,000 comments": (github, lambda: f"[{many(COMMENT, 30_000)}]", "30000 signals"),
    "30,000 events": (matrix, lambda: sync_of(many(EVENT, 30_000)), "30000 signals"),
    "comments in an entry": (feed, lambda: COMMENTS, "took longer than 4 s"),
    "a laughing feed": (feed, lambda: LAUGHS, "0 signals"),
    "a title of 15 MB": (feed, lambda: rss(f"<item><title>{'a' * 15_000_000}</title></item>"), ""),
    "10,000 entries": (
        feed,
        lambda: rss("".join(ITEM % n for n in range(10_000))),
        "signals|longer",
    ),
    "elements nested deep": (feed, lambda: rss("<a>" * 300_000), ""),
    "JSON feed of lists": (feed, lambda: '{"a":[' + "[]," * 5_000_000 + "[]]}", "feed"),
    "5 million elements": (caldav, lambda: MULTISTATUS % ("<a/>" * 5_000_000), ""),
    "20,000 changes": (caldav, lambda: MULTISTATUS % changes(20_000), "signals|longer"),
    "a laughing calendar": (caldav, lambda: LAUGHS, "entities"),
}


def changes(count: int) -> str:
    return "".join(RESPONSE % number for number in range(count))


LIMITS = ExecutorSettings().page_limits


@asynccontextmanager
async def serving(body: bytes) -> AsyncIterator[HttpServer]:
    reply = Reply(200, body, {"content-type": "text/plain", "content-encoding": "gzip"})
    async with http_server(lambda _: reply) as server:
        yield server


async def outcome(connector: Connector, config: dict[str, Any]) -> str:
    """Run a connector as an engine does, for a few pages; return what it said."""
    connection = trial_connection(prepare_trial(connector), config)
    checker = PageChecker(LIMITS)
    run, cursor, count = make_run(), None, 0
    try:
        results: Any = connector.sync(connection, cursor)
        async with aclosing(results):
            async for result in results:
                page = await checker.check(result, cursor, run)
                count += page.signal_count
                if page.next_cursor is not None:
                    cursor = json.loads(page.next_cursor)
                if count > 300:
                    break
    except SyncError as error:
        return f"{type(error).__name__}: {error}"
    except ContractError as error:
        return str(error)
    return f"{count} signals"


@pytest.fixture
def short_deadline() -> Iterator[None]:
    """Let a document have 4 s, so that the one that never ends does not take 30."""
    PARSERS.seconds = 4
    yield
    PARSERS.seconds = parsers.SECONDS


@pytest.mark.security
@pytest.mark.usefixtures("short_deadline")
@pytest.mark.parametrize("name", HOSTILE)
async def test_no_document_holds_the_loop(name: str) -> None:
    make, document, expected = HOSTILE[name]
    body = gzip.compress(document().encode(), compresslevel=1)
    gc.collect()

    async with serving(body) as server:
        connector, config = make(server.url)
        async with watched_loop() as hold:
            said = await outcome(connector, config)

    assert hold.longest < LONGEST_HOLD
    assert any(word in said for word in expected.split("|")), said


@pytest.mark.security
async def test_a_connector_that_asks_for_json_does_not_hold_the_loop() -> None:
    """It is parsed before the connector gets the answer, and not where it asks."""
    body = gzip.compress(f"[{'[],' * 300_000}[]]".encode(), compresslevel=1)
    environment = HttpEnvironment(allow_private=True)
    async with serving(body) as server, HttpClient(environment) as http, watched_loop() as hold:
        answer = await http.get(server.url)
        assert len(answer.json()) == 300_001
    assert hold.longest < LONGEST_HOLD / 2  # parsed on the loop, it takes 0.2 s


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux alone tells")
def test_a_small_answer_takes_little_memory() -> None:
    """58 kB that become 64 MB of lists took 1.5 GB."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 300_000  # kilobytes


MEMORY = """
import asyncio, zlib
from syncline.errors import Permanent
from syncline.http import HttpClient, HttpEnvironment, Response

press = zlib.compressobj(9, zlib.DEFLATED, 31)
body = press.compress(b"[") + b"".join(press.compress(b"[]," * 10_000) for _ in range(2_100))
body += press.compress(b"[]]") + press.flush()

async def answer(request, send):
    return Response(200, {"content-encoding": "gzip"}, body)

async def main():
    environment = HttpEnvironment(allow_private=True, intercept=answer)
    async with HttpClient(environment) as http:
        got = await http.get("http://127.0.0.1:1/")
        try:
            got.json()
        except Permanent:
            print(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])

asyncio.run(main())
"""


async def test_a_document_that_never_ends_is_stopped() -> None:
    """`<!--` 90,000 times held the interpreter for 39 seconds."""
    own, began = Parsers(seconds=1), time.monotonic()
    async with watched_loop() as hold:
        with pytest.raises(Transient, match="took longer than 1 s to parse"):
            await own.parse(PARSE_FEED, COMMENTS.encode(), {"content_type": ""})
    assert hold.longest < LONGEST_HOLD
    assert time.monotonic() - began < 5  # by its own alarm, before whoever asked loses patience
    own.close()


async def test_a_process_is_used_again_and_ends_on_demand() -> None:
    own = Parsers()
    first = await own.parse("support.parser_probe:pid_of", b"", {})
    assert await own.parse("support.parser_probe:pid_of", b"", {}) == first
    assert is_alive(first)
    own.close()
    assert not is_alive(first)
    assert await own.parse("support.parser_probe:pid_of", b"", {}) != first
    own.close()


async def test_a_process_that_died_while_idle_is_replaced() -> None:
    own = Parsers()
    first = await own.parse("support.parser_probe:pid_of", b"", {})
    os.kill(first, signal.SIGKILL)
    assert await own.parse("support.parser_probe:pid_of", b"", {}) != first
    own.close()


async def test_a_document_that_needs_too_much_memory_is_refused() -> None:
    own = Parsers()
    with pytest.raises(Transient, match="bytes of memory"):
        await own.parse("support.parser_probe:eat_memory", b"", {})
    with pytest.raises(ParserFailed, match="KeyError: 'a'"):
        await own.parse("support.parser_probe:stumble", b"", {})
    own.close()


async def test_a_parser_knows_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCLINE_SECRET_KEYS", "k:canary")
    monkeypatch.setenv("PGPASSWORD", "canary")
    kept = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(kept, True)
    own = Parsers()
    environment, descriptors = await own.parse("support.parser_probe:surroundings", b"", {})
    own.close()
    os.close(kept)
    assert "canary" not in str(environment)
    assert set(environment) <= {*PASSED_ON, *(n for n in environment if n.startswith("LC_"))}
    assert len(descriptors) <= 5  # three for the standard streams, the socket, the listing itself


@pytest.mark.process
def test_parsers_end_with_their_parent() -> None:
    """Also where it is killed: the socket closes, or the alarm comes."""
    code = PARENT.format(here=str(Path(__file__).parents[1]))
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    idle = int(parent.stdout.readline())
    assert is_alive(idle)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 10
    while is_alive(idle) and time.monotonic() < until:
        time.sleep(0.02)
    assert not is_alive(idle)


PARENT = """
import asyncio, sys
from syncline.children.parsers import PARSERS
sys.path.insert(0, {here!r})
async def main():
    print(await PARSERS.parse("support.parser_probe:pid_of", b""), flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return Path("/proc").exists() is False


PAYLOAD = {"text": "é" * 400_000, "numbers": list(range(10_000))}


@pytest.mark.security
async def test_a_large_page_is_checked_beside_the_loop() -> None:
    """250 signals of almost a megabyte each: few, and together far too much for the loop."""
    result = SyncResult([Signal("large", NOW, PAYLOAD, str(number)) for number in range(250)])
    async with watched_loop() as hold:
        page = await PageChecker(LIMITS).check(result, None, make_run())
    assert page.signal_count == 250
    assert hold.longest < LONGEST_HOLD


async def test_a_page_within_the_budget_starts_no_thread() -> None:
    result = SyncResult([Signal("small", NOW, {"text": "a" * 400}) for _ in range(1000)])
    checking = PageChecker(LIMITS).check(result, None, make_run())
    with pytest.raises(StopIteration) as done:
        checking.send(None)  # it ends without waiting for anybody
    assert done.value.value.signal_count == 1000


async def test_the_rest_of_a_page_is_checked_like_its_beginning() -> None:
    good = [Signal("large", NOW, PAYLOAD, str(number)) for number in range(3)]
    bad = SyncResult([*good, Signal("", NOW, {})])
    with pytest.raises(ContractError, match=r"signals\[3\].kind"):
        await PageChecker(LIMITS).check(bad, None, make_run())


def test_a_line_of_a_tap_is_bounded() -> None:
    with pytest.raises(Transient, match="a line of the program has more than 100000 values"):
        parse_line(b"[" + b"[]," * 1_000_000 + b"[]]")
    assert parse_line(b'{"a": ' + b"[1]" + b" " * 100_000 + b"}") == {"a": [1]}


@pytest.mark.parametrize("unit", [b"=?a?q?", b"=?a?q?b?=", b"=?"])
def test_a_header_of_a_message_is_decoded_in_bounded_time(unit: bytes) -> None:
    envelope = SimpleNamespace(**dict.fromkeys(ENVELOPE), subject=unit * 200_000)
    began = time.process_time()
    assert read_envelope(envelope)["subject"]
    assert time.process_time() - began < 1


def test_an_error_of_any_size_is_scrubbed_in_bounded_time() -> None:
    credentials = Credentials({"username": "ada", "password": "hunter2hunter2"})
    error = ValueError("x" * 50_000_000 + "hunter2hunter2")
    began = time.process_time()
    shown = str(without_secrets(error, credentials))
    assert time.process_time() - began < LONGEST_HOLD
    assert len(shown) <= LONGEST_TEXT
    assert "hunter2" not in shown
