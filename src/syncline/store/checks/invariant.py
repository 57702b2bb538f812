"""What an invariant is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Invariant:
    """`arguments` names what the query takes after `$1`, the most rows to return."""

    name: str
    sentence: str
    arguments: tuple[str, ...]
    query: str
