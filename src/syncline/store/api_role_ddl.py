"""The statements that make the role for requests: its rights and its policies."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from syncline.store.pool import EVERY_TENANT
from syncline.store.statements import quote_name

# Asked for by a subquery, which Postgres evaluates once a statement and not once a row.
TENANT = "(SELECT pg_catalog.current_setting('syncline.tenant_id', true))"
# CASE, because the planner takes it to let half of the rows through: close enough to all of them to
# leave the plans of listings alone, whose own filters name the tenant. `a OR b` it takes for rare.
OWN_TENANT = (
    f"CASE {TENANT} WHEN '{EVERY_TENANT}' THEN true WHEN tenant_id THEN true ELSE false END"
)
ANY_TENANT = f"{TENANT} <> ''"
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
    Table("credentials", ("SELECT", "INSERT", "UPDATE", "DELETE")),
    Table("api_requests", ("SELECT", "INSERT", "UPDATE", "DELETE")),
    Table("tenant_usage", ("SELECT", "INSERT", "UPDATE")),
    Table("schedulers", ("SELECT",), ANY_TENANT),
    Table("workers", ("SELECT",), ANY_TENANT),
)


def for_role(found: Any, role: str, schema: str) -> Iterator[str]:
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


def for_table(table: Table, rows: dict[str, Any], role: str, schema: str) -> Iterator[str]:
    """Return what a table lacks, in an order in which every step leaves it usable."""
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
