"""The role that requests run as, and the row-level security that applies to it alone.

Whatever the role lacks is expressed as statements. `migrate` runs them, or prints them for an
administrator. Requests run as the role once no statements are left.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from syncline.errors import SchemaError
from syncline.model import ApiRole
from syncline.store.pool import EVERY_TENANT, Transaction
from syncline.store.statements import quote_name

LONGEST_NAME_BYTES = 63
SUFFIX = "_api"
# A subquery: Postgres evaluates it once per statement, not once per row.
TENANT = "(SELECT pg_catalog.current_setting('syncline.tenant_id', true))"
# CASE, because the planner expects it to pass half of the rows. That is close enough to all of them
# to keep the plans of listings, which filter by tenant themselves. It expects `a OR b` to be rare.
OWN_TENANT = (
    f"CASE {TENANT} WHEN '{EVERY_TENANT}' THEN true WHEN tenant_id THEN true ELSE false END"
)
ANY_TENANT = f"{TENANT} <> ''"
# A bucket belongs to everybody, to a tenant by its name, or to a connection by its id.
OWN_BUCKET = (
    f"CASE {TENANT} WHEN '' THEN false WHEN '{EVERY_TENANT}' THEN true WHEN member THEN true"
    " ELSE member = '' OR member ~ '^[0-9a-f-]{36}$' END"
)
OPERATORS = f"{TENANT} = '{EVERY_TENANT}'"
EVERYBODY, REQUESTS = "everybody", "requests"  # the two policies of each table


@dataclass(frozen=True, slots=True)
class Table:
    """What requests may do with a table, and which of its rows they see."""

    name: str
    rights: tuple[str, ...]
    visible: str = OWN_TENANT


TABLES = (
    Table("connections", ("SELECT", "INSERT", "UPDATE", "DELETE")),
    Table("sync_jobs", ("SELECT", "INSERT", "UPDATE", "DELETE")),
    Table("signals", ("SELECT", "DELETE")),
    Table("job_attempts", ("SELECT",)),
    Table("credentials", ("SELECT", "INSERT", "UPDATE", "DELETE")),
    Table("api_requests", ("SELECT", "INSERT", "UPDATE", "DELETE")),
    Table("tenant_usage", ("SELECT", "INSERT", "UPDATE")),
    Table("caps", ("SELECT", "INSERT", "UPDATE", "DELETE")),
    Table("tenant_shares", ("SELECT", "INSERT", "UPDATE", "DELETE")),
    Table("audit", ("SELECT", "INSERT")),  # append-only: the pruner, which is no request, deletes
    Table("tenant_pauses", ("SELECT",)),
    Table("bulk_actions", ("SELECT", "INSERT", "UPDATE")),
    Table("schedulers", ("SELECT",), ANY_TENANT),
    Table("workers", ("SELECT",), ANY_TENANT),
    Table("gates", ("SELECT",), ANY_TENANT),
    Table("budgets", ("SELECT",), ANY_TENANT),
    Table("budget_buckets", ("SELECT",), OWN_BUCKET),
    Table("figures", ("SELECT",), OPERATORS),
    Table("figure_reports", ("SELECT",), OPERATORS),
)


def role_name(schema: str) -> str:
    """Return `<schema>_api`, truncated where Postgres would truncate it."""
    return schema.encode()[: LONGEST_NAME_BYTES - len(SUFFIX)].decode(errors="ignore") + SUFFIX


READ_ROLE = """
    -- Whether the role exists and this session may set it. A role that inherits it, and neither
    -- owns the tables nor bypasses policies, is subject to its policies without setting it.
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
    -- The role's rights on each table, and the table's policies.
    SELECT c.relname AS name, c.relrowsecurity AS is_enabled,
           ARRAY(SELECT polname::text FROM pg_catalog.pg_policy p
                  WHERE p.polrelid = c.oid
                    AND (p.polpermissive OR p.polroles = ARRAY[$1::oid])) AS policies,
           ARRAY(SELECT held.name FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'])
                        AS held (name)
                  WHERE pg_catalog.has_table_privilege($1::oid, c.oid, held.name)) AS rights
      FROM pg_catalog.pg_class c WHERE c.oid = ANY ($2::text[]::regclass[])
