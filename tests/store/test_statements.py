"""Every statement of the store keeps the rules that let it run on any Postgres, in any schema.

Postgres itself is the judge: it parses each statement with nothing on its search path, and its
catalogue says which functions may change their answer.
"""

import ast
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from support.statements import RECURSIVE, SOURCE, STATEMENT, STORE, Judge, modules, sql_in
from syncline.store.statements import split_statements

# These create things, and so put quoted names into statements; the second does so only in DDL.
MIGRATING, CREATING = STORE / "migrate.py", STORE / "api_role.py"
# What only people ask for may hop along an index in one statement; work may not.
FOR_PEOPLE = (STORE / "stats", STORE / "listings")
DDL = re.compile(r"(CREATE|ALTER)\s|\sWITH INHERIT FALSE")


def is_exempt(path: Path, text: str) -> bool:
    return path == MIGRATING or (path == CREATING and DDL.match(text) is not None)


@pytest.fixture
async def session(database_url: str) -> AsyncIterator[Any]:
    session = await asyncpg.connect(database_url)
    yield session
    await session.close()


async def test_every_statement_keeps_the_rules(session: Any) -> None:
    judge = Judge(session, "syncline")
    statements = {
        text: path.parent
        for path in modules(STORE)
        for text in sql_in(path)
        if not is_exempt(path, text)
    }
    assert len(statements) > 40

    offences = {text: await judge.offences(text) for text in statements}
    for text, found in offences.items():
        if statements[text] in FOR_PEOPLE and RECURSIVE in found:
            found.remove(RECURSIVE)
    assert {text: found for text, found in offences.items() if found} == {}


def test_sql_lives_in_the_store() -> None:
    others = [path for path in modules(SOURCE) if not path.is_relative_to(STORE)]
    outside = [path for path in others if path.parent.name != "testing"]
    assert {path: text for path in outside for text in sql_in(path)} == {}


def test_no_statement_is_put_together_from_parts() -> None:
    """The schema's quoted name is the one thing put in."""
    for path in modules(STORE):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                text = ast.unparse(node)[2:]
                assert is_exempt(path, text) or not STATEMENT.match(text), path


OFFENCES = {
    "UPDATE {t} SET lease_token = gen_random_uuid()": "volatile",
    "WITH a AS (UPDATE {t} SET flight = random()::text) SELECT": "volatile",
    "UPDATE {t} SET retry_after = now() + make_interval(secs => attempts)": "over a column",
    "UPDATE {t} SET retry_after = scheduled_at + interval '1 s'": "over a column",
    "UPDATE {t} SET cursor = to_jsonb(scheduled_at)": "over a column",
    "UPDATE {t} SET cursor = error::text::jsonb": "over a column",
    "INSERT INTO {t} (id) VALUES ($1) ON CONFLICT (id) DO UPDATE"
    " SET flight = to_char(excluded.scheduled_at, 'YYYY')": "over a column",
    "INSERT INTO {t} (id) VALUES ($1) ON CONFLICT (id) DO UPDATE"
    " SET updated_at = now()": "in an upsert",
    "WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM a) SELECT FROM a": "recursive",
    "UPDATE {t} SET attempts = 0 RETURNING now()": "not immutable",
    "UPDATE {t} SET finished_at = coalesce($1::timestamptz, now())": "among things",
    "UPDATE {t} SET retry_after = CASE WHEN attempts > 1 THEN now() END": "among things",
    "SELECT FROM {t} WHERE CASE status WHEN 'queued' THEN true ELSE false END": "by CASE",
    "DELETE FROM {t} WHERE ctid = $1": "ctid",
    "INSERT INTO {t} (id) SELECT id FROM syncline.connections": "straight from a table",
    "SELECT FROM information_schema.tables": "outside",
    "MERGE INTO {t} j USING (VALUES ($1::uuid)) v (id) ON j.id = v.id"
    " WHEN MATCHED THEN DELETE": "MERGE",
}
ALLOWED = (
    "UPDATE {t} SET updated_at = now(), scheduled_at = now() + interval '1 s'",
    "UPDATE {t} SET cursor = jsonb_set(error, '{{a}}', cursor || $1::jsonb)",
    "UPDATE {t} j SET retry_after = later.at"
    " FROM (SELECT now() + make_interval(secs => 1)) AS later (at)",
    "UPDATE {t} SET finished_at = moment.now"
    " FROM (SELECT coalesce($1::timestamptz, now())) AS moment (now)",
    "INSERT INTO {t} (id) SELECT unnest($1::uuid[])",
    "WITH found AS (SELECT id FROM {t}) INSERT INTO {t} (id) SELECT id FROM found",
)


async def test_the_judge_sees_each_offence(session: Any) -> None:
    judge = Judge(session, "syncline")
    for statement, offence in OFFENCES.items():
        found = await judge.offences(statement.format(t="syncline.sync_jobs"))
        assert offence in str(found), statement


async def test_the_judge_has_nothing_on_its_search_path(session: Any) -> None:
    for statement in ("SELECT FROM sync_jobs", "SELECT object_or_empty('1')"):
        with pytest.raises(asyncpg.PostgresError, match="does not exist"):
            await Judge(session, "syncline").offences(statement)


async def test_the_judge_lets_pass_what_is_allowed(session: Any) -> None:
    judge = Judge(session, "syncline")
    for statement in ALLOWED:
        assert await judge.offences(statement.format(t="syncline.sync_jobs")) == [], statement


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("SELECT 1; SELECT 2;\n", ["SELECT 1", "SELECT 2"]),
        ("SELECT 'it''s; one'; SELECT 2", ["SELECT 'it''s; one'", "SELECT 2"]),
        ('-- a; b\nSELECT "x;y";\n-- end; of it', ['-- a; b\nSELECT "x;y"']),
        (
            "CREATE f AS $$ 1; 2 $$; SELECT $b$ ; $$ ; $b$;",
            ["CREATE f AS $$ 1; 2 $$", "SELECT $b$ ; $$ ; $b$"],
        ),
        ("-- nothing", []),
    ],
)
def test_a_script_is_split_where_its_statements_end(script: str, statements: list[str]) -> None:
    assert list(split_statements(script)) == statements
