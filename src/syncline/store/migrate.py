"""Migrations: numbered SQL files, applied in order under a lock, one transaction each."""

import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.resources import files
from typing import Any

import asyncpg

from syncline.clock import pause
from syncline.errors import SchemaError
from syncline.model import SchemaVersions
from syncline.store import api_role
from syncline.store.connect import SEARCH_PATH
from syncline.store.errors import is_passing
from syncline.store.pool import Pool, Transaction
from syncline.store.statements import Statements, milliseconds, quote_name, split_statements

TRIES = 10
# A longer wait for a table would make the engine's own claims wait behind it.
LOCK_TIMEOUT = timedelta(seconds=3)
# Any of these can hit the slower of two sessions that create the same thing.
CREATED_MEANWHILE = (
    asyncpg.DuplicateSchemaError,
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
    asyncpg.UniqueViolationError,
    asyncpg.InternalServerError,  # "tuple concurrently updated", when two sessions grant
)
# No right to create the role; a name that Postgres reserves; no role to grant to.
REFUSED = (
    asyncpg.InsufficientPrivilegeError,
    asyncpg.ReservedNameError,
    asyncpg.UndefinedObjectError,
)
FILE_NAME = re.compile(r"(\d{4})_(\w+)\.sql")
REQUIRES = re.compile(r"^-- requires: (\d+)$", re.MULTILINE)
# Earlier texts of unreleased migrations, which did the same in fewer statements than Citus takes.
SAME_EFFECT = {
    6: "84c476f06577644f13396eaf0208cffc5b8264e240fdb3158cc53e5c690c21dd",
    10: "0d0a53972ef783d0d0723cd845ad76c34316096a1f66f17d33f0a64e09b35a79",
    18: "0f7d5f68b7a7a1dcb93d993a679c3e53f79ee00e6914c8fb58fc9a344aac490d",
}

CREATE_LEDGER = """
    -- Applied migrations; `requires` is the newest migration that code must know to work on them.
    CREATE TABLE IF NOT EXISTS {schema}.schema_migrations (
        version    int PRIMARY KEY,
        name       text NOT NULL,
        checksum   text NOT NULL,
        requires   int NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT now()
    )
"""

LEDGER_EXISTS = """
    -- Read from the catalogue: a query on a missing table would abort the transaction.
    SELECT count(*) = 1 FROM pg_catalog.pg_tables
     WHERE schemaname = $1 AND tablename = 'schema_migrations'
"""

READ_LEDGER = """
    -- The applied migrations.
    SELECT version, checksum, requires FROM {schema}.schema_migrations ORDER BY version
"""

ADD_TO_LEDGER = """
    -- Record a migration as applied.
    INSERT INTO {schema}.schema_migrations (version, name, checksum, requires)
    VALUES ($1, $2, $3, $4)
"""


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str
    checksum: str
    requires: int


def known_migrations() -> list[Migration]:
    """Return the migrations that this version ships, in order."""
    found = []
    for entry in files("syncline.store").joinpath("migrations").iterdir():
        if match := FILE_NAME.fullmatch(entry.name):
            sql = entry.read_text("utf-8")
            requires = REQUIRES.search(sql)
            found.append(
                Migration(
                    version=int(match[1]),
                    name=match[2],
                    sql=sql,
                    checksum=hashlib.sha256(sql.encode()).hexdigest(),
                    requires=int(requires[1]) if requires else 0,
                )
            )
    return sorted(found, key=lambda migration: migration.version)


async def migrate(
    pool: Pool, *, tries: int = TRIES, lock_timeout: timedelta = LOCK_TIMEOUT
) -> list[str]:
    """Bring the schema up to this version and return the migrations applied.

    Raises SchemaError if the schema is too new for this version. Also creates the role for
    requests, as far as this session has the rights.
    """
    reason = ""
    done: list[str] = []
    for tries_left in reversed(range(tries)):
        try:
            async with pool.connection() as connection:
                await _apply_missing(connection, pool.schema, lock_timeout, done)
                await _install_api_role(connection, pool.schema, lock_timeout)
                await check_schema(Transaction(connection, Statements(pool.schema)), pool.schema)
                return done
        except asyncpg.LockNotAvailableError:
            reason = "another session kept its tables locked"
        except CREATED_MEANWHILE as error:
            reason = str(error)
        except Exception as error:
            if not tries_left or not is_passing(error):
                raise
        await pause(0.2)
    raise SchemaError(f"schema {pool.schema!r} could not be migrated: {reason}")


