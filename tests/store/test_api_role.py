"""Row-level security for the role that requests take on: what it sees, and how it comes to be."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from support.databases import Databases, Mode
from support.rights import connected
from syncline import Engine, Settings
from syncline.errors import SchemaError
from syncline.policy.doctor import Verdict
from syncline.store.api_role import OWN_TENANT, TABLES, role_name
from syncline.store.pool import Pool, SchemaChecks, SessionOptions

ROLE = "syncline_api"
OWN_ROWS = [table.name for table in TABLES if table.visible == OWN_TENANT]
DELETED_FROM = [table.name for table in TABLES if "DELETE" in table.rights]
OUT_OF_REACH = ("api_keys", "api_sessions", "prune_walks", "schema_migrations", "server_starts")
TWO_TENANTS = """
    INSERT INTO syncline.connections (tenant_id, provider_slug, external_id)
    VALUES ('acme', 'github', 'a'), ('birch', 'github', 'b');
    INSERT INTO syncline.sync_jobs (tenant_id, provider_slug, connection_id)
    SELECT tenant_id, provider_slug, id FROM syncline.connections;
    INSERT INTO syncline.signals (tenant_id, provider_slug, connection_id, kind)
    SELECT tenant_id, provider_slug, id, 'seen' FROM syncline.connections;
    INSERT INTO syncline.job_attempts (job_id, ended_at, id, tenant_id, connection_id, error, calls,
                                       call_count, signals)
    SELECT id, now(), id, tenant_id, connection_id, '{}', '[]', 0, 0 FROM syncline.sync_jobs;
    INSERT INTO syncline.credentials (connection_id, tenant_id, key_id, sealed)
    SELECT id, tenant_id, 'k', 'x' FROM syncline.connections;
    INSERT INTO syncline.api_requests (scope, idempotency_key, digest, created_at, tenant_id)
    SELECT tenant_id, 'once', sha256(''), now(), tenant_id FROM syncline.connections;
    INSERT INTO syncline.tenant_usage (tenant_id) SELECT tenant_id FROM syncline.connections;
    INSERT INTO syncline.tenant_shares (tenant_id) SELECT tenant_id FROM syncline.connections;
    INSERT INTO syncline.caps (tenant_id, max_running)
    SELECT tenant_id, 9 FROM syncline.connections;
    INSERT INTO syncline.bulk_actions (id, tenant_id, target, action, filter, options, actor,
                                       expected, started_at)
    SELECT gen_random_uuid(), tenant_id, 'connections', 'pause', '{}', '{}', '{}', 1, now()
      FROM syncline.connections;
    INSERT INTO syncline.tenant_pauses (tenant_id) SELECT tenant_id FROM syncline.connections;
    INSERT INTO syncline.audit (id, acted_at, actor_kind, actor, action, tenant_id)
    SELECT gen_random_uuid(), now(), 'key', 'k', 'connections.pause', tenant_id
      FROM syncline.connections;
    INSERT INTO syncline.schedulers VALUES (gen_random_uuid(), now(), now());
    INSERT INTO syncline.workers (id, host, pid, version, roles, providers, slots, busy, stopping,
                                  started_at, beat_at)
    VALUES (gen_random_uuid(), 'host', 1, '1', '{}', '{}', 1, 0, false, now(), now());
"""
# By statements that forget to ask whose rows they are.
CHANGES = {
    "connections": "metadata = '{\"stolen\": true}'",
    "sync_jobs": "priority = 9",
    "credentials": "sealed = 'stolen'",
    "api_requests": "answer = 'stolen'",
    "tenant_usage": "stored_bytes = 0",
    "tenant_shares": "weight = 9",
    "caps": "max_running = 0",
}
ODD_TENANTS = (
    *("acme", "it's", "back\\slash", "\\", "'; RESET ROLE; --"),
    *("$$", "схема-😀", "x" * 255, " "),
)
NEW_ROWS = {
    "connections": "(tenant_id, provider_slug, external_id) VALUES ($1, 'github', 'new')",
    "sync_jobs": "(tenant_id, provider_slug, connection_id, job_type)"
    " SELECT $1, 'github', id, 'full' FROM syncline.connections",
    "credentials": "(tenant_id, connection_id, key_id, sealed)"
    " VALUES ($1, gen_random_uuid(), 'k', 'x')",
    "api_requests": "(scope, idempotency_key, digest, created_at, tenant_id)"
    " VALUES ('new', 'new', sha256(''), now(), $1)",
    "tenant_usage": "(tenant_id) VALUES ($1)",
    "tenant_shares": "(tenant_id) VALUES ($1)",
    "caps": "(tenant_id, max_running) VALUES ($1, 1)",
}


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[Any]:
    """A session of the tables' owner, with rows of two tenants in every table."""
    session = await asyncpg.connect(database_url)
    await session.execute(TWO_TENANTS)
    yield session
    await session.close()


