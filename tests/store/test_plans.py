"""What is not due costs nothing: plans, judged by what they touch in a large cell.

Never by time: each statement is explained with its buffers, with and without statistics, as a
plan for its own arguments and as one for any.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from support.databases import Databases, Mode, modes
from support.world import at, open_world
from syncline.policy.lines import Line, Lines, Look
from syncline.store.data import connections, retention
from syncline.store.listings import connections as connection_pages
from syncline.store.listings import details
from syncline.store.listings import jobs as job_pages
from syncline.store.listings import queue as queue_pages
from syncline.store.plan_settings import PLANNED_ONCE
from syncline.store.queue import backoffs, claims, jobs, schedule, triggers
from syncline.store.statements import fill_in
from syncline.store.stats import activity, counts, freshness, providers, queue, troubles

LARGE_CELL = (Path(__file__).parents[1] / "support/large_cell.sql").read_text()
BIG_TABLES = {"connections", "sync_jobs", "signals"}
NOON, LATER = at("12:00"), at("12:01")
TOKEN, LEASE = UUID(int=7), timedelta(seconds=30)
PROVIDERS = [f"provider {n}" for n in range(3)]
CONNECTION, ENDED, BACKOFF, JOB = 1, 2, 3, 4  # the first digit of their ids
DUE = [UUID(f"{CONNECTION}{n:031x}") for n in range(39951, 40001)]
READY = [UUID(f"{JOB}{n:031x}") for n in range(50)]
WAITED = [UUID(f"{BACKOFF}{n:031x}") for n in range(20)]
BEGINNING = (NOON - timedelta(days=365), UUID(int=0))
HOLD = """
    UPDATE syncline.sync_jobs
       SET status = 'running', started_at = $2, lease_token = $3, lease_expires_at = $2
     WHERE id = ANY ($1)
"""

ONE_INSTANT = """
    -- 10 000 jobs that were due at once, all but the last ten of them claimed before.
    ALTER TABLE syncline.sync_jobs SET (autovacuum_enabled = false);
    INSERT INTO syncline.connections (id, tenant_id, provider_slug, external_id)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'tenant', 'bulk', n FROM generate_series(1, 10000) n;
    INSERT INTO syncline.sync_jobs (id, tenant_id, provider_slug, connection_id, scheduled_at)
    SELECT id, tenant_id, provider_slug, id, '2025-01-01 11:00+00' FROM syncline.connections;
    UPDATE syncline.sync_jobs SET status = 'running'
     WHERE id <= lpad(to_hex(9990), 32, '0')::uuid;
