"""Statements in which `{schema}` and shared conditions are filled in."""

import re
from collections.abc import Iterator
from datetime import timedelta

# A job `j` that completes a run of its connection's schedule. The latest one is the last
# completion, from which slots are counted. The index sync_jobs_by_connection serves it.
IS_COMPLETION = "j.finished_at IS NOT NULL AND j.job_type = 'incremental' AND j.counts_as_last"

# A job `j` that a listing asks for. Its filters are the first parameters of every such statement:
# tenant, connection, provider, status or state, type, made from and until, error class, started
# from and until, finished from and until, shortest and longest duration; $15 is now.
IS_WANTED_JOB = """($1::text IS NULL OR j.tenant_id = $1)
       AND ($2::uuid IS NULL OR j.connection_id = $2)
       AND ($3::text IS NULL OR j.provider_slug = $3)
       AND CASE WHEN coalesce($4::text, '') = '' THEN true
           WHEN $4 = 'due' THEN j.status = 'queued'
                AND coalesce(j.retry_after, j.scheduled_at) <= $15::timestamptz
           WHEN $4 = 'later' THEN j.status = 'queued' AND j.retry_after IS NULL
                AND j.scheduled_at > $15
           WHEN $4 = 'backoff' THEN j.status = 'queued' AND j.retry_after > $15
           ELSE j.status = $4 END
       AND ($5::text IS NULL OR j.job_type = $5)
       AND ($6::timestamptz IS NULL OR j.created_at >= $6)
       AND ($7::timestamptz IS NULL OR j.created_at < $7)
       AND ($8::text IS NULL
            OR j.error IS NOT NULL AND left(coalesce(j.error ->> 'class', 'unknown'), 100) = $8)
       AND ($9::timestamptz IS NULL OR j.started_at >= $9)
       AND ($10::timestamptz IS NULL OR j.started_at < $10)
       AND ($11::timestamptz IS NULL OR j.finished_at >= $11)
       AND ($12::timestamptz IS NULL OR j.finished_at < $12)
       AND ($13::interval IS NULL OR j.finished_at - j.started_at >= $13)
       AND ($14::interval IS NULL OR j.finished_at - j.started_at < $14)"""
# A connection `c` that a listing asks for: its tenant, provider, status, and how its external id
# begins are the first parameters.
IS_WANTED_CONNECTION = """($1::text IS NULL OR c.tenant_id = $1)
       AND ($2::text IS NULL OR c.provider_slug = $2) AND ($3::text IS NULL OR c.status = $3)
       AND ($4::text IS NULL OR starts_with(c.external_id, $4))"""
# A row of the audit that a listing asks for, by tenant, provider, connection, actor, action, from
# and until, before a place. With $10 a tenant asks, to whom everybody else is "operator".
IS_WANTED_ACT = """($1::text IS NULL OR tenant_id = $1)
       AND ($2::text IS NULL OR provider_slug = $2)
       AND ($3::uuid IS NULL OR connection_ids @> ARRAY[$3])
       AND ($4::text IS NULL
            OR $4 = CASE WHEN $10 AND actor_kind <> 'tenant_key' THEN 'operator' ELSE actor END)
       AND ($5::text IS NULL OR action = $5)
       AND ($6::timestamptz IS NULL OR acted_at >= $6)
       AND ($7::timestamptz IS NULL OR acted_at < $7)
       AND (acted_at, id) < ($8::timestamptz, $9::uuid)"""
FRAGMENTS = {
    "{is_completion}": IS_COMPLETION,
    "{is_wanted_job}": IS_WANTED_JOB,
    "{is_wanted_act}": IS_WANTED_ACT,
    "{is_wanted_connection}": IS_WANTED_CONNECTION,
}


def fill_in(statement: str, schema: str) -> str:
    """Return a statement with its shared conditions and the schema's quoted name."""
    for name, condition in FRAGMENTS.items():
        statement = statement.replace(name, condition)
    return statement.replace("{schema}", schema)


# A semicolon, or what may hold one that ends nothing: a comment, a text, a name, a body in dollars.
PARTS = re.compile(r";|--[^\n]*|'(?:[^']|'')*'|\"[^\"]*\"|(\$\w*\$).*?\1", re.DOTALL)
COMMENT = re.compile(r"--[^\n]*")


def split_statements(script: str) -> Iterator[str]:
    """Yield the statements of a migration. Citus takes several only one by one."""
    start = 0
    for part in PARTS.finditer(script):
        if part[0] == ";":
            yield script[start : part.start()].strip()
            start = part.end()
    if COMMENT.sub("", script[start:]).strip():
        yield script[start:].strip()


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return a literal that does not depend on `standard_conforming_strings`."""
    if "\0" in text:
        raise ValueError("text holds NUL")
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def milliseconds(length: timedelta) -> str:
    """Return a length of time as settings of Postgres take it."""
    return str(int(length.total_seconds() * 1000))


class Statements(dict[str, str]):
    """Statements by their text, filled in.

    The comment is appended. It makes different statements for caches that prepare by text.
    """

    def __init__(self, schema: str, comment: str = "") -> None:
        super().__init__()
        self.schema = quote_name(schema)
        self._comment = comment

    def __missing__(self, statement: str) -> str:
        ready = self[statement] = fill_in(statement, self.schema) + self._comment
        return ready