@asynccontextmanager
async def as_role(session: Any, tenant: str | None) -> AsyncIterator[Any]:
    """Be the requests' role within a transaction that leaves nothing behind."""
    transaction = session.transaction()
    await transaction.start()
    try:
        await session.execute(f"SET LOCAL ROLE {ROLE}")
        if tenant is not None:
            await session.execute("SELECT set_config('syncline.tenant_id', $1, true)", tenant)
        yield session
    finally:
        await transaction.rollback()


async def test_without_a_tenant_nothing_is_seen(owner: Any) -> None:
    for tenant in (None, ""):
        async with as_role(owner, tenant) as session:
            for table in TABLES:
                seen = await session.fetch(f"SELECT * FROM syncline.{table.name}")
                assert seen == [], (tenant, table.name)


async def test_a_tenant_sees_its_own_rows_without_asking_for_them(owner: Any) -> None:
    async with as_role(owner, "acme") as session:
        for table in OWN_ROWS:
            rows = await session.fetch(f"SELECT tenant_id FROM syncline.{table}")
            assert [row["tenant_id"] for row in rows] == ["acme"], table


async def test_an_operator_sees_every_row(owner: Any) -> None:
    async with as_role(owner, "*") as session:
        for table in OWN_ROWS:
            assert await session.fetchval(f"SELECT count(*) FROM syncline.{table}") == 2, table


async def test_a_foreign_row_is_not_changed_by_an_update_of_everything(owner: Any) -> None:
    for table, change in CHANGES.items():
        async with as_role(owner, "acme") as session:
            done = await session.execute(f"UPDATE syncline.{table} SET {change}")
            assert done == "UPDATE 1", table


async def test_a_foreign_row_is_not_deleted_by_a_delete_of_everything(owner: Any) -> None:
    for table in DELETED_FROM:
        async with as_role(owner, "acme") as session:
            assert await session.execute(f"DELETE FROM syncline.{table}") == "DELETE 1", table

            await session.execute("RESET ROLE")
            rows = await session.fetch(f"SELECT tenant_id FROM syncline.{table}")
            assert [row["tenant_id"] for row in rows] == ["birch"], table


async def test_a_row_cannot_be_given_to_another_tenant(owner: Any) -> None:
    for table, new_row in NEW_ROWS.items():
        for statement in (
            f"INSERT INTO syncline.{table} {new_row}",
            f"UPDATE syncline.{table} SET tenant_id = $1",
        ):
            async with as_role(owner, "acme") as session:
                with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                    await session.execute(statement, "birch")


async def test_a_tenant_adds_to_the_audit_under_its_own_name_alone(owner: Any) -> None:
    row = "(id, acted_at, actor_kind, actor, action, tenant_id)"
    for tenant in ("birch", None):
        async with as_role(owner, "acme") as session:
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                await session.execute(
                    f"INSERT INTO syncline.audit {row}"
                    " VALUES (gen_random_uuid(), now(), 'key', 'k', 'keys.create', $1)",
                    tenant,
                )