"""
PAGES_OF_READY = """
    SELECT pg_relation_size('syncline.sync_jobs_ready') / current_setting('block_size')::int
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A statement, its arguments as SQL literals, and how many rows it is about."""

    name: str
    statement: str
    arguments: tuple[str, ...]
    rows: int
    on_held_jobs: bool = False


@pytest.mark.parametrize(
    "server_mode", [mode for mode in modes() if not mode.portable and not mode.skip_reason], ids=str
)
async def test_statements_touch_what_is_due(databases: Databases, server_mode: Mode) -> None:
    offences: list[str] = []
    async with large_cell(databases, server_mode) as session:
        for analysed in (False, True):
            if analysed:
                await session.execute(
                    "ANALYZE syncline.connections, syncline.sync_jobs, syncline.signals"
                )
            for plan_for in ("force_custom_plan", "force_generic_plan"):
                await session.execute(f"SET plan_cache_mode = {plan_for}")
                for case in ordinary_cases():
                    plan = await explain(session, case)
                    offences += [
                        f"{case.name}, {plan_for}, {analysed=}: {offence}"
                        for offence in judge(plan, case)
                    ]
            offences += await offences_of_pages(session)
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize(
    "server_mode", [mode for mode in modes() if not mode.portable and not mode.skip_reason], ids=str
)
async def test_what_is_planned_once_reads_no_table_whole_that_was_empty_then(
    databases: Databases, server_mode: Mode
) -> None:
    """A statement that is sent alone keeps its plan for a while, however many rows come."""
    alone = [
        case("claim", claims.CLAIM, 70, *claiming(PROVIDERS, NOON)),
        case(
            "close_empty",
            jobs.CLOSE_EMPTY,
            50,
            READY,
            [TOKEN] * 50,
            NOON,
            on_held_jobs=True,
        ),
        case("trigger", triggers.TRIGGER, 1, TOKEN, DUE[0], None, "full", 0, None, NOON, None, ""),
    ]
    preparation, insert, rows = LARGE_CELL.partition("INSERT")
    async with empty_cell(databases, server_mode) as url:
        session = await asyncpg.connect(url)
        await session.execute(preparation)  # which would have everything planned anew
        for table in BIG_TABLES:  # so that the planner knows how empty they are
            await session.execute(f"VACUUM ANALYZE syncline.{table}")
        planned = await asyncpg.connect(url, server_settings=PLANNED_ONCE)
        for number, one in enumerate(alone):
            await planned.execute(f"PREPARE alone_{number} AS {one.statement}")
            await planned.execute(f"EXECUTE alone_{number} ({', '.join(one.arguments)})")
        await session.execute(insert + rows)
        plans = [
            await explain(planned, one, prepared=f"alone_{number}")
            for number, one in enumerate(alone)
        ]
        await planned.close()
        await session.close()
    kinds = {node["Node Type"] for plan in plans for node in nodes_of(plan)}
    assert not kinds & {"Seq Scan", "Hash Join", "Merge Join", "Bitmap Heap Scan"}
    assert "Index Scan" in kinds


@pytest.mark.parametrize(
    "server_mode", [mode for mode in modes() if not mode.portable and not mode.skip_reason], ids=str
)
async def test_a_claim_walks_over_what_was_claimed_before_once(
    databases: Databases, server_mode: Mode
) -> None:
    """Also where all of it was due at the same instant, as after an import."""
    claim = case("claim", claims.CLAIM, 5, *claiming(["bulk"], NOON, limit=5))
    async with empty_cell(databases, server_mode) as url:
        session = await asyncpg.connect(url, server_settings=PLANNED_ONCE)
        await session.execute(ONE_INSTANT)
        await explain(session, claim)  # which finds out what is dead
        plan = await explain(session, claim)
        pages = await session.fetchval(PAGES_OF_READY)
        await session.close()
    (ready,) = (
        node for node in nodes_of(plan) if node["Node Type"] == "LockRows" and node["Actual Rows"]
    )
    assert ready["Actual Rows"] == 5
    assert ready["Shared Hit Blocks"] + ready["Shared Read Blocks"] < pages


@pytest.mark.parametrize(
    "server_mode", [mode for mode in modes() if not mode.portable and not mode.skip_reason], ids=str
)
async def test_a_claim_that_knows_where_its_line_begins_walks_over_nothing(
    databases: Databases, server_mode: Mode
) -> None:
    """Behind an old snapshot, the entries of all that was claimed since stay in the index."""
    claim = case("claim", claims.CLAIM, 5, *claiming(["bulk"], NOON, limit=5, begins=9991))
    async with empty_cell(databases, server_mode) as url:
        session, reader = await asyncpg.connect(url), await asyncpg.connect(url)
        old_snapshot = reader.transaction(isolation="repeatable_read")
        await old_snapshot.start()
        await reader.fetchval("SELECT 1")
        await session.execute(ONE_INSTANT)
        plan = await explain(session, claim)
        pages = await session.fetchval(PAGES_OF_READY)
        await old_snapshot.rollback()
        await session.close()
        await reader.close()
    looks = [node for node in nodes_of(plan) if node.get("Subplan Name") == "CTE lines"]
    assert [look["Shared Hit Blocks"] + look["Shared Read Blocks"] < 20 for look in looks] == [True]
    assert pages > 60


def ordinary_cases() -> Iterator[Case]:
    for cases in (noon_cases, quiet_cases, clock_ahead_cases, retention_cases):
        yield from cases()


async def offences_of_pages(session: Any) -> list[str]:
    """Return where pages touch more than they show, planned as people's questions are."""
    await session.execute("SET plan_cache_mode = force_custom_plan; SET enable_bitmapscan = off")
    found = [
        f"{case.name}: {offence}"
        for case in (*page_cases(), *stats_cases(), *tenant_stats_cases())
        for offence in judge(await explain(session, case), case)
    ]
    await session.execute("RESET enable_bitmapscan")
    return found


