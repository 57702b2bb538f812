"""How large a JSON document is inside, found in one linear pass before anything parses it.

A parser builds what a document asks for: a few kilobytes that were compressed become millions of
lists. The scan uses no pattern and keeps no part of the document, so a body can be measured piece
by piece while it arrives.
"""

from dataclasses import dataclass
from itertools import accumulate

MAX_DEPTH = 64
PIECE_BYTES = 65_536
STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
NOT_BRACKETS = bytes(set(range(256)).difference(STEPS))
NUMBER_MARKS = bytes(ord("0") if byte in b"0123456789.eE+-" else ord(" ") for byte in range(256))


class TooComplex(ValueError):
    """A document exceeds a bound; `bound` is the field of `JsonBounds` that it exceeds."""

    def __init__(self, bound: str, reason: str) -> None:
        super().__init__(reason)
        self.bound = bound


@dataclass(frozen=True, slots=True)
class JsonBounds:
    """How deep a document may be nested, and how much it may hold."""

    depth: int = MAX_DEPTH
    nodes: int = 1_000_000  # values: about 100 bytes of memory each
    number_bytes: int = 1_000  # the largest double has 309 digits
    string_bytes: int = 16_000_000


class JsonScanner:
    """Counts what a document holds, piece by piece.

    Up to the first mistake in the document the counts are exact. What stands after it does not
    matter, because every parser stops there.
    """

    def __init__(self, bounds: JsonBounds) -> None:
        self._bounds = bounds
        self.nodes = 0
        self._depth = 0
        self._is_in_string = False
        self._has_open_escape = False
        self._string_bytes = 0
        self._number_bytes = 0

    def feed(self, piece: bytes) -> None:
        """Count the next piece, or raise `TooComplex`."""
        for start in range(0, len(piece), PIECE_BYTES):
            self._count(self._outside_strings(piece[start : start + PIECE_BYTES]))

    def _outside_strings(self, piece: bytes) -> bytes:
        """Return the piece without its strings."""
        if self._has_open_escape:
            piece = b"\\" + piece
        if b"\\" in piece:
            # Pairs go first, from the left: what is left of a run of backslashes escapes a quote.
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        self._has_open_escape = piece.endswith(b"\\")
        if self._has_open_escape:
            piece = piece[:-1]
        first, *others = piece.split(b'"')
        parts = [b"", first, *others] if self._is_in_string else [first, *others]
        self._is_in_string = len(parts) % 2 == 0
        self._check_strings(parts[1::2])
        return b"".join(parts[::2])

    def _check_strings(self, strings: list[bytes]) -> None:
        if not strings:
            return
        longest = max(self._string_bytes + len(strings[0]), max(map(len, strings)))
        if longest > self._bounds.string_bytes:
            limit = self._bounds.string_bytes
            raise TooComplex("string_bytes", f"a string of more than {limit} bytes")
        if not self._is_in_string:
            self._string_bytes = 0
        elif len(strings) == 1:
            self._string_bytes = longest
        else:
            self._string_bytes = len(strings[-1])

    def _count(self, outside: bytes) -> None:
        bounds = self._bounds
        opened = outside.count(b"[") + outside.count(b"{")
        self.nodes += opened + outside.count(b",")
        if self.nodes > bounds.nodes:
            raise TooComplex("nodes", f"more than {bounds.nodes} values")
        deepest = self._depth + opened
        if deepest > bounds.depth:  # the only pieces that can be too deep
            brackets = outside.translate(None, NOT_BRACKETS)
            deepest = max(accumulate(map(STEPS.__getitem__, brackets), initial=self._depth))
            if deepest > bounds.depth:
                raise TooComplex("depth", f"nested deeper than {bounds.depth}")
        self._depth += opened - outside.count(b"]") - outside.count(b"}")
        marks = b"0" * self._number_bytes + outside.translate(NUMBER_MARKS)
        limit = bounds.number_bytes
        if len(marks) > limit and b"0" * (limit + 1) in marks:
            raise TooComplex("number_bytes", f"a number of more than {limit} characters")
        self._number_bytes = len(marks) - len(marks.rstrip(b"0"))


def check_json(document: bytes, bounds: JsonBounds) -> int:
    """Return how many values a document holds, or raise `TooComplex`."""
    scanner = JsonScanner(bounds)
    scanner.feed(document)
    return scanner.nodes
