"""Calls come out of budgets: before the claim, in mid-run, and by whom (P2 to P4)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from support.sessions import actor, made_to_wait
from support.world import World, at
from syncline import Connection, Connector, Engine, RateLimited, Settings, SyncResult
from syncline.errors import Deferred
from syncline.http import HttpEnvironment, Response
from syncline.http.budgets import Spender
from syncline.http.messages import Request
from syncline.model import Job
from syncline.sdk.limits import Limit
from syncline.testing import ScriptedConnector


class Caller(Connector):
    """Makes as many calls as its connection says, and records them."""

    provider = "calls"

    def __init__(self) -> None:
        self.made = 0
        self.headers: dict[str, str] = {}
        self.status = 200

    async def answer(self, request: Request, send: Any) -> Response:
        self.made += 1
        return Response(self.status, headers=self.headers, json=[])

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        async with self.http(connection, base_url="https://api.example.com") as http:
            for _ in range(connection.config.get("calls", 1)):
                await http.get("/")
        return SyncResult()


class BlockingCaller(Caller):
    def sync(self, connection: Connection, cursor: Any) -> SyncResult:  # type: ignore[override]
        with self.blocking_http(connection, base_url="https://api.example.com") as http:
            for _ in range(connection.config.get("calls", 1)):
                http.get("/")
        return SyncResult()


class StreamingCaller(Caller):
    async def sync(  # type: ignore[override]
        self, connection: Connection, cursor: Any
    ) -> AsyncIterator[SyncResult]:
        async with self.http(connection, base_url="https://api.example.com") as http:
            for number in range(cursor or 0, connection.config.get("calls", 1)):
                await http.get("/")
                yield SyncResult(next_cursor=number + 1, has_more=True)
        yield SyncResult()


@asynccontextmanager
async def calling(world: World, connector: Caller, **settings: Any) -> AsyncIterator[World]:
    """Open another engine with this connector, whose calls go nowhere."""
    async with world.another_engine(connectors=[connector], **settings) as other:
        environment = connector.http_environment
        assert environment is not None
        connector.http_environment = HttpEnvironment(
            intercept=connector.answer, closed=environment.closed, budgets=environment.budgets
        )
        yield other


async def due(world: World, count: int, *, calls: int = 1, **given: Any) -> list[Job]:
    jobs = []
    for _ in range(count):
        connection = await world.connection(provider="calls", **given)
        await world.sql(
            "UPDATE {schema}.connections SET config = jsonb_build_object('calls', $2::int)"
            " WHERE id = $1",
            *(connection.id, calls),
        )
        jobs.append(await world.get_job(await world.job(connection)))
    return jobs


async def test_a_job_whose_budget_has_no_room_is_not_claimed(world: World) -> None:
    """P3: it stays queued, and its attempts do not change."""
    connector = Caller()
    async with calling(world, connector) as other:
        await other.engine.budgets.set("calls", calls=300, per="1h")  # three at once
        jobs = await due(other, 5)

        ran = await other.run_due()

    found = [await world.get_job(job.id) for job in jobs]
    assert (ran, connector.made) == (3, 3)
    assert sorted(job.status for job in found) == ["queued"] * 2 + ["succeeded"] * 3
    assert {(job.attempts, job.error, job.retry_after) for job in found} == {(0, None, None)}


async def test_jobs_start_as_calls_flow_in(world: World) -> None:
    connector = Caller()
    async with calling(world, connector) as other:
        await other.engine.budgets.set("calls", calls=3600, per="1h", burst=2)
        await due(other, 10)

        started = [await other.run_due(at("12:00") + timedelta(seconds=n)) for n in range(4)]

    assert started == [2, 0, 1, 1], "one a second, less a little"


async def test_providers_without_a_budget_are_claimed_as_before(world: World) -> None:
    connector = Caller()
    async with calling(world, connector) as other:
        await other.engine.budgets.set("calls", calls=1, per="1h")
        await due(other, 3)
        for _ in range(3):
            await world.job(await world.connection())
        world.script(*[SyncResult()] * 3)

        assert await other.run_due() == 1
        assert await world.run_due() == 3


async def test_a_run_that_finds_no_room_is_deferred(world: World) -> None:
    """P4: attempts unchanged, no error, and queued for when there is room."""
    connector = Caller()
    async with calling(world, connector) as other:
        await other.engine.budgets.set("calls", calls=300, per="1h")
        [job] = await due(other, 1, calls=10)

        await other.run_due()

    deferred = await world.get_job(job.id)
    assert connector.made == 3
    assert (deferred.status, deferred.attempts, deferred.error) == ("queued", 0, None)
    assert deferred.retry_after is not None
    assert deferred.retry_after > at("12:00:10"), "the next call flows in after twelve seconds"


async def test_a_stream_keeps_its_pages_when_the_budget_ends(world: World) -> None:
    """P4: nothing is repeated."""
    connector = StreamingCaller()
    async with calling(world, connector) as other:
        await other.engine.budgets.set("calls", calls=300, per="1h")
        [job] = await due(other, 1, calls=5)
        await other.run_due()
        deferred = await world.get_job(job.id)
        for minute in range(1, 30):
            await other.run_due(at("12:00") + timedelta(minutes=minute))

    assert (deferred.status, deferred.attempts, deferred.cursor) == ("queued", 0, 3)
    assert connector.made == 5


async def test_a_trigger_does_not_end_a_deferral(world: World) -> None:
    """Like a provider's hint: the call could not be made anyway."""
    connector = Caller()
    async with calling(world, connector) as other:
        await other.engine.budgets.set("calls", calls=300, per="1h")
        [job] = await due(other, 1, calls=10)
        await other.run_due()
        deferred = await world.get_job(job.id)

        await other.engine.trigger(job.connection_id)

    assert (await world.get_job(job.id)).retry_after == deferred.retry_after