def judge(plan: dict[str, Any], case: Case) -> Iterator[str]:
    """Say where a plan touches more than it is about."""
    buffers = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    if buffers > 60 * case.rows + 120:
        yield f"{buffers} buffers for {case.rows} rows"
    for node in nodes_of(plan):
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in BIG_TABLES:
            yield f"reads {node['Relation Name']} whole"
        read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        if (
            read * node["Actual Loops"] > 10 * case.rows + 250
        ):  # what was undone before is dead, and still there
            yield f"{node['Node Type']} reads {read} rows {node['Actual Loops']} times"
    if case.name.startswith("claim"):
        (write,) = (node for node in nodes_of(plan) if node["Node Type"] == "ModifyTable")
        if leftmost(write).get("CTE Name") != "picked":
            yield "does not take connections in one order"


def noon_cases() -> Iterator[Case]:
    """Return what the engine does at noon: 50 connections and 70 jobs are due."""
    fifty = len(DUE)
    yield case("claim", claims.CLAIM, 70, *claiming(PROVIDERS, NOON))
    yield case("claim by type", claims.CLAIM, 70, *claiming(PROVIDERS, NOON, by_type=True))
    yield case("lock_due", schedule.LOCK_DUE, fifty, DUE, LATER)
    yield case("next_due", schedule.NEXT_DUE, fifty, LATER, *BEGINNING, 1000)
    yield case("read_candidates", schedule.READ_CANDIDATES, fifty, DUE)
    yield case("count_overdue", schedule.COUNT_OVERDUE, fifty, DUE, NOON, 86400, 900)
    yield case("enqueue", jobs.ENQUEUE_PLANNED, fifty, *planned_columns())
    yield case(
        *("save_plans", schedule.SAVE_PLANS, fifty, DUE, ["{}"] * fifty, [NOON] * fifty),
        *([NOON] * fifty, NOON),
    )
    yield case("check_later", schedule.CHECK_LATER, fifty, DUE, [NOON] * fifty)
    yield case("lock", connections.LOCK, fifty, DUE)
    yield case("lock_active", connections.LOCK_ACTIVE, fifty, DUE)
    cursors, yes = ["{}"] * fifty, [True] * fifty
    yield case(
        *("save_progress", connections.SAVE_PROGRESS, fifty, DUE, cursors, [None] * fifty),
        *(yes, yes, NOON),
    )
    closing = (READY, [TOKEN] * fifty, NOON)
    yield case("close_empty", jobs.CLOSE_EMPTY, fifty, *closing, on_held_jobs=True)
    brought = ["{}"] * fifty
    yield case("close_pages", jobs.CLOSE_PAGES, fifty, *closing, brought, on_held_jobs=True)
    yield case("cancel_queued", jobs.CANCEL_QUEUED, fifty, DUE, NOON)
    yield case(
        *("close", jobs.CLOSE, fifty, READY, [TOKEN] * fifty, ["succeeded"] * fifty),
        *([0] * fifty, [0] * fifty, [None] * fifty, [NOON] * fifty, [None] * fifty),
        *([True] * fifty, [None] * fifty),
        on_held_jobs=True,
    )
    yield case("ended_backoffs", backoffs.ENDED, 20, PROVIDERS, NOON, 2000, 9000)
    yield case("measure_connection", claims.MEASURE_CONNECTION, 1, DUE[0])
    yield case("read_connection", claims.READ_CONNECTION, 1, DUE[0])
    yield case("renew", claims.RENEW, fifty, READY, [TOKEN] * fifty, LATER, on_held_jobs=True)
    yield case(
        *("take_over", claims.TAKE_OVER, fifty, LATER, NOON, 500, TOKEN, LATER), on_held_jobs=True
    )