async def test_the_role_may_do_nothing_that_requests_do_not(owner: Any) -> None:
    async with as_role(owner, "*") as session:
        for table in OUT_OF_REACH:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with session.transaction():
                    await session.fetch(f"SELECT * FROM syncline.{table}")
        for statement in (
            "INSERT INTO syncline.signals (tenant_id, provider_slug, connection_id, kind)"
            " VALUES ('acme', 'github', gen_random_uuid(), 'made up')",
            "UPDATE syncline.signals SET payload = '{}'",
            "DELETE FROM syncline.workers",
            "UPDATE syncline.audit SET actor = 'somebody else'",
            "DELETE FROM syncline.audit",
            "TRUNCATE syncline.audit",
            "TRUNCATE syncline.signals",
            "CREATE TABLE syncline.x ()",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with session.transaction():
                    await session.execute(statement)


async def test_every_table_with_a_tenant_has_a_policy_or_is_out_of_reach(owner: Any) -> None:
    rows = await owner.fetch(
        "SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity,"
        "       EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid"
        "                  AND attname = 'tenant_id') AS names_tenant,"
        "       EXISTS (SELECT FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p"
        "                WHERE has_table_privilege($1, c.oid, p)) AS is_reached"
        "  FROM pg_class c WHERE relnamespace = 'syncline'::regnamespace AND relkind = 'r'",
        ROLE,
    )
    assert len(rows) >= len(TABLES) + len(OUT_OF_REACH)
    for row in rows:
        assert row["relrowsecurity"] == row["is_reached"], row
        assert not row["relforcerowsecurity"], row
        if row["is_reached"] and row["names_tenant"]:
            assert row["relname"] in OWN_ROWS


async def test_deleting_a_connection_takes_its_rows_along(owner: Any) -> None:
    """Cascades run as the tables' owner, and so reach what they must."""
    async with as_role(owner, "acme") as session:
        await session.execute("DELETE FROM syncline.connections")
        for table in ("sync_jobs", "credentials"):
            assert await session.fetch(f"SELECT * FROM syncline.{table}") == []


async def test_sql_by_hand_sees_what_it_always_saw(owner: Any) -> None:
    """Neither the owner nor any other role than the requests' falls under the policies."""
    transaction = owner.transaction()
    await transaction.start()
    await owner.execute(
        "CREATE ROLE somebody; GRANT USAGE ON SCHEMA syncline TO somebody;"
        " GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA syncline TO somebody"
    )
    for role in ("NONE", "somebody"):
        await owner.execute(f"SET LOCAL ROLE {role}")
        for table in OWN_ROWS:
            assert await owner.fetchval(f"SELECT count(*) FROM syncline.{table}") == 2
        assert await owner.execute("UPDATE syncline.connections SET config = '{}'") == "UPDATE 2"
    await transaction.rollback()


@pytest.mark.parametrize("conforming", ["on", "off"])
async def test_any_tenant_is_quoted_well(database_url: str, owner: Any, conforming: str) -> None:
    url = f"{database_url}{'&' if '?' in database_url else '?'}options=" + (
        f"-cstandard_conforming_strings%3D{conforming}"
    )
    async with opened_pool(url, ROLE) as pool:
        for tenant in ODD_TENANTS:
            async with pool.for_request(tenant).transaction() as tx:
                row = await tx.fetchrow(
                    "SELECT current_setting('syncline.tenant_id') AS tenant, current_user AS role,"
                    " (SELECT count(*) FROM {schema}.connections) AS seen"
                )
            assert (row["tenant"], row["role"]) == (tenant, ROLE)
            assert row["seen"] == (tenant == "acme")


async def test_a_tenant_that_would_mean_everybody_is_refused(database_url: str) -> None:
    async with opened_pool(database_url, ROLE) as pool:
        for tenant in ("*", "a\0b"):
            with pytest.raises(ValueError, match=r"every|all of them|NUL"):
                async with pool.for_request(tenant).transaction():
                    pass
    async with Engine(Settings(database_url=database_url)) as engine:
        with pytest.raises(ValueError, match="stands for every tenant"):
            await engine.access.create_key("all", tenant_id="*")


@pytest.mark.parametrize("pgbouncer", [False, True])
async def test_the_role_ends_with_the_transaction(database_url: str, pgbouncer: bool) -> None:
    """Also when the transaction fails: the next one to get the session may be a loop."""
    async with opened_pool(database_url, ROLE, pgbouncer=pgbouncer) as pool:
        request = pool.for_request("acme")
        for _ in range(2):
            with pytest.raises(asyncpg.DivisionByZeroError):
                await request.retrying(lambda tx: tx.fetchval("SELECT 1 / 0"))
            for lend in (pool.transaction, pool.statement):
                async with lend() as tx:
                    assert await tx.fetchval("SELECT current_user") != ROLE
                    assert not await tx.fetchval("SELECT current_setting('syncline.tenant_id')")
        async with request.statement() as tx:
            assert await tx.fetchval("SELECT current_user") == ROLE


async def test_a_role_that_cannot_be_taken_on_leaves_no_open_transaction(
    database_url: str,
) -> None:
    async with opened_pool(database_url, "nobody at all") as pool:
        with pytest.raises(asyncpg.InvalidParameterValueError, match="nobody at all"):
            async with pool.for_request("acme").transaction():
                pass
        async with pool.statement() as tx:
            assert await tx.fetchval("SELECT 1") == 1


async def test_requests_and_loops_do_not_plan_each_others_statements_anew(
    database_url: str,
) -> None:
    """Postgres plans a prepared statement again whenever another role runs it."""
    statement = "SELECT count(*) FROM {schema}.connections"
    prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE $1"
    async with opened_pool(database_url, ROLE) as pool:
        for _ in range(3):
            async with pool.for_request("acme").transaction() as tx:
                await tx.fetchval(statement)
            async with pool.transaction() as tx:
                await tx.fetchval(statement)
        async with pool.transaction() as tx:
            assert await tx.fetchval(prepared, 'SELECT count(*) FROM "syncline".conn%') == 2


@asynccontextmanager
async def opened_pool(url: str, role: str, **options: Any) -> AsyncIterator[Pool]:
    async def find(_tx: Any) -> str:
        return role

    pool = Pool(
        url,
        "syncline",
        size=1,
        options=SessionOptions(**options),
        checks=SchemaChecks(find_request_role=find),
    )
    await pool.open()
    try:
        yield pool
    finally:
        await pool.close()


# How the role comes to be.


@pytest.fixture
def admins_url(databases: Databases, mode: Mode) -> Iterator[str]:
    """A database of its own, which nobody has migrated."""
    with databases.lend(mode) as url:
        yield url


@pytest.fixture
def own_url(databases: Databases, mode: Mode) -> Iterator[str]:
    """A database of its own, with the schema."""
    with databases.lend(mode, "syncline") as url:
        yield url


@pytest.fixture
async def admin(admins_url: str) -> AsyncIterator[Any]:
    session = await asyncpg.connect(admins_url)
    yield session
    await session.close()


@asynccontextmanager
async def somebody(admin: Any, url: str, options: str, schema: str) -> AsyncIterator[str]:
    """Yield the address of a role that may make tables, and remove it with what it made."""
    database = urlsplit(url).path[1:]
    await admin.execute(f"CREATE ROLE {schema}_owner LOGIN {options}")
    await admin.execute(f"GRANT CREATE ON DATABASE {database} TO {schema}_owner")
    try:
        yield re.sub(r"//[^@/]*@", f"//{schema}_owner@", url)
    finally:
        await admin.execute(f"DROP OWNED BY {schema}_owner CASCADE")
        if await admin.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", f"{schema}_api"):
            await admin.execute(f"DROP OWNED BY {schema}_api; DROP ROLE {schema}_api")
        await admin.execute(f"DROP ROLE {schema}_owner")


async def role_in_use(engine: Engine) -> str:
    """Return as whom a request of the engine runs."""
    async with engine._pool.for_request("acme").transaction() as tx:
        found: str = await tx.fetchval("SELECT current_user")
        return found


async def verdict(engine: Engine) -> Any:
    found = {one.name: one for one in await engine.doctor.diagnose()}
    return found["row-level security"]


async def test_migrate_makes_the_role_where_it_may(admin: Any, admins_url: str) -> None:
    async with (
        somebody(admin, admins_url, "CREATEROLE", "able") as url,
        Engine(Settings(database_url=url, schema="able")) as engine,
    ):
        await engine.migrate()

        assert (await engine.api_role()).is_ready
        assert await role_in_use(engine) == "able_api"
        assert (await verdict(engine)).verdict == Verdict.OK


async def test_migrate_tells_what_it_may_not_do_and_all_works_without(
    admin: Any, admins_url: str
) -> None:
    async with somebody(admin, admins_url, "", "unable") as url:
        async with Engine(Settings(database_url=url, schema="unable")) as engine:
            await engine.migrate()
            role = await engine.api_role()

            assert role.statements[0] == 'CREATE ROLE "unable_api" NOLOGIN'
            assert await role_in_use(engine) == "unable_owner"
            found = await verdict(engine)
            assert found.verdict == Verdict.WARNING
            assert all(statement in found.advice for statement in role.statements)

        for statement in role.statements:
            await admin.execute(statement)

        async with Engine(Settings(database_url=url, schema="unable")) as engine:
            assert (await engine.api_role()).is_ready
            assert await role_in_use(engine) == "unable_api"
            assert (await verdict(engine)).verdict == Verdict.OK


async def test_whoever_is_no_member_works_without_the_role(admin: Any, admins_url: str) -> None:
    async with somebody(admin, admins_url, "", "outside") as url:
        await admin.execute("CREATE ROLE outside_api NOLOGIN")
        async with Engine(Settings(database_url=url, schema="outside")) as engine:
            await engine.migrate()
            [left] = (await engine.api_role()).statements

            assert left.startswith('GRANT "outside_api" TO "outside_owner"')
            assert await role_in_use(engine) == "outside_owner"
            assert (await verdict(engine)).verdict == Verdict.WARNING


async def test_an_engine_that_would_see_nothing_refuses_to_start(
    admin: Any, admins_url: str
) -> None:
    """A role that inherits the requests' role falls under its policies at all times."""
    async with Engine(Settings(database_url=admins_url, schema="heir")) as engine:
        await engine.migrate()
    async with somebody(admin, admins_url, "INHERIT", "heir") as url:
        await admin.execute(
            "GRANT USAGE ON SCHEMA heir TO heir_owner;"
            " GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA heir TO heir_owner;"
            " GRANT heir_api TO heir_owner"
        )
        async with Engine(Settings(database_url=url, schema="heir")) as engine:
            with pytest.raises(SchemaError, match="inherits") as refusal:
                await engine.tick()

        for statement in str(refusal.value).partition(": run ")[2].split("; "):
            await admin.execute(statement)
        async with Engine(Settings(database_url=url, schema="heir")) as engine:
            await engine.tick()
            assert await role_in_use(engine) == "heir_api"


async def test_migrations_of_many_databases_make_one_role(
    databases: Databases, mode: Mode, admin: Any
) -> None:
    server = databases.server(mode)
    urls = [server.create_database() for _ in range(3)]
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(Engine(Settings(database_url=url, schema="race")))
            for url in urls * 2
        ]
        await asyncio.gather(*(engine.migrate() for engine in engines))

        assert [(await engine.api_role()).statements for engine in engines] == [()] * 6
    for url in urls:
        server.drop_database(url)
    await admin.execute("DROP ROLE race_api")