async def test_a_trigger_still_ends_a_backoff_after_a_deferral(world: World) -> None:
    [job] = await due(world, 1)
    await world.sql(
        "UPDATE {schema}.sync_jobs SET deferred_until = $1, retry_after = $2,"
        " error = '{}', attempts = 1",
        *(at("11:00"), at("13:00")),
    )

    await world.engine.trigger(job.connection_id)

    assert (await world.get_job(job.id)).retry_after is None


async def test_deferred_runs_come_back_one_after_the_other(world: World) -> None:
    connector = Caller()
    async with calling(world, connector) as other:
        await other.engine.budgets.set("calls:{tenant}", calls=300, per="1h")
        jobs = await due(other, 9)
        await other.run_due()

    found = [await world.get_job(job.id) for job in jobs]
    waits = sorted(job.retry_after for job in found if job.retry_after is not None)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(waits)]
    assert len(waits) == 6
    assert min(gaps) > 6, "a call flows in every twelve seconds"


@pytest.mark.parametrize("kind", [Caller, BlockingCaller])
async def test_calls_of_threads_count_as_well(world: World, kind: type[Caller]) -> None:
    connector = kind()
    async with calling(world, connector) as other:
        await other.engine.budgets.set("calls", calls=300, per="1h")
        await due(other, 2, calls=2)
        await other.run_due()
        used = (await other.engine.budgets.list())[0]

    assert connector.made == 3
    assert (used.used, used.room) == (3, 0)


async def test_redirects_count_as_calls(world: World) -> None:
    connector = Caller()
    connector.status, connector.headers = 302, {"location": "/again"}
    async with calling(world, connector) as other:
        await other.engine.budgets.set("calls", calls=300, per="1h")
        await due(other, 1)
        await other.run_due()

    assert connector.made == 3


async def test_a_call_counts_in_two_budgets_at_once(world: World) -> None:
    connector = Caller()
    async with calling(world, connector) as other:
        await other.engine.budgets.set("calls", calls=1000, per="1h")
        await other.engine.budgets.set("calls:{tenant}", calls=300, per="1h")
        for tenant in ("acme", "other"):
            await due(other, 6, tenant=tenant)
        await other.run_due()
        shared = (await other.engine.budgets.list())[0]
        assert shared.used is not None

    assert connector.made == 6, "three of each tenant"
    assert shared.scope == "calls"
    assert shared.used >= 6, "those that lapse are put back a second later"


