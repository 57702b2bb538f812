"""Every statement of the store keeps the rules that let it run on any Postgres, in any schema.

Postgres itself is the judge: it parses each statement with nothing on its search path, and its
catalogue says which functions may change their answer.
"""

import ast
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import syncline
from support.parsetree import Node, parse

SOURCE = Path(syncline.__file__).parent
STORE = SOURCE / "store"
STATEMENT = re.compile(
    r"\s*(--[^\n]*\n\s*)*\(?(WITH|SELECT|INSERT|UPDATE|DELETE|MERGE|CREATE|ALTER|DROP|LOCK|SET)\s"
)
CALLS = {
    "FUNCEXPR": "funcid",
    "OPEXPR": "opfuncid",
    "DISTINCTEXPR": "opfuncid",
    "NULLIFEXPR": "opfuncid",
    "SCALARARRAYOPEXPR": "opfuncid",
}
# A text cast goes through functions of both types; none is known to be immutable.
STABLE_NODES = {"COERCEVIAIO", "SQLVALUEFUNCTION"}
UPDATE, INSERT, MERGE = 2, 3, 5
TABLE, SUBQUERY = 0, 1


def texts(path: Path) -> Iterator[str]:
    """Return the texts of a module that read like SQL, docstrings aside."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        ast.get_docstring(n, clean=False) for n in ast.walk(tree) if isinstance(n, documented)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if STATEMENT.match(node.value) and node.value not in docstrings:
                yield node.value


def modules(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.py") if "embedded" not in path.parts]


STATEMENTS = [
    pytest.param(text, id=f"{path.stem}-{number}")
    for path in sorted(modules(STORE))
    if path.name != "migrate.py"
    for number, text in enumerate(texts(path), start=1)
]


@pytest.fixture
async def session(database_url: str) -> AsyncIterator[Any]:
    session = await asyncpg.connect(database_url)
    yield session
    await session.close()


def test_there_are_statements_to_judge() -> None:
    assert len(STATEMENTS) > 40


def test_sql_lives_in_the_store() -> None:
    elsewhere = {
        path.relative_to(SOURCE).as_posix(): text
        for path in modules(SOURCE)
        if not path.is_relative_to(STORE) and path.parent.name != "testing"
        for text in texts(path)
    }
    assert elsewhere == {}


def test_no_statement_is_put_together_from_parts() -> None:
    """The schema's name is the one thing put in; the names of a migration are quoted by hand."""
    for path in modules(STORE):
        if path.name != "migrate.py":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    assert not STATEMENT.match(ast.unparse(node)[2:]), path


@pytest.mark.parametrize("statement", STATEMENTS)
async def test_a_statement_keeps_the_rules(session: Any, statement: str) -> None:
    tree = await parse(session, statement.replace("{schema}", "syncline"))
    catalogue = Catalogue(session)
    for node in (tree, *tree.inside()):
        if node.kind == "QUERY":
            assert node.number("commandType") != MERGE
            assert not inserts_from_a_bare_table(node)
            await catalogue.check_set(set_expressions(node))
            await catalogue.check_returning(list(node.inside("returningList")))
        if node.kind == "VAR":
            assert node.number("varattno") >= 0, "ctid, or another column of the system"
        if node.kind == "RANGETBLENTRY" and node.number("rtekind") == TABLE:
            await catalogue.check_schema("pg_class", node.number("relid"))
        if node.kind == "FUNCEXPR":
            await catalogue.check_schema("pg_proc", node.number("funcid"))


