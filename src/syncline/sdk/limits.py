"""What a connector declares about the limits of its provider."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limit:
    """A provider allows so many calls in any such span; operators can set others.

    `scope` names who shares them: all calls of the provider, or with `{tenant}` or `{connection}`
    in it those of a tenant or a connection. `per` is a number of seconds or text such as "1h".
    """

    scope: str
    calls: int
    per: str | float = "1h"
    burst: int | None = None  # how many may be made at once; a hundredth of the calls if not given
    is_reported: bool = False  # the headers of the provider's responses say what remains of it