async def test_providers_that_share_a_budget_share_its_calls(world: World) -> None:
    mail, calendar = Caller(), Caller()
    calendar.provider = "calendar"
    async with world.another_engine(connectors=[mail, calendar]) as other:
        for connector in (mail, calendar):
            environment = connector.http_environment
            assert environment is not None
            connector.http_environment = HttpEnvironment(
                intercept=connector.answer, budgets=environment.budgets
            )
        await other.engine.budgets.set("google", calls=400, providers=("calls", "calendar"))
        await due(other, 5)
        for _ in range(5):
            await other.job(await other.connection(provider="calendar"))

        await other.run_due()

    assert mail.made + calendar.made == 4


async def test_a_limit_of_the_application_closes_all_providers_of_the_scope(world: World) -> None:
    """P5: they share one limit."""
    connector = Caller()
    async with calling(world, connector) as other:
        await other.engine.budgets.set("google", calls=10_000, providers=("calls", "github"))
        await world.job(await world.connection())
        world.script(RateLimited("slow down", retry_after_seconds=60, scope="app"))
        await world.run_due()
        await world.engine._worker.gatekeeper.step()
        await due(other, 1)

        assert await other.run_due("12:00:30") == 0

    assert connector.made == 0


async def test_what_the_provider_says_lowers_what_is_left(world: World) -> None:
    connector = Caller()
    connector.headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "600"}
    async with calling(world, connector) as other:
        await other.engine.budgets.set("calls", calls=10_000, per="1h")
        [job] = await due(other, 1, calls=5)
        await other.run_due()
        [budget] = await other.engine.budgets.list()

    deferred = await world.get_job(job.id)
    assert connector.made == 1
    assert (budget.room, budget.room_at) == (0, at("12:10"))
    assert deferred.retry_after is not None
    assert at("12:10") <= deferred.retry_after < at("12:11")


async def test_what_it_says_never_raises_it(world: World) -> None:
    connector = Caller()
    connector.headers = {"x-ratelimit-remaining": "4000", "x-ratelimit-reset": "600"}
    async with calling(world, connector) as other:
        await other.engine.budgets.set("calls", calls=300, per="1h")
        await due(other, 1, calls=9)
        await other.run_due()

    assert connector.made == 3


async def test_a_reset_far_away_closes_a_budget_for_one_span_at_most(world: World) -> None:
    connector = Caller()
    connector.headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2000000"}
    async with calling(world, connector) as other:
        await other.engine.budgets.set("calls", calls=10_000, per="10m")
        await due(other, 1, calls=5)
        await other.run_due()
        [closed] = await other.engine.budgets.list()
        reset = await other.engine.budgets.set("calls", calls=10_000, per="10m")

    assert (closed.room, closed.room_at) == (0, at("12:10"))
    assert reset.room_at is None, "an operator knows better"


async def test_a_limit_that_is_another_one_lowers_nothing(world: World) -> None:
    """What one user has left says nothing about the application."""
    connector = Caller()
    connector.headers = {
        "x-ratelimit-limit": "60",
        "x-ratelimit-remaining": "0",
        "x-ratelimit-reset": "600",
    }
    async with calling(world, connector) as other:
        await other.engine.budgets.set("calls", calls=10_000, per="1h")
        await due(other, 1, calls=5)
        await other.run_due()

    assert connector.made == 5


async def test_limits_of_three_connections_count_over_all_providers_of_the_scope(
    world: World,
) -> None:
    """P5: two of one provider and one of another mean the application too."""
    connector = Caller()
    connector.status = 429
    async with calling(world, connector) as other:
        await other.engine.budgets.set("google", calls=10_000, providers=("calls", "github"))
        connector.headers = {"retry-after": "60"}
        await due(other, 2)
        await other.run_due()
        await other.engine._worker.gatekeeper.step()
        await world.job(await world.connection())
        world.script(RateLimited("slow down", retry_after_seconds=60))
        await world.run_due()
        await world.engine._worker.gatekeeper.step()

    shut = {gate.provider_slug for gate in await world.engine.gates.list()}
    assert shut == {"calls", "github"}


