"""How large the tables are, and how long dead rows have been kept from removal."""

from collections.abc import Sequence
from datetime import timedelta

from syncline.model import TableSize
from syncline.store.pool import Transaction

TABLES = ("connections", "sync_jobs", "signals")

MEASURE_TABLES = """
    -- Sizes with indexes, and the rows that planner and statistics estimate.
    SELECT c.relname AS name, pg_catalog.pg_total_relation_size(c.oid) AS bytes,
           greatest(c.reltuples, 0)::bigint AS rows, coalesce(s.n_dead_tup, 0) AS dead_rows
      FROM pg_catalog.pg_class c
      LEFT JOIN pg_catalog.pg_stat_all_tables s ON s.relid = c.oid
     WHERE c.oid = ANY ($1::text[]::regclass[])
     ORDER BY c.relname
"""


async def measure_tables(tx: Transaction) -> Sequence[TableSize]:
    tables = [tx.qualified(table) for table in TABLES]
    return [TableSize(**row) for row in await tx.fetch(MEASURE_TABLES, tables)]


OLDEST_SNAPSHOT = """
    -- The age of the oldest transaction that keeps dead rows from being removed.
    SELECT coalesce(max(clock_timestamp() - xact_start), interval '0')
      FROM pg_catalog.pg_stat_activity
     WHERE datname = current_database() AND backend_type = 'client backend'
       AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
"""


async def oldest_snapshot(tx: Transaction) -> timedelta:
    """Return the age of the oldest snapshot; sessions of other roles need pg_read_all_stats."""
    age: timedelta = await tx.fetchval(OLDEST_SNAPSHOT)
    return age
