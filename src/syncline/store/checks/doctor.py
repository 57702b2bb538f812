"""What `doctor` reads: the server, its settings, open transactions, rights and providers."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from syncline.policy.doctor import OpenTransaction, Server, TableHealth
from syncline.store.pool import Transaction

TABLES = ("connections", "sync_jobs", "signals")

SERVER = """
    -- The server's version and how close it is to its limits.
    SELECT current_setting('server_version_num')::int AS version,
           current_setting('server_version') AS version_text,
           current_setting('max_connections')::int AS max_connections,
           (SELECT count(*) FROM pg_catalog.pg_stat_activity
             WHERE backend_type = 'client backend') AS used_connections,
           (SELECT age(datfrozenxid) FROM pg_catalog.pg_database
             WHERE datname = current_database()) AS transactions_unfrozen,
           pg_catalog.pg_is_in_recovery() AS is_standby,
           (SELECT count(*) FROM pg_catalog.pg_prepared_xacts
             WHERE database = current_database()) AS prepared_transactions,
           (SELECT count(*) FROM pg_catalog.pg_replication_slots
             WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL)) AS idle_slots
"""

SETTINGS = """
    -- Settings that data safety and table size depend on.
    SELECT name, setting FROM pg_catalog.pg_settings
     WHERE name IN ('fsync', 'full_page_writes', 'autovacuum', 'synchronous_commit',
                    'statement_timeout', 'track_counts', 'default_transaction_read_only')
"""


async def read_server(tx: Transaction) -> Server:
    settings = {row["name"]: row["setting"] for row in await tx.fetch(SETTINGS)}
    return Server(**await tx.fetchrow(SERVER), settings=settings)


HEALTH_OF_TABLES = """
    -- Live and dead rows, and the last vacuum.
    SELECT relname AS name, n_live_tup AS live, n_dead_tup AS dead,
           greatest(last_vacuum, last_autovacuum) AS vacuumed_at,
           pg_catalog.pg_total_relation_size(relid) AS bytes
      FROM pg_catalog.pg_stat_all_tables
     WHERE relid = ANY ($1::text[]::regclass[])
     ORDER BY relname
"""


async def read_tables(tx: Transaction) -> Sequence[TableHealth]:
    tables = [tx.qualified(table) for table in TABLES]
    return [TableHealth(**row) for row in await tx.fetch(HEALTH_OF_TABLES, tables)]


OPEN_TRANSACTIONS = """
    -- The oldest open transactions that keep dead rows from being removed.
    SELECT pid, coalesce(application_name, '') AS application, coalesce(state, '') AS state,
           clock_timestamp() - xact_start AS age
      FROM pg_catalog.pg_stat_activity
     WHERE datname = current_database() AND backend_type = 'client backend'
       AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
     ORDER BY xact_start LIMIT 3
"""


async def read_open_transactions(tx: Transaction) -> Sequence[OpenTransaction]:
    return [OpenTransaction(**row) for row in await tx.fetch(OPEN_TRANSACTIONS)]


# What the engine's own role needs. Signals are never updated, but pruning locks them first, and a
# lock requires the right to update some column.
EVERYTHING = ("SELECT", "INSERT", "UPDATE", "DELETE")
NEEDED = {
    "schema_migrations": ("SELECT",),
    "connections": EVERYTHING,
    "sync_jobs": EVERYTHING,
    "job_attempts": ("SELECT", "INSERT", "DELETE"),
    "signals": ("SELECT", "INSERT", "column UPDATE", "DELETE"),
    "credentials": EVERYTHING,
    "gates": EVERYTHING,
    "caps": EVERYTHING,
    "cap_blocks": EVERYTHING,
    "tenant_shares": EVERYTHING,
    "gate_reports": EVERYTHING,
    "limited_connections": EVERYTHING,
    "provider_starts": EVERYTHING,
    "figures": EVERYTHING,
    "figure_reports": EVERYTHING,
    "prune_walks": ("SELECT", "INSERT", "UPDATE"),
    "schedulers": EVERYTHING,
    "server_starts": ("SELECT", "INSERT"),
    "workers": EVERYTHING,
    "api_keys": EVERYTHING,
    "api_sessions": EVERYTHING,
    "api_requests": EVERYTHING,
    "tenant_usage": EVERYTHING,
}

MISSING_GRANTS = """
    -- The rights that the engine needs and this role lacks.
    SELECT needed.privilege || ' on ' || c.relname AS missing
      FROM unnest($1::text[], $2::text[]) AS needed (name, privilege)
      JOIN pg_catalog.pg_class c ON c.oid = needed.name::regclass
     WHERE NOT CASE WHEN needed.privilege LIKE 'column %'
                    THEN pg_catalog.has_any_column_privilege(
                         c.oid, split_part(needed.privilege, ' ', 2))
                    ELSE pg_catalog.has_table_privilege(c.oid, needed.privilege) END
     ORDER BY 1
"""


async def missing_grants(tx: Transaction) -> Sequence[str]:
    needed = [(tx.qualified(name), one) for name, rights in NEEDED.items() for one in rights]
    names, rights = zip(*needed, strict=True)
    return [row["missing"] for row in await tx.fetch(MISSING_GRANTS, names, rights)]


def may_read(missing: Sequence[str], table: str | None = None) -> bool:
    """Return whether the missing rights leave a table readable; without a table, every one."""
    lacks = [one.partition(" on ") for one in missing]
    return not any(right == "SELECT" and table in (None, name) for right, _, name in lacks)


ACTIVE_PROVIDERS = """
    -- Active connections by provider.
    SELECT provider_slug, count(*) AS connections FROM {schema}.connections
     WHERE status = 'active' GROUP BY provider_slug ORDER BY provider_slug
"""


async def active_providers(tx: Transaction) -> dict[str, int]:
    rows = await tx.fetch(ACTIVE_PROVIDERS, timeout=60)
    return {row["provider_slug"]: row["connections"] for row in rows}


LAST_TICK = """
    -- When any scheduler last finished a tick.
    SELECT max(ticked_at) FROM {schema}.schedulers
"""


async def last_tick(tx: Transaction) -> datetime | None:
    ticked_at: Any = await tx.fetchval(LAST_TICK)
    return ticked_at  # type: ignore[no-any-return]
