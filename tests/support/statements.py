"""The statements of the store, and a judge of the rules that keep them portable."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import syncline
from support.parsetree import Node, parse
from syncline.store.statements import fill_in

SOURCE = Path(syncline.__file__).parent
STORE = SOURCE / "store"
STATEMENT = re.compile(
    r"\s*(--[^\n]*\n\s*)*\(?(WITH|SELECT|INSERT|UPDATE|DELETE|MERGE|CREATE|ALTER|DROP|LOCK|SET)\s"
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

CALLS = {
    "FUNCEXPR": "funcid",
    "OPEXPR": "opfuncid",
    "DISTINCTEXPR": "opfuncid",
    "NULLIFEXPR": "opfuncid",
    "SCALARARRAYOPEXPR": "opfuncid",
}
# A cast by way of text goes through functions of both types, which need not be immutable.
STABLE_NODES = {"COERCEVIAIO", "SQLVALUEFUNCTION"}
CHOICES = {"CASE", "CASEEXPR", "COALESCE", "COALESCEEXPR"}  # before Postgres 16, and since
UPDATE, INSERT, MERGE = 2, 3, 5  # Postgres' CmdType
TABLE, SUBQUERY = 0, 1  # Postgres' RTEKind
RECURSIVE = "is recursive"


def modules(folder: Path) -> list[Path]:
    """Return the Python files of a folder; the embedded server's have no SQL of ours."""
    return sorted(path for path in folder.rglob("*.py") if "embedded" not in path.parts)


def sql_in(path: Path) -> Iterator[str]:
    """Return the texts of a module that read like SQL, docstrings aside."""
    tree = ast.parse(path.read_text())
    docstrings = {
        ast.get_docstring(node, clean=False)
        for node in ast.walk(tree)
        if isinstance(node, DOCUMENTED)
    }
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and text not in docstrings and STATEMENT.match(text):
            yield text


class Judge:
    """Finds what is wrong with a statement, from the server's parse tree."""

    def __init__(self, session: Any, schema: str) -> None:
        self._session = session
        self._schema = schema

    async def offences(self, statement: str) -> list[str]:
        """Return each rule that the statement breaks."""
        tree = await parse(self._session, fill_in(statement, self._schema))
        found: list[str] = []
        for node in (tree, *tree.inside()):
            if node.kind == "QUERY":
                found += await self._in_query(node)
            elif node.kind == "VAR" and node.number("varattno") < 0:
                found.append("reads ctid, or another column of the system")
            elif node.kind == "RANGETBLENTRY" and node.number("rtekind") == TABLE:
                found += await self._outside("pg_class", node.number("relid"))
            elif node.kind in CHOICES and node.directly_in("arg"):
                found.append("compares by CASE … WHEN, which Citus writes down wrongly")
            elif node.kind == "FUNCEXPR":
                found += await self._outside("pg_proc", node.number("funcid"))
        return found

    async def _in_query(self, query: Node) -> list[str]:
        found = []
        if query.number("commandType") == MERGE:
            found.append("is a MERGE")
        if _inserts_from_a_bare_table(query):
            found.append("inserts straight from a table")
        if query.fields["hasRecursive"] == ["true"]:
            found.append(RECURSIVE)
        found += [
            f"sets something in an upsert that is not immutable ({node.kind})"
            for node in _set_by_upsert(query)
            if await self._volatility(node) != "i"
        ]
        for node in _set_by(query):
            volatility = await self._volatility(node)
            if volatility == "v":
                found.append(f"sets something volatile ({node.kind})")
            if volatility == "s" and any(inner.kind == "VAR" for inner in node.inside()):
                found.append(f"sets something stable over a column ({node.kind})")
            if node.kind in CHOICES and await self._has_stable_part(node):
                found.append(
                    f"chooses what it sets among things that are not immutable ({node.kind})"
                )
        found += [
            f"returns something that is not immutable ({node.kind})"
            for node in query.inside("returningList")
            if await self._volatility(node) != "i"
        ]
        return found

    async def _has_stable_part(self, node: Node) -> bool:
        return any([await self._volatility(inner) != "i" for inner in node.inside()])

    async def _outside(self, catalogue: str, oid: int) -> list[str]:
        column = {"pg_class": "relnamespace", "pg_proc": "pronamespace"}[catalogue]
        schema = await self._session.fetchval(
            f"SELECT {column}::regnamespace::text FROM pg_catalog.{catalogue} WHERE oid = $1", oid
        )
        return [] if schema in (self._schema, "pg_catalog") else [f"reaches outside, to {schema}"]

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


def _set_by(query: Node) -> list[Node]:
    """Return the nodes of the values that an UPDATE or an upsert assigns."""
    is_update = query.number("commandType") == UPDATE
    return _set_by_upsert(query) + (list(query.inside("targetList")) if is_update else [])


def _set_by_upsert(query: Node) -> list[Node]:
    return [
        entry
        for upsert in query.inside("onConflict")
        if upsert.kind == "ONCONFLICTEXPR"
        for entry in upsert.inside("onConflictSet")
    ]


def _inserts_from_a_bare_table(query: Node) -> bool:
    """Return whether rows go from a table straight into another, without a CTE between."""
    return query.number("commandType") == INSERT and any(
        table.number("rtekind") == TABLE
        for entry in query.directly_in("rtable")
        if entry.number("rtekind") == SUBQUERY
        for source in entry.directly_in("subquery")
        for table in source.directly_in("rtable")
    )
