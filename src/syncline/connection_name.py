"""Names of connections for people: `acme/github/repo-1`, wherever an id is asked for.

The first two slashes divide tenant, provider and external id. `%XX` stands for one byte of UTF-8,
as in an address: a slash in a tenant is `%2F`, a percent sign anywhere is `%25`.
"""

from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, unquote


@dataclass(frozen=True, slots=True)
class ConnectionName:
    """The key of a connection. As text it can be read, copied, and given to a command."""

    tenant_id: str
    provider_slug: str
    external_id: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the name that a text is; None if it does not have three parts."""
        parts = [unquote(part, errors="surrogateescape") for part in text.split("/", 2)]
        return cls(*parts) if len(parts) == 3 and all(parts) else None

    def __str__(self) -> str:
        divided = (_written(self.tenant_id, "%/"), _written(self.provider_slug, "%/"))
        return "/".join((*divided, _written(self.external_id, "%")))


def _written(text: str, reserved: str) -> str:
    """Return the text with what would divide it, or cannot be seen or copied, as `%XX`."""
    return "".join(
        quote(char, safe="", errors="surrogatepass")
        if char in reserved or char.isspace() or not char.isprintable()
        else char
        for char in text
    )