async def test_a_raised_budget_lets_deferred_runs_try_again(world: World) -> None:
    connector = Caller()
    async with calling(world, connector) as other:
        await other.engine.budgets.set("calls:{connection}", calls=10, per="1h")
        [job] = await due(other, 1, calls=4)
        await other.run_due()
        deferred = await world.get_job(job.id)
        await other.engine.budgets.set("calls:{connection}", calls="unlimited")
        await other.run_due()

    assert (deferred.status, connector.made) == ("queued", 1 + 4)
    assert (await world.get_job(job.id)).status == "succeeded"


async def test_many_calls_of_one_run_are_deferred_as_one(world: World) -> None:
    """Otherwise each would put the next run off further."""

    class Gathering(Caller):
        async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
            async with self.http(connection, base_url="https://api.example.com") as http:
                await asyncio.gather(*(http.get("/") for _ in range(20)))
            return SyncResult()

    connector = Gathering()
    async with calling(world, connector) as other:
        await other.engine.budgets.set("calls", calls=300, per="1h")
        [job] = await due(other, 1)
        await other.run_due()

    found = await world.get_job(job.id)
    assert found.retry_after is not None
    assert found.retry_after < at("12:01")


async def test_who_holds_a_bucket_holds_up_nobody_else(world: World) -> None:
    """A claim passes over its providers, and goes on with the others."""
    connector = Caller()
    async with world.another_engine(connectors=[connector, ScriptedConnector("other")]) as other:
        await other.engine.budgets.set("calls", calls=300, per="1h")
        await due(other, 5)
        await other.run_due()
        await other.job(await other.connection(provider="other"))
        scripted = other.engine.providers["other"]
        assert isinstance(scripted, ScriptedConnector)
        scripted.script.append(SyncResult())
        async with actor(world) as holder:
            await holder.sql("SELECT FROM {schema}.budget_buckets FOR UPDATE")
            assert await other.run_due("13:00") == 1  # else it would raise after two seconds


async def test_a_process_that_stops_while_a_bucket_is_held_stops(world: World) -> None:
    await world.engine.budgets.set("github", calls=300, per="1h")
    await world.job(await world.connection())
    world.script(SyncResult())
    await world.run_due()
    keeper = world.engine._worker.budgets
    keeper.calls.spend(Spender("github"), 1)
    async with actor(world) as holder:
        await holder.sql("SELECT FROM {schema}.budget_buckets FOR UPDATE")
        step = await made_to_wait(world, keeper.step())
        step.cancel()

        with pytest.raises(asyncio.CancelledError):
            await step


async def test_a_connector_with_bad_limits_stops_nobody(world: World) -> None:
    class Wrong(Caller):
        limits = (Limit("calls", calls=0), "five a second")  # type: ignore[assignment]

    connector = Wrong()
    async with calling(world, connector) as other:
        await due(other, 1)
        assert await other.run_due() == 1

    assert await world.engine.budgets.list() == []


async def test_a_budget_that_nobody_can_read_by_plain_sql_stops_nobody(world: World) -> None:
    await world.sql(
        "INSERT INTO {schema}.budgets (scope, source, calls, per_seconds, providers)"
        " VALUES ('github:{user}', 'operator', 1000, 60, '{github}')"
    )
    await world.job(await world.connection())
    world.script(SyncResult())

    assert await world.run_due() == 1


class OwnClient(Connector):
    """Has a client of its own."""

    provider = "own"

    def __init__(self, spend: int | None) -> None:
        self.spend = spend

    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        if self.spend is not None:
            await connection.spend(self.spend)
        return SyncResult()


class BlockingOwnClient(OwnClient):
    def sync(self, connection: Connection, cursor: Any) -> SyncResult:  # type: ignore[override]
        if self.spend is not None:
            connection.spend(self.spend)
        return SyncResult()


class UnawaitedOwnClient(OwnClient):
    async def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        connection.spend(self.spend or 1)
        return SyncResult()