"""


async def _read_facts(tx: Transaction, name: str) -> Any:
    function = f"{tx.qualified('object_or_empty')}(jsonb)"
    return await tx.fetchrow(READ_ROLE, name, tx.qualified("connections"), function)


async def read_role(tx: Transaction, schema: str) -> ApiRole:
    """Return the role of a schema, with the statements that it still needs."""
    name, here = role_name(schema), quote_name(schema)
    found = await _read_facts(tx, name)
    if found["is_citus"]:
        return ApiRole(name, is_off=True, statements=())
    tables = [tx.qualified(table.name) for table in TABLES]
    rows = {row["name"]: row for row in await tx.fetch(READ_TABLES, found["role"], tables)}
    statements = [
        *_for_role(found, quote_name(name), here),
        *(one for table in TABLES for one in _for_table(table, rows, quote_name(name), here)),
    ]
    return ApiRole(name, is_off=False, statements=tuple(statements))


def _for_role(found: Any, role: str, schema: str) -> Iterator[str]:
    member = quote_name(found["member"])
    if found["role"] is None:
        yield f"CREATE ROLE {role} NOLOGIN"
    falls_under = found["inherits"] and not found["is_above"]
    if not found["may_take"] or falls_under:
        if found["has_options"]:
            yield f"GRANT {role} TO {member} WITH INHERIT FALSE, SET TRUE"
        else:
            if not found["is_above"]:
                yield f"ALTER ROLE {member} NOINHERIT"
            if not found["may_take"]:
                yield f"GRANT {role} TO {member}"
    if not found["may_enter"]:
        yield f"GRANT USAGE ON SCHEMA {schema} TO {role}"
    if not found["may_call"]:
        yield f"GRANT EXECUTE ON FUNCTION {schema}.object_or_empty(jsonb) TO {role}"


def _for_table(table: Table, rows: dict[str, Any], role: str, schema: str) -> Iterator[str]:
    """Return the statements that a table lacks; it stays usable after each of them."""
    row, name = rows[table.name], f"{schema}.{quote_name(table.name)}"
    if EVERYBODY not in row["policies"]:
        yield f"CREATE POLICY {EVERYBODY} ON {name} USING (true) WITH CHECK (true)"
    if REQUESTS not in row["policies"]:
        yield (
            f"CREATE POLICY {REQUESTS} ON {name} AS RESTRICTIVE TO {role} USING ({table.visible})"
        )
    if not row["is_enabled"]:
        yield f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY"
    missing = [right for right in table.rights if right not in row["rights"]]
    if missing:
        yield f"GRANT {', '.join(missing)} ON {name} TO {role}"


async def find(tx: Transaction, schema: str) -> str | None:
    """Return the role that requests run as; None if it is off or not ready."""
    role = await read_role(tx, schema)
    return role.name if role.is_ready else None


async def check_inheritance(tx: Transaction, schema: str) -> None:
    """Raise if the engine's own role inherits the requests' role, and so would see nothing."""
    found = await _read_facts(tx, role_name(schema))
    if found["inherits"] and not found["is_above"] and not found["is_citus"]:
        role = quote_name(role_name(schema))
        fix = "; ".join(one for one in _for_role(found, role, quote_name(schema)))
        raise SchemaError(
            f"role {found['member']!r} inherits {role} and would see only what a request sees: "
            f"run {fix}"
        )


SAMPLE = """
    -- One row of each table that holds tenants' data.
    (SELECT 'connections' AS name, id AS key, tenant_id FROM {schema}.connections LIMIT 1)
     UNION ALL (SELECT 'sync_jobs', id, tenant_id FROM {schema}.sync_jobs LIMIT 1)
     UNION ALL (SELECT 'signals', id, tenant_id FROM {schema}.signals LIMIT 1)
     UNION ALL (SELECT 'credentials', connection_id, tenant_id FROM {schema}.credentials LIMIT 1)
     UNION ALL (SELECT 'job_attempts', job_id, tenant_id FROM {schema}.job_attempts LIMIT 1)
"""

SEEN = """
    -- The visible ones among them, read by a statement that names no tenant.
    SELECT 'connections' AS name, id AS key FROM {schema}.connections WHERE id = ANY ($1)
     UNION ALL SELECT 'sync_jobs', id FROM {schema}.sync_jobs WHERE id = ANY ($1)
     UNION ALL SELECT 'signals', id FROM {schema}.signals WHERE id = ANY ($1)
     UNION ALL SELECT 'credentials', connection_id FROM {schema}.credentials
                WHERE connection_id = ANY ($1)
     UNION ALL SELECT 'job_attempts', job_id FROM {schema}.job_attempts WHERE job_id = ANY ($1)
"""

TAKE_ON = """
    -- Set the role and the tenant until the transaction ends.
    SELECT set_config('role', $1, true), set_config('syncline.tenant_id', $2, true)
"""


async def probe(tx: Transaction, role: ApiRole) -> list[str]:
    """Return what the role sees but should not, and the reverse; the role stays set."""
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
