"""Statements with the schema's quoted name put in, once."""


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Statements(dict[str, str]):
    """Statements by their text, with the quoted schema in place of `{schema}`."""

    def __init__(self, schema: str) -> None:
        super().__init__()
        self._schema = quote_name(schema)

    def __missing__(self, statement: str) -> str:
        ready = self[statement] = statement.replace("{schema}", self._schema)
        return ready