def quiet_cases() -> Iterator[Case]:
    """Return what the engine does an hour before, when nothing is due."""
    then = at("10:00")
    yield case("claim of nothing", claims.CLAIM, 0, *claiming(PROVIDERS, then))
    yield case("claim of the unknown", claims.CLAIM, 0, *claiming(["x"], NOON))
    yield case("next_due of nothing", schedule.NEXT_DUE, 0, then, *BEGINNING, 1000)
    yield case("lock_edited of nothing", schedule.LOCK_EDITED, 0, UUID(int=0), 1000)
    yield case("next_edited of nothing", schedule.NEXT_EDITED, 0, UUID(int=0), 1000)
    yield case("lock_left of nothing", schedule.LOCK_LEFT, 0, UUID(int=0), 1000)
    yield case("ended_backoffs of nothing", backoffs.ENDED, 0, PROVIDERS, then, 2000, 9000)
    yield case("bring_checks_back of nothing", schedule.BRING_CHECKS_BACK, 0, at("23:00"), 1000)
    yield case("take_over of nothing", claims.TAKE_OVER, 0, then, then, 500, TOKEN, LATER)


def clock_ahead_cases() -> Iterator[Case]:
    """Return what the engine does once after the clock stood ahead: read what is pending."""
    thousand, ahead, pending = 1000, 39_950, 100_000
    yield case("bring_checks_back", schedule.BRING_CHECKS_BACK, ahead, at("12:30"), thousand)
    nothing, waits = [at("23:00")] * 2, [LATER, at("23:00")]
    for latest in (nothing, waits):
        yield case("pull_back", jobs.PULL_BACK, pending, at("23:00"), NOON, *latest, thousand)
    yield case("stop_sooner", jobs.STOP_SOONER, 0, NOON, thousand)


def retention_cases() -> Iterator[Case]:
    """Return what retention does with the oldest jobs of fifty connections."""
    fifty, five_past = len(DUE), at("11:05")
    first, last = UUID(int=0), UUID(int=2**128 - 1)
    finished = (UUID(f"{ENDED}{0:031x}"), UUID(f"{ENDED}{fifty:031x}"))
    yield case("batch_end", retention.BATCH_END, fifty, first, last, fifty)
    yield case("keep_last", retention.KEEP_LAST, fifty, DUE)
    yield case("prune_jobs", retention.PRUNE_JOBS, fifty, *finished, five_past, five_past)
    yield case("prune_jobs of nothing", retention.PRUNE_JOBS, fifty, *finished, *[at("10:00")] * 2)
    yield case("save_position", retention.SAVE_POSITION, 1, "others", first, None)
    yield case("prune_signals", retention.PRUNE_SIGNALS, fifty, five_past, fifty)
    yield case("prune_signals of nothing", retention.PRUNE_SIGNALS, 0, at("10:00"), fifty)


