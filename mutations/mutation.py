"""A protection, and how it is switched off in a copy of the source."""

from dataclasses import dataclass


class DoesNotApply(Exception):
    """The source does not contain the text that a mutation changes, or contains it twice."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A protection, the source text that implements it, and the test that should notice."""

    protection: str
    without_it: str
    file: str
    changes: tuple[tuple[str, str], ...]
    test: str

    def switch_off(self, source: str) -> str:
        """Return the source of the file without the protection."""
        for before, after in self.changes:
            if source.count(before) != 1:
                raise DoesNotApply(
                    f"{self.protection}: {self.file} holds {source.count(before)} times {before!r}"
                )
            source = source.replace(before, after)
        return source
