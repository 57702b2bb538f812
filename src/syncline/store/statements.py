"""Statements in which `{schema}` and `{is_completion}` are filled in."""

from datetime import timedelta

# A job `j` that completes a run of its connection's schedule. The latest one is the last
# completion, from which slots are counted. The index sync_jobs_by_connection serves it.
IS_COMPLETION = "j.finished_at IS NOT NULL AND j.job_type = 'incremental' AND j.counts_as_last"


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
    """Statements by their text, with `{schema}` and `{is_completion}` filled in.

    The comment is appended. It makes different statements for caches that prepare by text.
    """

    def __init__(self, schema: str, comment: str = "") -> None:
        super().__init__()
        self.schema = quote_name(schema)
        self._comment = comment

    def __missing__(self, statement: str) -> str:
        filled = statement.replace("{is_completion}", IS_COMPLETION)
        ready = self[statement] = filled.replace("{schema}", self.schema) + self._comment
        return ready
