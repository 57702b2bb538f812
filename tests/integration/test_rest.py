"""`rest` against Kinto: since, page tokens, tombstones, 304, and failures."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from integration.kinto import PASSWORD, RECORDS, USER, Kinto, running_kinto
from integration.scene import Scene
from integration.servers import Toll
from syncline import RateLimited, Unauthorized
from syncline.connectors.rest.connector import Rest
from syncline.http import HttpEnvironment
from syncline.testing.trial import TrialPage, take_pages

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PAGE = 4
CREDENTIALS = {"username": USER, "password": PASSWORD}


@pytest.fixture(scope="module")
def installed_kinto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kinto]:
    with running_kinto(tmp_path_factory.mktemp("kinto")) as kinto:
        yield kinto


@pytest.fixture
def kinto(installed_kinto: Kinto) -> Kinto:
    installed_kinto.empty()
    return installed_kinto


def configuration(url: str) -> dict[str, Any]:
    return {
        "base_url": f"{url}/v1",
        "path": RECORDS,
        "params": {"_sort": "last_modified", "_limit": PAGE},
        "records": "data",
        "kind": "note",
        "version": "last_modified",
        "since": {"parameter": "_since", "field": "last_modified"},
        "pagination": {"style": "url", "header": "Next-Page"},
        "tombstones": {"field": "deleted"},
    }


async def run(kinto: Kinto, cursor: Any = None, password: str = PASSWORD) -> list[TrialPage]:
    rest = Rest()
    rest.http_environment = HttpEnvironment(allow_private=True)
    config = configuration(kinto.server.url)
    credentials = {"username": USER, "password": password}
    return await take_pages(rest, config, credentials=credentials, cursor=cursor)


def told(pages: list[TrialPage]) -> list[tuple[str, str]]:
    return [(signal.kind, signal.payload["id"]) for page in pages for signal in page.signals]


async def test_full_then_changes_and_deletions_then_nothing(kinto: Kinto) -> None:
    for number in range(10):
        kinto.put(number, "first")
    whole = await run(kinto)
    kinto.put(3, "edited")
    kinto.delete(7)
    kinto.put(10, "new")

    changes = await run(kinto, whole[-1].next_cursor)
    [nothing] = await run(kinto, changes[-1].next_cursor)
    [unchanged] = await run(kinto, nothing.next_cursor)

    assert told(whole) == [("note", f"note-{number}") for number in range(10)]
    assert len(whole) == 3
    assert told(changes) == [("note", "note-3"), ("note_deleted", "note-7"), ("note", "note-10")]
    assert nothing.signals == unchanged.signals == ()
    assert nothing.next_cursor["validators"]["etag"]


async def test_an_unchanged_listing_is_a_304(kinto: Kinto) -> None:
    kinto.put(1, "only")
    [whole] = await run(kinto)
    [empty] = await run(kinto, whole.next_cursor)
    statuses: list[int | None] = []
    rest = Rest()
    rest.http_environment = HttpEnvironment(
        allow_private=True, on_exchange=lambda exchange: statuses.append(exchange.status)
    )

    await take_pages(
        rest,
        configuration(kinto.server.url),
        credentials=CREDENTIALS,
        cursor=empty.next_cursor,
    )

    assert statuses == [304]


async def test_a_changed_password_is_unauthorized(kinto: Kinto) -> None:
    kinto.set_password("another-pa55word")
    try:
        with pytest.raises(Unauthorized):
            await run(kinto)
    finally:
        kinto.set_password(PASSWORD)


async def test_new_credentials_resume_a_connection_with_its_cursor(
    kinto: Kinto, scene: Scene
) -> None:
    kinto.put(1, "first")
    await scene.connect("rest", configuration(kinto.server.url), CREDENTIALS)
    await scene.sync()
    kinto.set_password("another-pa55word")
    try:
        kinto.put(2, "second")
        await scene.sync()
        stopped = await scene.status()
        await scene.set_credentials({"username": USER, "password": "another-pa55word"})
        await scene.sync()
    finally:
        kinto.set_password(PASSWORD)

    assert stopped == "needs_reauth"
    assert await scene.status() == "active"
    assert [payload["id"] for _, payload in await scene.signals()] == ["note-1", "note-2"]


async def test_its_overload_is_a_rate_limit_with_its_hint(kinto: Kinto) -> None:
    """Without its database, Kinto answers 503 with Retry-After."""
    kinto.postgres.stop()
    try:
        with pytest.raises(RateLimited) as raised:
            await run(kinto)
    finally:
        kinto.postgres.start()

    assert raised.value.retry_after_seconds == 17


async def test_workers_killed_in_the_middle_lose_and_double_nothing(
    kinto: Kinto, scene: Scene
) -> None:
    for number in range(60):
        kinto.put(number, "first")
    async with Toll(kinto.server.port, seconds=0.1) as toll:
        await scene.connect("rest", configuration(toll.url), CREDENTIALS)
        await scene.sync_killed(60)
        kinto.put(5, "edited")
        kinto.delete(6)
        await scene.sync()

    assert_what_is_held(await scene.signals(), kinto, first=60, deleted={"note-6"})


async def test_a_sync_continues_after_its_server_restarts(kinto: Kinto, scene: Scene) -> None:
    for number in range(60):
        kinto.put(number, "first")

    async def restart() -> None:
        kinto.server.kill()
        kinto.server.start()

    async with Toll(kinto.server.port, seconds=0.1) as toll:
        await scene.connect("rest", configuration(toll.url), CREDENTIALS)
        await scene.sync(disturb=restart)

    assert_what_is_held(await scene.signals(), kinto, first=60, deleted=set())


def assert_what_is_held(
    signals: list[tuple[str, Any]], kinto: Kinto, *, first: int, deleted: set[str]
) -> None:
    versions = Counter((payload["id"], payload["last_modified"]) for _, payload in signals)
    assert set(versions.values()) == {1}
    assert len({payload["id"] for _, payload in signals}) == first
    latest = {payload["id"]: payload for _, payload in signals}
    assert {i: p for i, p in latest.items() if not p.get("deleted")} == kinto.held()
    assert {i for i, p in latest.items() if p.get("deleted")} == deleted
