"""Migrations, and what the schema they make promises."""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from support.databases import Databases, Mode, modes
from support.fakes import eventually
from support.rights import as_role, connected, documented_roles
from support.world import at
from syncline import Engine, Settings, Signal, SyncResult
from syncline.clock import monotonic
from syncline.errors import SchemaError
from syncline.model import JobFilter
from syncline.services.connections import NewConnection
from syncline.services.edits import Edit
from syncline.store.migrate import (
    CREATE_LEDGER,
    LOCK_TIMEOUT,
    SAME_EFFECT,
    known_migrations,
    migrate,
)
from syncline.store.pool import Pool
from syncline.testing import ManualClock, ScriptedConnector

KNOWN = [f"{migration.version:04}_{migration.name}" for migration in known_migrations()]
NEWEST = known_migrations()[-1].version
BEFORE = max((one.version for one in known_migrations()[:-1]), default=0)
# Quotes of both kinds, what templates and statements replace, and the longest name.
ODD_NAMES = ["""My "{schema}" isn't $1, %s;--""", "схема-😀", "x" * 63]
EMBEDDED = modes()[0]
HOLD_LEDGER = "LOCK TABLE syncline.schema_migrations IN ROW EXCLUSIVE MODE"
SOMEBODY_WAITS = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    """A database of its own, without the schema."""
    with databases.lend(EMBEDDED) as url:
        yield url


@pytest.fixture
def migrated(databases: Databases) -> Iterator[str]:
    """A database of its own, with the schema."""
    with databases.lend(EMBEDDED, "syncline") as url:
        yield url


@pytest.fixture
async def session(url: str) -> AsyncIterator[Any]:
    async with connected(url) as session:
        yield session


@pytest.fixture
async def owner(migrated: str) -> AsyncIterator[Any]:
    async with connected(migrated) as owner:
        yield owner


@asynccontextmanager
async def open_engine(
    url: str, *connectors: ScriptedConnector, **settings: Any
) -> AsyncIterator[Engine]:
    clock = ManualClock(at("12:00"))
    async with Engine(Settings(database_url=url, **settings), connectors, clock) as engine:
        yield engine


async def test_a_fresh_database_gets_every_migration_once(databases: Databases, mode: Mode) -> None:
    with databases.lend(mode) as url:
        async with open_engine(url) as engine:
            assert await engine.migrate() == KNOWN
            assert await engine.migrate() == []
            assert await engine.health() == {}

        async with connected(url) as session:
            rows = await session.fetch("SELECT * FROM syncline.schema_migrations ORDER BY version")
    assert [f"{row['version']:04}_{row['name']}" for row in rows] == KNOWN
    assert all(re.fullmatch("[0-9a-f]{64}", row["checksum"]) for row in rows)


async def test_an_applied_migration_that_was_changed_is_refused(migrated: str, owner: Any) -> None:
    await owner.execute("UPDATE syncline.schema_migrations SET checksum = 'x'")
    async with open_engine(migrated) as engine:
        with pytest.raises(SchemaError) as refused:
            await engine.migrate()

    assert str(refused.value) == (
        f"migration {KNOWN[0]} was changed after it was applied; "
        "migrations are never edited, add a new one"
    )


async def test_an_earlier_text_of_a_migration_that_did_the_same_counts_as_applied(
    migrated: str, owner: Any
) -> None:
    for version, checksum in SAME_EFFECT.items():
        await owner.execute(
            "UPDATE syncline.schema_migrations SET checksum = $2 WHERE version = $1",
            version,
            checksum,
        )

    async with open_engine(migrated) as engine:
        assert await engine.migrate() == []


async def test_a_migration_that_fails_leaves_nothing_behind(pool: Pool, session: Any) -> None:
    await session.execute("CREATE TABLE syncline.signals ()")

    with pytest.raises(SchemaError) as refused:
        await migrate(pool, tries=1)

    assert str(refused.value) == (
        "schema 'syncline' could not be migrated: relation \"signals\" already exists"
    )
    tables = await session.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'syncline'")
    assert {row["tablename"] for row in tables} == {"signals", "schema_migrations"}
    assert await session.fetchval("SELECT count(*) FROM syncline.schema_migrations") == 0


@pytest.fixture
async def pool(url: str, session: Any) -> AsyncIterator[Pool]:
    """A pool on a schema to which nothing has been applied yet."""
    await session.execute("CREATE SCHEMA syncline")
    await session.execute(CREATE_LEDGER.replace("{schema}", "syncline"))
    pool = Pool(url, "syncline", size=1)
    await pool.open()
    yield pool
    await pool.close()