def page_cases() -> Iterator[Case]:
    """Return pages by the filters that an index leads to."""
    first, last, page = UUID(int=0), UUID(int=2**128 - 1), 50
    nothing = [None] * 5
    one = DUE[0]
    yield case("page", connection_pages.BY_ID, page, *nothing, first, page)
    tenant = ["tenant 7", None, None, None, None]
    yield case("page of tenant", connection_pages.BY_TENANT, page, *tenant, first, page)
    status = [None, None, "paused", None, None]
    yield case("page by status", connection_pages.BY_STATUS, page, *status, first, page)
    yield case("truth of a page", connection_pages.LAST_FINISHED, page, DUE)
    first = UUID(int=0)
    anybody = [*[None] * 14, NOON]
    yield case("jobs", job_pages.BY_ID, page, *anybody, last, first, page)
    of_tenant = ["tenant 7", *anybody[1:]]
    yield case("ended of tenant", job_pages.ENDED_OF_TENANT, page, *of_tenant, last, first, page)
    # By way of the tenant's eighty connections.
    yield case("pending of tenant", job_pages.PENDING_OF_TENANT, 160, *of_tenant, last, first, page)
    failed = [None, None, None, "failed", *anybody[4:]]
    yield case("failed jobs", job_pages.UNSUCCESSFUL_BY_ID, page, *failed, last, first, page)
    history = [None, one, *anybody[2:]]
    yield case("history", job_pages.BY_CONNECTION, page, *history, last, at("23:00"), page)
    yield case("end of a search", job_pages.END_BY_ID, page, last, page)
    yield case("end in a tenant", job_pages.END_OF_TENANT, page, last, page, "tenant 7")
    yield case("end in failed jobs", job_pages.END_OF_UNSUCCESSFUL, page, last, page, "failed")
    due, early = [None, None, None, "due", *anybody[4:]], NOON - timedelta(days=9)
    ready = ["", 32767, early, first, early, NOON]
    yield case("due", queue_pages.READY, page, *due, *ready, page)
    # A page would be full of jobs whose wait ended, but there are only twenty.
    yield case("due again", queue_pages.WAITING, page, *due, "", early, first, early, NOON, page)


def stats_cases() -> Iterator[Case]:
    """Return what the dashboard asks, with bounds of fifty instead of thousands."""
    fifty = len(DUE)
    yield case("statuses", counts.COUNT_STATUS, fifty, ["paused", "error"], fifty)
    yield case("pending", counts.COUNT_PENDING, fifty, fifty)
    yield case("freshness", freshness.SAMPLE, 200, 0.1, 20, fifty)
    yield case("recent attempts", activity.RECENT_ATTEMPTS, fifty, 8, fifty)
    yield case("next runs", activity.NEXT_RUNS, 200, 8, NOON, fifty)
    yield case("latest signals", activity.LATEST_SIGNALS, fifty, fifty, 300)
    yield case("slowest", activity.SLOWEST, fifty, 8, fifty, on_held_jobs=True)
    yield case("waiting for a person", troubles.WAITING_FOR_PERSON, fifty, 8, fifty)
    yield case("failing", troubles.FAILING, fifty, 8, fifty)
    yield case("ready", queue.READY, 70, NOON, fifty)
    yield case("backoff", queue.BACKOFF, 150, NOON, fifty)
    yield case("running", queue.RUNNING, fifty, fifty, on_held_jobs=True)
    yield case("failed", providers.COUNT_FAILED, fifty, UUID(int=0), fifty)
    yield case("affected", providers.COUNT_AFFECTED, 150, ["github"], fifty, None, NOON)
    yield case("names", details.NAMES, fifty, DUE)
    yield case("leases", details.LEASES, fifty, fifty, fifty, on_held_jobs=True)
    yield case("tenants", details.TENANTS, fifty, fifty)
    yield case(
        *("signals of jobs", details.COUNT_SIGNALS_OF_JOBS, fifty),
        *(DUE[0], NOON - timedelta(days=1), fifty),
    )


