"""The simulated ticket service, at times that the test chooses."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from syncline.connectors.demo import (
    BACKLOG,
    DEMO_CONNECTIONS,
    LOGIN_LASTS,
    PAGE_SIZE,
    PERSONALITIES,
    RETENTION,
    DemoTickets,
)
from syncline.errors import Permanent, RateLimited, Transient, Unauthorized
from syncline.model import Connection, Signal, SyncResult

START = datetime(2025, 3, 1, 9, 30, tzinfo=UTC)
WELL_BEHAVED = ("steady", "busy", "quiet", "slow")


class Service:
    """A connector whose clock stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = START
        self.pauses: list[float] = []
        self.connector = DemoTickets(now=lambda: self.now, pause=self._pause)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def sync(self, connection: Connection, cursor: Any = None) -> SyncResult:
        return await self.connector.sync(connection, cursor)

    async def pages(self, connection: Connection, cursor: Any = None) -> AsyncIterator[SyncResult]:
        """Follow the pages to the end, checking what every page of any connector must keep."""
        keys: set[str | None] = set()
        while True:
            page = await self.sync(connection, cursor)
            assert await self.sync(connection, cursor) == page
            assert json.loads(json.dumps(page.next_cursor)) == page.next_cursor
            for signal in page.signals:
                assert signal.occurred_at.tzinfo is not None
                assert signal.dedupe_key not in keys
                keys.add(signal.dedupe_key)
                json.dumps(signal.payload)
            yield page
            if not page.has_more:
                return
            assert page.next_cursor != cursor
            cursor = page.next_cursor

    async def follow(self, connection: Connection, cursor: Any = None) -> tuple[list[Signal], Any]:
        """Return every signal up to the last page, and the cursor left behind."""
        signals: list[Signal] = []
        async for page in self.pages(connection, cursor):
            signals += page.signals
            cursor = page.next_cursor or cursor
        return signals, cursor


@pytest.fixture
def service() -> Service:
    return Service()


def account(
    personality: str = "steady",
    *,
    id: UUID | None = None,
    external_id: str = "desk",
    created_at: datetime | None = START,
    **config: object,
) -> Connection:
    settings = {"personality": personality, **config}
    return Connection(
        id or uuid4(), "acme", "demo", external_id, "active", settings, {}, created_at=created_at
    )


@pytest.mark.parametrize("personality", WELL_BEHAVED)
async def test_the_first_sync_finds_a_backlog_of_a_few_pages(
    personality: str, service: Service
) -> None:
    found = [page async for page in service.pages(account(personality))]

    assert [len(list(page.signals)) for page in found] == [PAGE_SIZE, PAGE_SIZE, BACKLOG - 50]
    instants = [signal.occurred_at for page in found for signal in page.signals]
    assert instants == sorted(set(instants))
    assert START - RETENTION < instants[0] < instants[-1] <= START


async def test_new_events_appear_as_time_passes(service: Service) -> None:
    connection = account("steady", rate=6)
    _, cursor = await service.follow(connection)
    assert await service.sync(connection, cursor) == SyncResult(next_cursor=cursor)

    service.now += timedelta(minutes=10)
    signals, _ = await service.follow(connection, cursor)

    assert len(signals) in (59, 60, 61)
    assert all(START < signal.occurred_at <= service.now for signal in signals)


async def test_a_busy_account_always_has_several_pages(service: Service) -> None:
    connection = account("busy")
    _, cursor = await service.follow(connection)

    service.now += timedelta(minutes=1)
    page = await service.sync(connection, cursor)

    assert page.has_more


async def test_a_restart_loses_and_doubles_nothing() -> None:
    connection = account("steady")
    interrupted, undisturbed = Service(), Service()
    signals, cursor = await interrupted.follow(connection)
    expected, _ = await undisturbed.follow(connection)
    assert signals == expected

    restarted = Service()
    restarted.now += timedelta(hours=2)
    undisturbed.now = restarted.now
    signals += (await restarted.follow(connection, cursor))[0]

    assert signals == (await undisturbed.follow(connection))[0]


