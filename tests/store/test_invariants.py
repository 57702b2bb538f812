"""Each invariant has eyes: rows that break it are found, and nothing else is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.world import World, at
from syncline import Settings, SyncResult
from syncline.model import Finding
from syncline.store.checks import invariants
from syncline.store.checks.invariants import INVARIANTS, Yardstick
from syncline.store.pool import Transaction
from syncline.store.statements import Statements

NOW = at("12:00")
RULES = Settings().scheduler.rules
YARDSTICK = Yardstick(
    now=NOW,
    two_ticks_ago=at("11:58"),
    rules=RULES,
    lease=timedelta(seconds=30),
    longest_wait=timedelta(hours=26),
)

# What a person, or a bug, can do to one connection: the names that it breaks, and the statements.
JOB = """
    INSERT INTO {schema}.sync_jobs (tenant_id, provider_slug, connection_id, scheduled_at, job_type,
                                    status, %s)
    SELECT tenant_id, provider_slug, id, '2025-01-01 11:00Z', 'full', %s
      FROM {schema}.connections
"""
SIGNAL = """
    INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, kind, dedupe_key)
    SELECT tenant_id, %s, id, 'issue', 'one' FROM {schema}.connections
"""
LEASE = "lease_token, lease_expires_at, started_at"
HELD = "gen_random_uuid(), '2025-01-01 %sZ', '2025-01-01 %sZ'"
LEFT_BEHIND = """
    UPDATE {schema}.connections
       SET look_at = '2025-01-01 10:15Z', last_finished_at = '2025-01-01 10:00Z',
           updated_at = '2025-01-01 10:00Z'