@pytest.mark.parametrize(
    ("statement", "offence"),
    [
        ("UPDATE {t} SET lease_token = gen_random_uuid()", "volatile"),
        ("UPDATE {t} SET retry_after = now() + make_interval(secs => attempts)", "over a column"),
        ("UPDATE {t} SET retry_after = scheduled_at + interval '1 s'", "over a column"),
        ("UPDATE {t} SET cursor = to_jsonb(scheduled_at)", "over a column"),
        ("UPDATE {t} SET cursor = error::text::jsonb", "over a column"),
        ("UPDATE {t} SET attempts = 0 RETURNING now()", "not immutable"),
        ("UPDATE {t} SET attempts = 0 RETURNING id::text || clock_timestamp()", "volatile"),
        ("WITH a AS (UPDATE {t} SET flight = random()::text) SELECT", "volatile"),
        (
            "INSERT INTO {t} (id) VALUES ($1) ON CONFLICT (id) DO UPDATE"
            " SET flight = to_char(excluded.scheduled_at, 'YYYY')",
            "over a column",
        ),
        ("DELETE FROM {t} WHERE ctid = $1", "of the system"),
        ("INSERT INTO {t} (id) SELECT id FROM syncline.connections", "bare_table"),
        ("SELECT FROM pg_temp.sync_jobs", "does not exist"),
        ("SELECT FROM sync_jobs", "does not exist"),
        ("SELECT object_or_empty('1')", "does not exist"),
        ("SELECT FROM information_schema.tables", "outside"),
        (
            "MERGE INTO {t} j USING (VALUES ($1::uuid)) v (id) ON j.id = v.id"
            " WHEN MATCHED THEN DELETE",
            "commandType",
        ),
    ],
)
async def test_the_judge_sees_an_offence(session: Any, statement: str, offence: str) -> None:
    with pytest.raises((AssertionError, asyncpg.PostgresError), match=offence):
        await test_a_statement_keeps_the_rules(session, statement.format(t="syncline.sync_jobs"))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {t} SET updated_at = now(), scheduled_at = now() + interval '1 s'",
        "UPDATE {t} SET cursor = jsonb_set(error, '{{a}}', cursor || $1::jsonb)",
        "UPDATE {t} j SET retry_after = later.at FROM (SELECT now() + make_interval(secs => 1))"
        " AS later (at)",
        "INSERT INTO {t} (id) SELECT unnest($1::uuid[])",
        "WITH found AS (SELECT id FROM {t}) INSERT INTO {t} (id) SELECT id FROM found",
    ],
)
async def test_the_judge_lets_pass_what_is_allowed(session: Any, statement: str) -> None:
    await test_a_statement_keeps_the_rules(session, statement.format(t="syncline.sync_jobs"))


async def test_the_schema_has_nothing_that_others_lack(session: Any) -> None:
    """No triggers, rules, sequences or unlogged tables, and no table without its tenant."""
    ours = "n.nspname = 'syncline'"
    joined = "pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    assert (
        await session.fetch(
            f"SELECT t.tgname FROM pg_trigger t JOIN {joined} ON c.oid = t.tgrelid"
            f" WHERE {ours} AND NOT t.tgisinternal"
        )
        == []
    )
    assert await session.fetch("SELECT rulename FROM pg_rules WHERE schemaname = 'syncline'") == []
    assert (
        await session.fetch(
            f"SELECT c.relname FROM {joined} WHERE {ours} AND (relkind = 'S' OR relpersistence <> 'p')"
        )
        == []
    )
    assert (
        await session.fetch(
            "SELECT c.relname FROM pg_class c WHERE relnamespace = 'public'::regnamespace"
        )
        == []
    )


def set_expressions(query: Node) -> list[Node]:
    """Return the nodes of what an UPDATE, or the update of an upsert, puts into columns."""
    upsert = [
        entry
        for node in query.inside("onConflict")
        if node.kind == "ONCONFLICTEXPR"
        for entry in node.inside("onConflictSet")
    ]
    update = list(query.inside("targetList")) if query.number("commandType") == UPDATE else []
    return update + upsert


def inserts_from_a_bare_table(query: Node) -> bool:
    """Return whether rows go from a table straight into another, without a CTE between."""
    if query.number("commandType") != INSERT:
        return False
    entries = [node for node in direct(query, "rtable") if node.number("rtekind") == SUBQUERY]
    sources = [source for entry in entries for source in direct(entry, "subquery")]
    return any(
        table.number("rtekind") == TABLE for source in sources for table in direct(source, "rtable")
    )


def direct(node: Node, name: str) -> list[Node]:
    """Return the nodes that stand in a field itself, not deeper."""
    values = node.fields.get(name, [])
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return [item for item in flat if isinstance(item, Node)]


class Catalogue:
    """What the server knows of functions and tables."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def check_schema(self, catalogue: str, oid: int) -> None:
        column = {"pg_class": "relnamespace", "pg_proc": "pronamespace"}[catalogue]
        schema = await self._session.fetchval(
            f"SELECT {column}::regnamespace::text FROM pg_catalog.{catalogue} WHERE oid = $1", oid
        )
        assert schema in ("syncline", "pg_catalog"), f"{schema} is outside"

    async def check_set(self, nodes: list[Node]) -> None:
        for node in nodes:
            volatility = await self._volatility(node)
            assert volatility != "v", f"{node.kind} is volatile"
            over_column = any(inner.kind == "VAR" for inner in node.inside())
            assert volatility == "i" or not over_column, f"{node.kind} is stable, over a column"

    async def check_returning(self, nodes: list[Node]) -> None:
        for node in nodes:
            volatility = await self._volatility(node)
            assert volatility != "v", f"{node.kind} is volatile"
            assert volatility == "i", f"{node.kind} is not immutable"

    async def _volatility(self, node: Node) -> str:
        if node.kind in STABLE_NODES:
            return "s"
        if node.kind not in CALLS:
            return "i"
        volatility = await self._session.fetchval(
            "SELECT provolatile::text FROM pg_catalog.pg_proc WHERE oid = $1",
            node.number(CALLS[node.kind]),
        )
        return str(volatility)