async def check_schema(tx: Transaction, schema: str) -> None:
    """Raise SchemaError unless this version can work on the database's schema."""
    known = known_migrations()[-1].version
    if not await tx.fetchval(LEDGER_EXISTS, schema):
        raise SchemaError(f"schema {schema!r} has no Syncline tables yet: run `syncline migrate`")
    applied = await tx.fetch(READ_LEDGER)
    newest = max((row["version"] for row in applied), default=0)
    required = max((row["requires"] for row in applied), default=0)
    if newest < known:
        raise SchemaError(
            f"schema {schema!r} is at version {newest}, this Syncline needs {known}: "
            "run `syncline migrate`"
        )
    if required > known:
        raise SchemaError(
            f"schema {schema!r} is at version {newest}, which this Syncline (version {known}) "
            "cannot work on: install a newer one"
        )


async def read_versions(tx: Transaction) -> SchemaVersions:
    """Return the schema's version, and the newest that this Syncline knows."""
    applied = await tx.fetch(READ_LEDGER)
    newest = max((row["version"] for row in applied), default=0)
    return SchemaVersions(newest, known_migrations()[-1].version)


async def _install_api_role(connection: Any, schema: str, lock_timeout: timedelta) -> None:
    async with _transaction(connection):
        role = await api_role.read_role(Transaction(connection, Statements(schema)), schema)
    for statement in role.statements:  # each in its own transaction; a refused one is skipped
        with suppress(*REFUSED):
            async with _transaction(connection):
                await connection.execute(f"SET LOCAL lock_timeout = {milliseconds(lock_timeout)}")
                await connection.execute(statement)


async def _apply_missing(
    connection: Any, schema: str, lock_timeout: timedelta, done: list[str]
) -> None:
    """Apply the missing migrations; add each to `done` once it is committed."""
    quoted = quote_name(schema)
    timeout = milliseconds(lock_timeout)
    exists = "SELECT count(*) = 1 FROM pg_catalog.pg_namespace WHERE nspname = $1"
    async with _transaction(connection):
        if not await connection.fetchval(exists, schema):
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted}")
    async with _transaction(connection):
        if not await connection.fetchval(LEDGER_EXISTS, schema):
            await connection.execute(CREATE_LEDGER.replace("{schema}", quoted))
    for migration in known_migrations():
        # Without a lock first: if nothing is missing, a role with few rights is enough.
        async with _transaction(connection):
            if await _is_applied(connection, quoted, migration):
                continue
        async with _transaction(connection):
            await connection.execute("SELECT set_config('lock_timeout', $1, true)", timeout)
            await connection.execute(
                f"LOCK TABLE {quoted}.schema_migrations IN SHARE ROW EXCLUSIVE MODE"
            )
            if await _is_applied(connection, quoted, migration):
                continue
            for statement in split_statements(migration.sql.replace("{schema}", quoted)):
                await connection.execute(statement, timeout=3600)
            await connection.execute(
                ADD_TO_LEDGER.replace("{schema}", quoted),
                *(migration.version, migration.name, migration.checksum, migration.requires),
            )
        done.append(f"{migration.version:04}_{migration.name}")


@asynccontextmanager
async def _transaction(connection: Any) -> AsyncIterator[None]:
    """Open a transaction with our search path, also behind a pooler."""
    async with connection.transaction():
        await connection.execute(f"SET LOCAL search_path = {SEARCH_PATH}")
        yield


async def _is_applied(connection: Any, quoted_schema: str, migration: Migration) -> bool:
    rows = await connection.fetch(READ_LEDGER.replace("{schema}", quoted_schema))
    checksums = {row["version"]: row["checksum"] for row in rows}
    applied = migration.version in checksums
    accepted = (migration.checksum, SAME_EFFECT.get(migration.version))
    if applied and checksums[migration.version] not in accepted:
        raise SchemaError(
            f"migration {migration.version:04}_{migration.name} was changed after it was applied; "
            "migrations are never edited, add a new one"
        )
    return applied