"""
BREAKING: dict[str, tuple[set[str], tuple[str, ...]]] = {
    "an overdrawn budget": (
        {"budgets_kept"},
        (
            "INSERT INTO {schema}.budget_buckets VALUES ('app', '', 0, 1, now(), now(), now(),"
            " NULL, NULL, now(), 101, 100, 3600)",
        ),
    ),
    "two queued jobs": (
        {"guards_stand", "one_pending_job"},
        (
            "DROP INDEX {schema}.idx_sync_jobs_connection_type_status",
            JOB % ("priority", "'queued', 0"),
            JOB % ("priority", "'queued', 1"),
        ),
    ),
    "a job too many under a cap": (
        {"caps_hold"},
        (
            "INSERT INTO {schema}.caps (tenant_id, max_running, set_at)"
            " SELECT tenant_id, 0, '2025-01-01 11:59Z' FROM {schema}.connections",
            JOB % (LEASE, "'running', " + HELD % ("12:00:30", "12:00")),
        ),
    ),
    "two running jobs": (
        {"guards_stand", "single_flight"},
        (
            "DROP INDEX {schema}.sync_jobs_single_flight",
            JOB % (LEASE, "'running', " + HELD % ("12:00:30", "12:00")),
            JOB.replace("'full'", "'webhook'") % (LEASE, "'running', " + HELD % ("13:00", "12:00")),
        ),
    ),
    "a guard that is not unique": (
        {"guards_stand"},
        (
            "DROP INDEX {schema}.signals_dedupe",
            "CREATE INDEX signals_dedupe ON {schema}.signals (connection_id, dedupe_key)",
        ),
    ),
    "no foreign key": (
        {"guards_stand"},
        ("ALTER TABLE {schema}.sync_jobs DROP CONSTRAINT sync_jobs_connection",),
    ),
    "running unheld": (
        {"running_has_lease"},
        (JOB % ("started_at", "'running', '2025-01-01 12:00Z'"),),
    ),
    "half a lease": (
        {"running_has_lease"},
        (JOB % ("lease_token", "'running', gen_random_uuid()"),),
    ),
    "held in the queue": (
        {"running_has_lease"},
        (JOB % (LEASE, "'queued', " + HELD % ("12:00:30", "12:00")),),
    ),
    "held after the end": (
        {"running_has_lease"},
        (JOB % ("finished_at, lease_token", "'failed', '2025-01-01 11:00Z', gen_random_uuid()"),),
    ),
    "finished without a time": (
        {"finished_has_time"},
        (JOB % ("priority", "'cancelled', 0"),),
    ),
    "pending with a finish time": (
        {"finished_has_time"},
        (JOB % ("finished_at", "'queued', '2025-01-01 11:00Z'"),),
    ),
    "a lapsed lease beside a living worker": (
        {"lapse_is_reaped"},
        (
            JOB % (LEASE, "'running', " + HELD % ("11:00:30", "11:00")),
            """
            INSERT INTO {schema}.connections (id, tenant_id, provider_slug, external_id)
            VALUES ('00000000-0000-0000-0000-000000000002', 'acme', 'github', 'another')
            """,
            JOB % (LEASE, "'running', " + HELD % ("12:00:20", "11:59"))
            + " WHERE external_id = 'another'",
        ),
    ),
    "five lapses": (
        {"poison_is_stopped"},
        (JOB % ("lapses", "'queued', 5"),),
    ),
    "a wait of a week": (
        {"wait_is_bounded"},
        (JOB % ("attempts, retry_after", "'queued', 3, '2025-01-08 12:00Z'"),),
    ),
    "a signal stored twice": (
        {"guards_stand", "signal_once"},
        (
            "DROP INDEX {schema}.signals_dedupe",
            SIGNAL % "provider_slug",
            SIGNAL % "provider_slug",
        ),
    ),
    "a stream that went on without its connection": (
        {"stream_agrees"},
        (
            'UPDATE {schema}.connections SET metadata = \'{"sync": {"cursor": 3}}\'',
            JOB.replace("'full'", "'incremental'")
            % (f"{LEASE}, committed_pages, cursor", f"'running', {HELD}, 2, '4'")
            % ("12:00:30", "12:00"),
        ),
    ),
    "a stream that waits elsewhere than its connection": (
        {"stream_agrees"},
        (
            JOB.replace("'full'", "'incremental'")
            % ("started_at, committed_pages, cursor", "'queued', '2025-01-01 11:00Z', 2, '4'"),
        ),
    ),
    "a start after the published jitter": (
        {"plan_agrees"},
        (
            "UPDATE {schema}.connections"
            ' SET metadata = \'{"sync": {"last_jitter_seconds": 3599}}\'',
            JOB % ("slot_at", "'queued', '2025-01-01 10:00Z'"),
        ),
    ),
    "left behind": ({"scheduled_in_time"}, (LEFT_BEHIND,)),
    "never scheduled": (
        {"scheduled_in_time"},
        (
            "UPDATE {schema}.connections"
            " SET created_at = '2025-01-01 11:00Z', updated_at = '2025-01-01 11:00Z',"
            " look_at = '1970-01-01 00:00Z'",
        ),
    ),
    "looked at too late": (
        {"looked_at_in_time"},
        (
            "UPDATE {schema}.connections SET last_finished_at = '2025-01-01 11:59Z',"
            " look_at = '2025-01-01 12:14:01Z'",
        ),
    ),
    "a signal of another provider": ({"tenants_agree"}, (SIGNAL % "'gitlab'",)),
    "a job of another tenant": (
        {"guards_stand", "tenants_agree"},
        (
            "ALTER TABLE {schema}.sync_jobs DROP CONSTRAINT sync_jobs_connection",
            JOB % ("priority", "'queued', 0"),
            "UPDATE {schema}.sync_jobs SET tenant_id = 'globex'",
        ),
    ),
}


class Stage:
    """A session in a transaction of its own, which is undone in the end."""

    def __init__(self, session: Any, world: World) -> None:
        self._session = session
        self._world = world

    async def do(self, *statements: str) -> None:
        for statement in statements:
            await self._session.execute(self._world.qualified(statement))

    @asynccontextmanager
    async def undone(self) -> AsyncIterator[None]:
        """Undo what is done meanwhile."""
        savepoint = self._session.transaction()
        await savepoint.start()
        yield
        await savepoint.rollback()

    async def broken(self, yardstick: Yardstick = YARDSTICK) -> dict[str, Finding]:
        tx = Transaction(self._session, Statements(self._world.settings.schema))
        judged = await invariants.judge(tx, yardstick)
        return {found.name: found for found in judged if found.verdict == invariants.BROKEN}


@pytest.fixture
async def stage(world: World) -> AsyncIterator[Stage]:
    """A sound connection with a finished job, made of rows alone."""
    async with world.session() as session:
        transaction = session.transaction()
        await transaction.start()
        stage = Stage(session, world)
        await stage.do(
            """
            INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id, look_at)
            VALUES ('acme', 'github', 'one', '2025-01-01 12:00Z')
            """,
        )
        yield stage
        await transaction.rollback()


async def test_what_breaks_an_invariant_is_found(stage: Stage) -> None:
    assert await stage.broken() == {}
    for case, (names, statements) in BREAKING.items():
        async with stage.undone():
            await stage.do(*statements)
            found = await stage.broken()
        assert set(found) == names, case
        assert all(violation.rows and violation.sentence for violation in found.values()), case


def test_every_invariant_has_a_case_that_breaks_it() -> None:
    covered = set().union(*(names for names, _ in BREAKING.values()))
    assert covered == {invariant.name for invariant in INVARIANTS}


async def test_only_a_few_rows_are_shown(stage: Stage) -> None:
    await stage.do(
        """
        INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, kind)
        SELECT 'globex', 'github', id, 'issue'
          FROM {schema}.connections, generate_series(1, 100)
        """
    )
    assert len((await stage.broken())["tenants_agree"].rows) == invariants.SHOWN


async def test_of_what_only_grows_the_newest_are_read(stage: Stage) -> None:
    old = JOB.replace("(tenant_id", "(id, tenant_id").replace(
        "SELECT tenant_id", "SELECT '00000000-0000-0000-0000-000000000001', tenant_id"
    )
    await stage.do(old % ("priority", "'failed', 0"), JOB % ("finished_at", "'failed', now()"))

    assert await stage.broken(replace(YARDSTICK, newest=1)) == {}
    assert set(await stage.broken(replace(YARDSTICK, newest=2))) == {"finished_has_time"}


async def test_scheduling_is_not_judged_before_a_scheduler_has_ticked_for_a_while(
    world: World,
) -> None:
    await world.connection(created="10:00", last_finished="10:00")
    await world.sql(LEFT_BEHIND.replace("{schema}", "syncline"))
    assert await world.engine.verify() == []

    await world.sql(
        "INSERT INTO {schema}.schedulers VALUES (gen_random_uuid(), $1, $2)", at("10:00"), NOW
    )
    assert [found.name for found in await world.engine.verify()] == ["scheduled_in_time"]


async def test_a_scheduler_that_was_away_begins_anew(world: World) -> None:
    """What it found overdue on its return is not held against it."""
    await world.tick("10:00")
    connection = await world.connection(created="10:00", last_finished="10:00")
    await world.sql("UPDATE {schema}.connections SET updated_at = $1", at("10:00"))

    async with world.session() as elsewhere, elsewhere.transaction():
        # Somebody keeps the connection from the tick, which has just come back.
        await elsewhere.execute("SELECT FROM syncline.connections FOR UPDATE")
        await world.tick("11:00")
        assert await world.engine.verify() == []

    await world.tick("11:01")
    assert (await world.pending(connection)).status == "queued"


async def test_a_connection_that_somebody_holds_is_not_held_against_the_tick(world: World) -> None:
    """Nor is it just after, when the tick has not come by again."""
    for minute in range(5):
        await world.tick(f"12:{minute:02}")
    connection = await world.connection(created="10:00", last_finished="10:00")
    await world.sql("UPDATE {schema}.connections SET updated_at = $1", at("10:00"))
    await world.sql("UPDATE {schema}.connections SET look_at = $1", at("10:15"))

    async with world.session() as elsewhere, elsewhere.transaction():
        await elsewhere.execute("SELECT FROM syncline.connections FOR UPDATE")
        await world.tick("12:05")
        assert await world.engine.verify() == []
    assert await world.engine.verify() == []

    await world.tick("12:06")
    assert (await world.pending(connection)).status == "queued"


async def test_a_scheduler_that_ticks_no_more_excuses_nobody(world: World) -> None:
    """What it once found held may have been left behind since."""
    await world.connection(created="10:00", last_finished="10:00")
    await world.sql(LEFT_BEHIND.replace("{schema}", "syncline"))
    await world.sql(
        "INSERT INTO {schema}.schedulers SELECT gen_random_uuid(), $1::timestamptz,"
        " $2::timestamptz, '{}'"
        " UNION ALL SELECT gen_random_uuid(), $1, $1, array_agg(id) FROM {schema}.connections",
        *(at("10:00"), NOW),
    )

    assert [found.name for found in await world.engine.verify()] == ["scheduled_in_time"]


async def test_an_edited_interval_is_not_held_against_the_tick(stage: Stage) -> None:
    """How long ago it was edited cannot be known."""
    await stage.do(
        LEFT_BEHIND,
        "UPDATE {schema}.connections SET last_finished_at = '2025-01-01 11:50Z'",
        'UPDATE {schema}.connections SET metadata = \'{"sync": {"interval_seconds": 60}}\'',
    )
    assert await stage.broken() == {}

    await stage.do("UPDATE {schema}.connections SET interval_planned = '60'")
    assert set(await stage.broken()) == {"scheduled_in_time"}


async def test_a_connection_resumed_by_sql_is_left_to_the_next_tick(stage: Stage) -> None:
    await stage.do(
        LEFT_BEHIND, "UPDATE {schema}.connections SET look_at = '1970-01-01 00:00:00+00'"
    )
    assert await stage.broken() == {}


async def test_work_in_flight_breaks_nothing(world: World) -> None:
    connection = await world.connection()
    await world.tick()
    async with world.during_run(SyncResult(next_cursor=1)):
        assert await world.engine.verify() == []
        await world.engine.trigger(connection.id, job_type="full")
        async with world.session() as session, session.transaction():
            await session.execute("UPDATE syncline.sync_jobs SET lease_token = NULL")
            assert await world.engine.verify() == []