async def test_a_full_sync_finds_the_same_history_again(service: Service) -> None:
    connection = account("steady")
    first, _ = await service.follow(connection)

    service.now += timedelta(hours=1)
    again, _ = await service.follow(connection)

    assert again[: len(first)] == first


async def test_the_service_forgets_what_is_older_than_a_day(service: Service) -> None:
    connection = account("steady")
    _, cursor = await service.follow(connection)

    service.now += timedelta(days=30)
    page = await service.sync(connection, cursor)

    oldest = next(iter(page.signals)).occurred_at
    assert timedelta() < oldest - (service.now - RETENTION) < timedelta(minutes=1)


async def test_accounts_differ_and_keep_their_history_when_made_again(service: Service) -> None:
    first, _ = await service.follow(account(external_id="one"))
    second, _ = await service.follow(account(external_id="two"))
    again, _ = await service.follow(account(external_id="one"))

    assert first == again
    assert {signal.dedupe_key for signal in first}.isdisjoint(s.dedupe_key for s in second)


async def test_every_ticket_is_created_then_updated_then_closed(service: Service) -> None:
    service.now += timedelta(minutes=5)
    signals, _ = await service.follow(account("busy"))

    lives: dict[str, list[Signal]] = {}
    for signal in signals:
        lives.setdefault(signal.payload["ticket"], []).append(signal)

    order = ["ticket_created", "ticket_updated", "ticket_closed"]
    whole = [life for life in lives.values() if life[0].kind == order[0] and len(life) == 3]
    assert len(whole) > 50
    for life in whole:
        assert [signal.kind for signal in life] == order
        assert (
            len({(signal.payload["subject"], signal.payload["requester"]) for signal in life}) == 1
        )
    assert len({life[0].payload["subject"] for life in whole}) > 10


async def test_a_new_rate_continues_from_the_same_time(service: Service) -> None:
    connection = account("steady", rate=6)
    _, cursor = await service.follow(connection)

    service.now += timedelta(minutes=10)
    slower = account("steady", id=connection.id, rate=1)
    signals, _ = await service.follow(slower, cursor)

    assert len(signals) in (9, 10, 11)


async def test_a_clock_set_back_gives_an_empty_page(service: Service) -> None:
    connection = account("steady")
    _, cursor = await service.follow(connection)

    service.now -= timedelta(hours=3)

    assert await service.sync(connection, cursor) == SyncResult(next_cursor=cursor)
    far = {"since": "9999-12-31T23:59:59+00:00"}
    assert await service.sync(connection, far) == SyncResult(next_cursor=far)


async def test_a_rate_limit_says_when_to_come_back(service: Service) -> None:
    connection = account("rate_limited")
    refusals: list[tuple[datetime, float]] = []
    for _ in range(300):
        service.now += timedelta(seconds=7)
        try:
            await service.sync(connection)
        except RateLimited as refusal:
            refusals.append((service.now, refusal.retry_after_seconds or 0))

    assert 100 < len(refusals) < 170
    for asked_at, wait in refusals:
        assert 0 < wait <= 20
        service.now = asked_at + timedelta(seconds=wait + 0.001)
        await service.sync(connection)


async def test_a_flaky_service_fails_one_call_in_four(service: Service) -> None:
    connection = account("flaky")
    failures = 0
    for _ in range(200):
        service.now += timedelta(seconds=11)
        try:
            await service.sync(connection)
        except Transient:
            failures += 1

    assert 35 <= failures <= 65


async def test_failures_between_pages_lose_nothing(service: Service) -> None:
    connection = account("flaky")
    signals: list[Signal] = []
    cursor: Any = None
    failures = 0
    for _ in range(100):
        service.now += timedelta(seconds=1)
        try:
            page = await service.sync(connection, cursor)
        except Transient:
            failures += 1
        else:
            signals += page.signals
            cursor = page.next_cursor

    calm, _ = await service.follow(account("steady"))
    assert failures > 0
    assert [s for s in calm if s.occurred_at <= signals[-1].occurred_at] == signals