async def test_migrate_mends_what_somebody_took_away(own_url: str) -> None:
    async with (
        connected(own_url) as admin,
        Engine(Settings(database_url=own_url)) as engine,
    ):
        await admin.execute(
            "DROP POLICY requests ON syncline.signals;"
            " ALTER TABLE syncline.connections DISABLE ROW LEVEL SECURITY;"
            " REVOKE DELETE ON syncline.sync_jobs FROM syncline_api"
        )
        assert len((await engine.api_role()).statements) == 3

        await engine.migrate()

        assert (await engine.api_role()).is_ready


async def test_doctor_proves_what_the_role_sees(own_url: str) -> None:
    async with (
        connected(own_url) as admin,
        Engine(Settings(database_url=own_url)) as engine,
    ):
        await admin.execute(TWO_TENANTS)
        assert (await verdict(engine)).verdict == Verdict.OK

        for policy, complaint in (
            ("true", "signals are seen by others than their tenant"),
            ("false", "signals are not seen by their own tenant"),
        ):
            await admin.execute(f"ALTER POLICY requests ON syncline.signals USING ({policy})")
            found = await verdict(engine)
            assert (found.verdict, found.found) == (Verdict.BAD, complaint)


async def test_it_is_off_on_citus(admin: Any, admins_url: str) -> None:
    await admin.execute(
        "INSERT INTO pg_extension SELECT 99999, 'citus', extowner, extnamespace, false, '13',"
        " NULL, NULL FROM pg_extension WHERE extname = 'plpgsql'"
    )
    async with Engine(Settings(database_url=admins_url, schema="spread")) as engine:
        await engine.migrate()

        assert (await engine.api_role()).is_off
        assert await role_in_use(engine) != "spread_api"
        assert (await verdict(engine)).found == "off on Citus"
    assert not await admin.fetchval("SELECT count(*) FROM pg_policies")
    assert not await admin.fetchval("SELECT 1 FROM pg_roles WHERE rolname = 'spread_api'")


@pytest.mark.parametrize(("schema", "role"), [("app", "app_api"), ("é" * 31, "é" * 29 + "_api")])
def test_the_role_is_named_for_the_schema(schema: str, role: str) -> None:
    assert role_name(schema) == role
    assert len(role.encode()) <= 63
