"""What the schema promises, read from Postgres' own catalogue."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest


@pytest.fixture
async def schema(database_url: str) -> AsyncIterator[Any]:
    """A session on a migrated database."""
    session = await asyncpg.connect(database_url)
    yield session
    await session.close()


async def test_the_guard_is_exactly_the_one_specified(schema: Any) -> None:
    definition = await schema.fetchval(
        "SELECT pg_get_indexdef('syncline.idx_sync_jobs_connection_type_status'::regclass)"
    )

    assert definition == (
        "CREATE UNIQUE INDEX idx_sync_jobs_connection_type_status ON syncline.sync_jobs"
        " USING btree (connection_id, job_type)"
        " WHERE (status = ANY (ARRAY['queued'::text, 'running'::text]))"
    )


async def test_every_index_that_is_no_constraint_says_what_it_is_for(schema: Any) -> None:
    silent = await schema.fetch(
        "SELECT indexrelid::regclass::text AS name FROM pg_index"
        "  JOIN pg_class ON pg_class.oid = indexrelid"
        " WHERE relnamespace = 'syncline'::regnamespace"
        "   AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)"
        "   AND obj_description(indexrelid) IS NULL"
    )

    assert silent == []


async def test_there_is_no_hidden_machinery(schema: Any) -> None:
    assert (
        await schema.fetch(
            "SELECT relname, relkind, relpersistence FROM pg_class"
            " WHERE relnamespace = 'syncline'::regnamespace"
            "   AND (relkind NOT IN ('r', 'i') OR relpersistence <> 'p' OR relhasrules)"
        )
        == []
    )
    assert (
        await schema.fetch(
            "SELECT tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
            " WHERE relnamespace = 'syncline'::regnamespace AND NOT tgisinternal"
        )
        == []
    )
    assert (
        await schema.fetch(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'syncline'::regnamespace"
            "   AND (provolatile <> 'i' OR prosecdef)"
        )
        == []
    )


async def test_nothing_stands_outside_of_the_schema(schema: Any) -> None:
    in_public = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    assert await schema.fetch(in_public) == []


async def test_every_table_of_a_tenants_data_names_the_tenant(schema: Any) -> None:
    for table in ("connections", "sync_jobs", "signals"):
        assert await schema.fetchval(
            "SELECT attnotnull FROM pg_attribute WHERE attrelid = $1::text::regclass"
            "   AND attname = 'tenant_id'",
            f"syncline.{table}",
        ), table


ROWS = {
    "connections": "(tenant_id, provider_slug, external_id) VALUES ('acme', 'tickets', 'a-1')",
    "sync_jobs": "(tenant_id, provider_slug, connection_id)"
    " SELECT tenant_id, provider_slug, id FROM syncline.connections",
    "signals": "(tenant_id, provider_slug, connection_id, kind)"
    " SELECT tenant_id, provider_slug, id, 'seen' FROM syncline.connections",
}


async def insert_by_key_columns(session: Any) -> None:
    for table, row in ROWS.items():
        await session.execute(f"INSERT INTO syncline.{table} {row}")


async def test_a_row_needs_its_key_columns_alone(schema: Any) -> None:
    await insert_by_key_columns(schema)

    for table in ROWS:
        assert await schema.fetchval(f"SELECT count(*) FROM syncline.{table}") == 1


async def test_no_time_is_stored_that_a_client_cannot_read(schema: Any) -> None:
    await insert_by_key_columns(schema)
    columns = await schema.fetch(
        "SELECT attrelid::regclass::text AS table, attname AS column FROM pg_attribute"
        " WHERE attrelid = ANY ($1::text[]::regclass[]) AND atttypid = 'timestamptz'::regtype",
        [f"syncline.{table}" for table in ROWS],
    )

    assert len(columns) > 10
    for table, column in columns:
        for time in ("infinity", "-infinity", "10000-01-01Z", "0001-01-01 BC"):
            with pytest.raises(asyncpg.CheckViolationError):
                await schema.execute(f"UPDATE {table} SET {column} = '{time}'")


async def test_the_indexes_that_a_job_enters_three_times_keep_room_for_it(schema: Any) -> None:
    rooms = await schema.fetch(
        "SELECT relname, reloptions FROM pg_class"
        " WHERE relname IN ('sync_jobs_pkey', 'sync_jobs_by_connection')"
        "   AND relnamespace = 'syncline'::regnamespace"
    )

    assert dict(rooms) == {
        "sync_jobs_pkey": ["fillfactor=50"],
        "sync_jobs_by_connection": ["fillfactor=50"],
    }