async def test_an_expired_login_works_for_a_while_after_a_resume(service: Service) -> None:
    connection = account("expired")
    with pytest.raises(Unauthorized, match="resume"):
        await service.sync(connection)

    service.now += timedelta(minutes=1)
    signals, cursor = await service.follow(connection)  # only a resumed connection is asked again
    assert len(signals) >= BACKLOG
    service.now += LOGIN_LASTS - timedelta(seconds=1)
    await service.sync(connection, cursor)

    service.now += timedelta(seconds=1)
    with pytest.raises(Unauthorized):
        await service.sync(connection, cursor)
    await service.sync(connection, cursor)


async def test_two_connections_have_separate_logins(service: Service) -> None:
    first, second = account("expired"), account("expired")
    for connection in (first, second):
        with pytest.raises(Unauthorized):
            await service.sync(connection)
    await service.sync(first)
    await service.sync(second)


async def test_a_broken_account_stays_broken(service: Service) -> None:
    for _ in range(2):
        with pytest.raises(Permanent, match="closed"):
            await service.sync(account("broken"))


async def test_a_slow_service_takes_some_seconds(service: Service) -> None:
    await service.sync(account("slow"))

    (seconds,) = service.pauses
    assert 2 <= seconds < 5


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (None, "config"),
        ([], "config"),
        ({"personality": "moody"}, "config.personality"),
        ({"personality": 3}, "config.personality"),
        ({"personality": ["steady"]}, "config.personality"),
        ({"rate": "6"}, "config.rate"),
        ({"rate": True}, "config.rate"),
        ({"rate": 0}, "config.rate"),
        ({"rate": -1}, "config.rate"),
        ({"rate": 1e9}, "config.rate"),
        ({"rate": float("nan")}, "config.rate"),
    ],
)
async def test_a_bad_config_names_its_field(config: Any, field: str, service: Service) -> None:
    connection = Connection(uuid4(), "acme", "demo", "desk", "active", config, {})

    with pytest.raises(Permanent, match=f"^{field}: "):
        await service.sync(connection)


@pytest.mark.parametrize(
    "cursor", [7, "x", [], {}, {"since": 5}, {"since": "soon"}, {"since": "2025-03-01T09:30:00"}]
)
async def test_a_bad_cursor_is_refused(cursor: Any, service: Service) -> None:
    with pytest.raises(Permanent, match=r"^cursor: "):
        await service.sync(account(), cursor)


async def test_an_account_works_without_a_config_or_a_creation_time(service: Service) -> None:
    connection = Connection(uuid4(), "acme", "demo", "desk", "active", {}, {})

    signals, _ = await service.follow(connection)

    assert len(signals) == BACKLOG


async def test_the_real_clock_is_the_default() -> None:
    before = datetime.now(UTC)
    page = await DemoTickets().sync(account(created_at=None), None)

    newest = max(signal.occurred_at for signal in page.signals)
    assert before - timedelta(hours=1) < newest < before + timedelta(minutes=1)


async def test_the_demo_shows_every_personality_to_three_tenants(service: Service) -> None:
    keys = {(spec["tenant_id"], spec["external_id"]) for spec in DEMO_CONNECTIONS}
    assert len(keys) == len(DEMO_CONNECTIONS) == 12
    assert len({tenant for tenant, _ in keys}) == 3
    assert {spec["config"]["personality"] for spec in DEMO_CONNECTIONS} == set(PERSONALITIES)
    assert all(60 <= spec["interval_seconds"] <= 86_400 for spec in DEMO_CONNECTIONS)
    assert {spec["provider_slug"] for spec in DEMO_CONNECTIONS} == {DemoTickets.provider}
