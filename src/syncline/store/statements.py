"""Statements with the schema's quoted name put in, once."""


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return a literal that means the same whatever `standard_conforming_strings` says."""
    if "\0" in text:
        raise ValueError("text holds NUL")
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


class Statements(dict[str, str]):
    """Statements by their text, with the quoted schema in place of `{schema}`.

    A comment at the end makes them other statements to whoever keeps prepared ones by their text.
    """

    def __init__(self, schema: str, comment: str = "") -> None:
        super().__init__()
        self.schema = quote_name(schema)
        self._comment = comment

    def __missing__(self, statement: str) -> str:
        ready = self[statement] = statement.replace("{schema}", self.schema) + self._comment
        return ready
