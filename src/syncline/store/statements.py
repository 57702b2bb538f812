"""Statements in which the schema's quoted name replaces `{schema}`."""


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return a literal that does not depend on `standard_conforming_strings`."""
    if "\0" in text:
        raise ValueError("text holds NUL")
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


class Statements(dict[str, str]):
    """Statements by their text, each with the quoted schema in place of `{schema}`.

    The comment is appended. It makes different statements for caches that prepare by text.
    """

    def __init__(self, schema: str, comment: str = "") -> None:
        super().__init__()
        self.schema = quote_name(schema)
        self._comment = comment

    def __missing__(self, statement: str) -> str:
        ready = self[statement] = statement.replace("{schema}", self.schema) + self._comment
        return ready