async def test_a_lock_that_somebody_keeps_is_not_waited_for_long(pool: Pool, session: Any) -> None:
    began = monotonic()

    async with session.transaction():
        await session.execute(HOLD_LEDGER)
        with pytest.raises(SchemaError) as refused:
            await migrate(pool, tries=2, lock_timeout=timedelta(milliseconds=50))

    assert str(refused.value) == (
        "schema 'syncline' could not be migrated: another session kept its tables locked"
    )
    assert monotonic() - began < 5
    assert timedelta(seconds=3) >= LOCK_TIMEOUT, "claims wait behind whoever waits for a table"


async def test_a_lock_that_somebody_lets_go_is_waited_for(
    url: str, pool: Pool, session: Any
) -> None:
    async with session.transaction():
        await session.execute(HOLD_LEDGER)
        migrating = asyncio.create_task(migrate(pool))
        await eventually(lambda: session.fetchval(SOMEBODY_WAITS))

    assert await migrating == KNOWN


def calls(engine: Engine) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Return every public call of an engine, by its name, with arguments that would do."""
    values: dict[str, Any] = {
        "connection_id": uuid4(),
        "job_id": uuid4(),
        "signal_id": uuid4(),
        "edit": Edit(interval_seconds=300),
        "tenant_id": "acme",
        "tenant_ids": ["acme"],
        "provider_slug": "tickets",
        "external_id": "a-1",
        "interval_seconds": 300,
        "cursor": {"page": 1},
        "config": {"a": 1},
        "credentials": None,
        "handle_signals": False,
        "ids": [uuid4()],
        "shown": [SimpleNamespace(started_at=at("12:00"))],
        "wanted": [NewConnection("acme", "tickets", "a-1")],
        "new": NewConnection("acme", "tickets", "a-1"),
        "which": JobFilter(),
        "states": ["failed"],
        "text": "acme",
    }
    found: dict[str, Callable[[], Awaitable[Any]]] = {}
    for owner, prefix in (
        (engine, ""),
        (engine.connections, "connections."),
        (engine.jobs, "jobs."),
        (engine.signals, "signals."),
        (engine.secrets, "secrets."),
        (engine.workers, "workers."),
        (engine.tenants, "tenants."),
        (engine.stats, "stats."),
        (engine.search, "search."),
        (engine.doctor, "doctor."),
    ):
        for name, method in inspect.getmembers(owner, inspect.iscoroutinefunction):
            if name.startswith("_"):
                continue
            needed = {
                parameter.name: values[parameter.name]
                for parameter in inspect.signature(method).parameters.values()
                if parameter.kind is not parameter.VAR_KEYWORD
                and (parameter.default is parameter.empty or parameter.name == "handle_signals")
            }
            if prefix + name in ("connections.pause", "connections.resume"):
                needed["connection_id"] = values["connection_id"]  # one of three that may be named
            found[prefix + name] = partial(method, **needed)
    return found


async def check_every_call_raises(engine: Engine, line: str) -> None:
    refusals = {}
    everything = calls(engine)
    known = {
        "migrate",
        "health",
        "tick",
        "run_due",
        "run",
        "verify",
        "jobs.retry",
        "stats.overview",
    }
    assert known <= set(everything)
    for name in everything.keys() - {"migrate", "health"}:
        with pytest.raises(SchemaError) as refused:
            await everything[name]()
        refusals[name] = str(refused.value)

    assert refusals == dict.fromkeys(refusals, line)
    assert await engine.health() == {"database": f"SchemaError: {line}"}


@pytest.mark.parametrize("schema", ["syncline", "My Schema"])
async def test_without_the_schema_every_call_but_migrate_says_so(url: str, schema: str) -> None:
    async with open_engine(url, schema=schema) as engine:
        await check_every_call_raises(
            engine, f"schema {schema!r} has no Syncline tables yet: run `syncline migrate`"
        )
        await engine.migrate()

        assert (await engine.tick()).scheduled == 0
        assert await engine.health() == {}


async def test_on_an_older_schema_every_call_but_migrate_says_so(migrated: str, owner: Any) -> None:
    await owner.execute("DELETE FROM syncline.schema_migrations WHERE version = $1", NEWEST)

    async with open_engine(migrated) as engine:
        await check_every_call_raises(
            engine,
            f"schema 'syncline' is at version {BEFORE}, this Syncline needs {NEWEST}: "
            "run `syncline migrate`",
        )


async def test_a_newer_schema_is_worked_on(migrated: str, owner: Any) -> None:
    await add_newer_migration(owner, requires=NEWEST)

    async with open_engine(migrated) as engine:
        assert await engine.migrate() == []
        assert (await engine.tick()).scheduled == 0
        assert await engine.health() == {}


async def test_a_newer_schema_that_breaks_this_version_is_refused(
    migrated: str, owner: Any
) -> None:
    await add_newer_migration(owner, requires=NEWEST + 1)

    async with open_engine(migrated) as engine:
        await check_every_call_raises(
            engine,
            f"schema 'syncline' is at version {NEWEST + 2}, which this Syncline "
            f"(version {NEWEST}) cannot work on: install a newer one",
        )


async def add_newer_migration(owner: Any, *, requires: int) -> None:
    await owner.execute(
        "INSERT INTO syncline.schema_migrations (version, name, checksum, requires)"
        " VALUES ($1, 'tomorrow', 'x', $2)",
        NEWEST + 2,
        requires,
    )


async def live(url: str, **settings: Any) -> None:
    """Let an engine do everything it can once: run, page, fail, reap, retry, change, delete."""
    signal = Signal("seen", at("11:00"), {"n": 1}, dedupe_key="1")
    connector = ScriptedConnector(
        "tickets", [SyncResult([signal], 1, True), SyncResult([signal], 2)]
    )
    async with open_engine(url, connector, **settings) as engine:
        created = await engine.connections.create(
            tenant_id="acme", provider_slug="tickets", external_id="a-1", interval_seconds=300
        )
        assert (await engine.tick()).scheduled == 1
        assert await engine.run_due() == 2
        assert len(await engine.signals.list(tenant_id="acme")) == 1
        connector.script.append(OSError("away"))
        job = await engine.trigger(created.id)
        assert await engine.run_due() == 1
        assert (await engine.jobs.retry(job.id)).retry_after is None
        await engine.jobs.cancel(job.id)
        await engine.connections.set_interval(created.id, 600)
        await engine.connections.set_cursor(created.id, 3)
        await engine.connections.pause(created.id)
        await engine.connections.resume(created.id)
        assert (await engine.stats.overview()).counts.signals.count == 1
        await engine.stats.activity()
        assert await engine.verify() == []
        running = asyncio.create_task(engine.run(handle_signals=False))
        connector.script.append(SyncResult(next_cursor=4))
        await engine.trigger(created.id)
        await eventually(lambda: not connector.script)
        engine.stop()
        assert await running
        await engine.connections.delete(created.id)
        assert await engine.connections.list() == []
        assert await engine.signals.list() == []


@pytest.mark.parametrize("schema", ODD_NAMES)
async def test_any_schema_will_do(url: str, schema: str) -> None:
    async with open_engine(url, schema=schema) as engine:
        assert await engine.migrate() == KNOWN

    await live(url, schema=schema)


async def test_nothing_is_made_outside_of_the_schema(url: str, session: Any) -> None:
    everything = (
        "SELECT relnamespace::regnamespace::text AS schema, relname FROM pg_class"
        " WHERE relnamespace::regnamespace::text !~ '^pg_toast|^\"My Schema\"'"
        " UNION ALL SELECT pronamespace::regnamespace::text, proname FROM pg_proc"
        " WHERE pronamespace::regnamespace::text <> '\"My Schema\"' ORDER BY 1, 2"
    )
    before = await session.fetch(everything)

    async with open_engine(url, schema="My Schema") as engine:
        await engine.migrate()

    assert await session.fetch(everything) == before


async def test_the_documented_rights_are_enough(databases: Databases, mode: Mode) -> None:
    with databases.lend(mode, "syncline") as url:
        async with documented_roles(url):
            await check_documented_rights(url)


async def check_documented_rights(url: str) -> None:
    await live(as_role(url, "syncline_app"))

    async with open_engine(as_role(url, "syncline_app")) as engine:
        assert await engine.migrate() == [], "where nothing is missing, no right is needed"
    await check_what_the_application_may_not(as_role(url, "syncline_app"))
    await check_that_a_reader_only_reads(as_role(url, "syncline_reader"))


async def check_what_the_application_may_not(url: str) -> None:
    async with connected(url) as session:
        for statement in (
            "CREATE TABLE syncline.x ()",
            "CREATE TABLE public.x ()",
            "DROP TABLE syncline.signals",
            "TRUNCATE syncline.signals",
            "UPDATE syncline.signals SET payload = '{}'",
            "DELETE FROM syncline.schema_migrations",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await session.execute(statement)


async def check_that_a_reader_only_reads(url: str) -> None:
    async with connected(url) as session:
        for table in ("connections", "sync_jobs", "signals"):
            assert await session.fetch(f"SELECT * FROM syncline.{table}") == []
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await session.execute(f"DELETE FROM syncline.{table}")


async def test_a_role_without_rights_is_told_what_it_lacks(migrated: str, owner: Any) -> None:
    await owner.execute("CREATE ROLE syncline_stranger LOGIN")
    try:
        async with open_engine(as_role(migrated, "syncline_stranger")) as engine:
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied"):
                await engine.tick()
    finally:
        await owner.execute("DROP ROLE syncline_stranger")