def tenant_stats_cases() -> Iterator[Case]:
    """Return what a tenant's key asks: eighty connections have a hundred and sixty jobs."""
    fifty, tenant, pending = len(DUE), "tenant 7", 240
    yield case("statuses of tenant", counts.COUNT_STATUS_OF_TENANT, 80, tenant, 80)
    yield case("signals of tenant", counts.COUNT_SIGNALS_OF_TENANT, fifty, tenant, fifty)
    yield case("freshness of tenant", freshness.SAMPLE_OF_TENANT, 400, tenant, 20, fifty)
    yield case(
        "waiting for a person of tenant", troubles.WAITING_FOR_PERSON_OF_TENANT, 80, 8, 80, tenant
    )
    yield case("failing of tenant", troubles.FAILING_OF_TENANT, pending, 8, 80, tenant)
    yield case("queue of tenant", queue.PENDING_OF_TENANT, pending, tenant, NOON, fifty)
    yield case("connections of tenant", providers.COUNT_CONNECTIONS_OF_TENANT, 80, tenant, 80)
    yield case(
        "outcomes of tenant",
        providers.COUNT_OUTCOMES,
        pending,
        fifty,
        UUID(int=0),
        tenant,
    )
    yield case(
        "failed of tenant", providers.COUNT_FAILED_OF_TENANT, fifty, UUID(int=0), fifty, tenant
    )


def claiming(
    providers: list[str], now: datetime, *, limit: int = 100, by_type: bool = False, begins: int = 0
) -> Iterator[Any]:
    """Return the arguments of a claim that knows a line of each provider, and ended backoffs."""
    lines = Lines(providers)
    first = NOON - timedelta(hours=1), UUID(int=begins)
    lines.learn([Look(Line(provider, 0, *first), False, 0) for provider in providers])
    columns = lines.columns(from_start=False)
    yield from (providers, now, limit, 1, by_type, TOKEN, LEASE)
    yield from (list(column) for column in (*columns.known, *columns.gaps))
    yield WAITED if now >= NOON and providers == PROVIDERS else []
    yield from (False, 1, [], [], None, 0)  # no cap is held, and no job was chosen


def planned_columns() -> tuple[list[Any], ...]:
    numbers = range(39951, 40001)
    return (
        [UUID(int=n) for n in numbers],
        [f"tenant {n % 500}" for n in numbers],
        [f"provider {n % 3}" for n in numbers],
        DUE,
        [NOON] * len(DUE),
        [NOON] * len(DUE),
    )


def case(name: str, statement: str, rows: int, *arguments: Any, on_held_jobs: bool = False) -> Case:
    written = tuple(literal(argument) for argument in arguments)
    return Case(name, fill_in(statement, "syncline"), written, rows, on_held_jobs)


def literal(value: Any) -> str:
    """Return the value as SQL without a type, so that it takes the one that is expected."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        items = (item if item is None else f'"{plain(item)}"' for item in value)
        value = f"{{{','.join(item or 'NULL' for item in items)}}}"
    return f"'{plain(value)}'"


def plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


async def explain(session: Any, case: Case, prepared: str | None = None) -> dict[str, Any]:
    """Run a statement as a prepared one, undo it, and return its plan."""
    undo = session.transaction()
    await undo.start()
    if case.on_held_jobs:
        await session.execute(HOLD, READY, NOON, TOKEN)
    if prepared is None:
        await session.execute(f"PREPARE explained AS {case.statement}")
    execute = f"EXECUTE {prepared or 'explained'} ({', '.join(case.arguments)})"
    explained = await session.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {execute}")
    if prepared is None:
        await session.execute("DEALLOCATE explained")
    await undo.rollback()
    plan: dict[str, Any] = json.loads(explained)[0]["Plan"]
    return plan


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes_of(child)


def leftmost(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the node that drives a plan; its CTEs stand apart."""
    inner = [child for child in plan.get("Plans", ()) if child["Parent Relationship"] == "Outer"]
    return leftmost(inner[0]) if inner else plan


@asynccontextmanager
async def large_cell(databases: Databases, mode: Mode) -> AsyncIterator[Any]:
    async with empty_cell(databases, mode) as url:
        session = await asyncpg.connect(url)
        await session.execute(LARGE_CELL)
        yield session
        await session.close()


@asynccontextmanager
async def empty_cell(databases: Databases, mode: Mode) -> AsyncIterator[str]:
    server = databases.server(mode)
    url = server.create_database()
    async with open_world(url) as world:
        await world.engine.migrate()
    yield url
    server.drop_database(url)
