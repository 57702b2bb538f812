"""The role that requests take on, and the row-level security that holds for it alone.

What is missing is always told as statements: `migrate` runs them, or prints them for somebody who
may, and requests take the role on once there are none.
"""

from typing import Any
from uuid import uuid4

from syncline.errors import SchemaError
from syncline.model import ApiRole
from syncline.store.api_role_ddl import TABLES, for_role, for_table
from syncline.store.pool import EVERY_TENANT, Transaction
from syncline.store.statements import quote_name

LONGEST_NAME_BYTES = 63
SUFFIX = "_api"


def role_name(schema: str) -> str:
    """Return `<schema>_api`, cut where Postgres would cut it."""
    return schema.encode()[: LONGEST_NAME_BYTES - len(SUFFIX)].decode(errors="ignore") + SUFFIX


READ_ROLE = """
    -- Whether the role exists and this session may take it on. Whoever inherits it, and is neither
    -- the tables' owner nor above policies, falls under its policies also without taking it on.
    SELECT role.oid AS role, session_user::text AS member, version >= 160000 AS has_options,
           EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'citus') AS is_citus,
           coalesce(pg_catalog.pg_has_role(session_user, role.oid,
                    CASE WHEN version >= 160000 THEN 'SET' ELSE 'MEMBER' END), false) AS may_take,
           coalesce(pg_catalog.pg_has_role(me.oid, role.oid, 'USAGE'), false) AS inherits,
           me.rolsuper OR me.rolbypassrls OR pg_catalog.pg_has_role(me.oid, owned.relowner, 'USAGE')
               AS is_above,
           coalesce(pg_catalog.has_schema_privilege(role.oid, owned.relnamespace, 'USAGE'), false)
               AS may_enter,
           coalesce(pg_catalog.has_function_privilege(role.oid, $3, 'EXECUTE'), false) AS may_call
      FROM pg_catalog.current_setting('server_version_num') AS setting (number)
     CROSS JOIN LATERAL (SELECT setting.number::int) AS server (version)
      JOIN pg_catalog.pg_roles me ON me.rolname = current_user
      JOIN pg_catalog.pg_class owned ON owned.oid = $2::text::regclass
      LEFT JOIN pg_catalog.pg_roles role ON role.rolname = $1
"""

READ_TABLES = """
    -- What the role may do with each table, and the policies that are there.
    SELECT c.relname AS name, c.relrowsecurity AS is_enabled,
           ARRAY(SELECT polname::text FROM pg_catalog.pg_policy p
                  WHERE p.polrelid = c.oid
                    AND (p.polpermissive OR p.polroles = ARRAY[$1::oid])) AS policies,
           ARRAY(SELECT held.name FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'])
                        AS held (name)
                  WHERE pg_catalog.has_table_privilege($1::oid, c.oid, held.name)) AS rights
      FROM pg_catalog.pg_class c WHERE c.oid = ANY ($2::text[]::regclass[])
"""


async def _read_role(tx: Transaction, name: str) -> Any:
    function = f"{tx.qualified('object_or_empty')}(jsonb)"
    return await tx.fetchrow(READ_ROLE, name, tx.qualified("connections"), function)


async def look(tx: Transaction, schema: str) -> ApiRole:
    """Return the role of a schema, with the statements that it still needs."""
    name, here = role_name(schema), quote_name(schema)
    found = await _read_role(tx, name)
    if found["is_citus"]:
        return ApiRole(name, is_off=True, statements=())
    tables = [tx.qualified(table.name) for table in TABLES]
    rows = {row["name"]: row for row in await tx.fetch(READ_TABLES, found["role"], tables)}
    statements = [
        *for_role(found, quote_name(name), here),
        *(one for table in TABLES for one in for_table(table, rows, quote_name(name), here)),
    ]
    return ApiRole(name, is_off=False, statements=tuple(statements))


async def find(tx: Transaction, schema: str) -> str | None:
    """Return the role that requests take on; None where it is off or something is missing."""
    role = await look(tx, schema)
    return role.name if role.is_ready else None


async def check_inheritance(tx: Transaction, schema: str) -> None:
    """Raise if the engine's own role would see nothing, because it inherits the requests' role."""
    found = await _read_role(tx, role_name(schema))
    if found["inherits"] and not found["is_above"] and not found["is_citus"]:
        role = quote_name(role_name(schema))
        mend = "; ".join(one for one in for_role(found, role, quote_name(schema)))
        raise SchemaError(
            f"role {found['member']!r} inherits {role}, and would see only what a request sees: "
            f"run {mend}"
        )


SAMPLE = """
    -- Some row of each table that holds tenants' data.
    (SELECT 'connections' AS name, id AS key, tenant_id FROM {schema}.connections LIMIT 1)
     UNION ALL (SELECT 'sync_jobs', id, tenant_id FROM {schema}.sync_jobs LIMIT 1)
     UNION ALL (SELECT 'signals', id, tenant_id FROM {schema}.signals LIMIT 1)
     UNION ALL (SELECT 'credentials', connection_id, tenant_id FROM {schema}.credentials LIMIT 1)
"""

SEEN = """
    -- Those of them that are seen, by a statement that names no tenant.
    SELECT 'connections' AS name, id AS key FROM {schema}.connections WHERE id = ANY ($1)
     UNION ALL SELECT 'sync_jobs', id FROM {schema}.sync_jobs WHERE id = ANY ($1)
     UNION ALL SELECT 'signals', id FROM {schema}.signals WHERE id = ANY ($1)
     UNION ALL SELECT 'credentials', connection_id FROM {schema}.credentials
                WHERE connection_id = ANY ($1)
"""

TAKE_ON = """
    -- Be the role, and ask for a tenant's rows, until the transaction ends.
    SELECT set_config('role', $1, true), set_config('syncline.tenant_id', $2, true)
"""


async def probe(tx: Transaction, role: ApiRole) -> list[str]:
    """Return what is wrong with what the role sees; the rest of the transaction is the role's."""
    samples = {(row["name"], row["key"]): row["tenant_id"] for row in await tx.fetch(SAMPLE)}
    keys = [key for _, key in samples]
    wrong = []
    for tenant in ("", str(uuid4()), EVERY_TENANT, *sorted(set(samples.values()))):
        await tx.fetchval(TAKE_ON, role.name, tenant)
        seen = {(row["name"], row["key"]) for row in await tx.fetch(SEEN, keys)} & set(samples)
        due = {one for one, owner in samples.items() if tenant in (EVERY_TENANT, owner)}
        wrong += [f"{name} are seen by others than their tenant" for name, _ in seen - due]
        wrong += [f"{name} are not seen by their own tenant" for name, _ in due - seen]
    return sorted(set(wrong))
