"""Match a text with a pattern that a connector's schema brought, in bounded time.

The engine takes time in proportion to the text and to the pattern, whose counts are multiplied out.
Both are known before, so what would take long is refused.
"""

import re
from functools import lru_cache
from math import prod
from typing import Annotated, Any

MOST_STEPS = 1_000_000_000  # less than a second in the worst case, and a millisecond in others
COUNT = re.compile(r"\{(\d{0,9}),?(\d{0,9})\}")


def is_too_long(pattern: str, text: str) -> bool:
    """Return whether matching may take more than a moment."""
    counts = (max(1, *(int(count or 1) for count in found)) for found in COUNT.findall(pattern))
    return len(pattern) * prod(counts) * len(text) > MOST_STEPS


def matches(pattern: str, text: str) -> bool | None:
    """Return whether the text has a match; None if the engine cannot read the pattern."""
    from pydantic import ValidationError

    checker = _checker(pattern)
    if checker is None:  # written for another engine; the connector checks it
        return None
    try:
        checker.validate_python(text)
    except ValidationError:
        return False
    return True


@lru_cache(maxsize=256)
def _checker(pattern: str) -> Any:
    from pydantic import StringConstraints, TypeAdapter
    from pydantic_core import SchemaError

    try:
        checked: Any = Annotated[str, StringConstraints(pattern=pattern)]
        return TypeAdapter(checked)
    except SchemaError:
        return None