@pytest.mark.parametrize(
    ("connector", "spent"),
    [
        (OwnClient(None), 1),
        (OwnClient(2), 2),
        (BlockingOwnClient(None), 1),
        (BlockingOwnClient(2), 2),
        (UnawaitedOwnClient(2), 2),
        (OwnClient(0), 1),
    ],
    ids=["one a run", "async", "thread, one a run", "thread", "not awaited", "nothing"],
)
async def test_connectors_with_a_client_of_their_own_say_what_they_spend(
    world: World, connector: OwnClient, spent: int
) -> None:
    """P2: or count one call a run."""
    async with world.another_engine(connectors=[connector]) as other:
        await other.engine.budgets.set("own", calls=1000, per="1h")
        await other.job(await other.connection(provider="own"))
        await other.run_due()
        await other.engine._worker.budgets.step()

        assert other.metric("sync_budget_calls_total", scope="own") == spent


@pytest.mark.parametrize("kind", [OwnClient, BlockingOwnClient])
async def test_who_spends_more_than_there_is_waits(world: World, kind: type[OwnClient]) -> None:
    async with world.another_engine(connectors=[kind(6)]) as other:
        await other.engine.budgets.set("own", calls=1000, per="1h")
        for _ in range(2):
            await other.job(await other.connection(provider="own"))
        assert await other.run_due() == 2
        jobs = await world.sql("SELECT status, attempts FROM {schema}.sync_jobs ORDER BY status")

    assert [tuple(job) for job in jobs] == [("queued", 0), ("succeeded", 0)]


async def test_spending_outside_an_engine_does_nothing(world: World) -> None:
    connection = await world.connection()

    await connection.spend(3)
    await asyncio.to_thread(connection.spend)

    with pytest.raises(ValueError, match="whole number"):
        connection.spend(-1)


async def test_a_change_is_obeyed_by_a_process_that_runs(world: World) -> None:
    connector = Caller()
    async with calling(world, connector) as other:
        await world.engine.budgets.set("calls", calls=300, per="1h")
        await due(other, 8)
        before = await other.run_due()
        await world.engine.budgets.set("calls", calls="unlimited")
        after = await other.run_due()

    assert (before, after) == (3, 5)


async def test_the_settings_bring_their_budgets_and_take_them_away(world: World) -> None:
    """The last process to start decides; what the operator set stays."""
    await world.engine.budgets.set("kept", calls=5)
    google = {"scope": "google", "calls": 100, "per": "60s"}
    mail = {"scope": "mail", "calls": 100, "per": 60}
    async with world.another_engine(budgets=[google, mail]) as first:
        await first.run_due()
        before = await scopes(world)
    async with world.another_engine(budgets=[google]) as second:
        await second.run_due()

    assert before == {("google", "settings"), ("mail", "settings"), ("kept", "operator")}
    assert await scopes(world) == before - {("mail", "settings")}


async def test_a_connector_brings_its_limits(world: World) -> None:
    from syncline.connectors.github import GitHub

    async with world.another_engine(connectors=[GitHub()]) as other:
        await other.run_due()
        found = await other.engine.budgets.list()

    assert {(one.scope, one.calls, one.per_seconds, one.source) for one in found} == {
        ("github:{connection}", 5000, 3600, "connector"),
        ("github-minute:{connection}", 900, 60, "connector"),
    }


async def scopes(world: World) -> set[tuple[str, str]]:
    return {(one.scope, one.source) for one in await world.engine.budgets.list()}


async def test_a_call_waits_for_a_moment_rather_than_defer(world: World) -> None:
    """P4: up to two seconds, in real time and with the database's clock."""
    connector = Caller()
    await world.engine.budgets.set("calls", calls=200, per="20s", burst=1)
    await due(world, 1, calls=4)
    settings = Settings(database_url=world.url)
    async with Engine(settings, [connector], discover=False) as engine:
        environment = connector.http_environment
        assert environment is not None
        connector.http_environment = HttpEnvironment(
            intercept=connector.answer, budgets=environment.budgets
        )
        assert await engine.run_due() == 1

    assert connector.made == 4


def test_a_deferred_call_names_its_scope() -> None:
    deferred = Deferred("google", 60)

    assert (deferred.scope, str(deferred)) == ("google", "google may not be called for 60 s")
