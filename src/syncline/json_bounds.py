"""Measure a JSON document in one linear pass before it is parsed.

A parser builds whatever a document has: a few compressed kilobytes may become millions of lists.
The scan keeps no part of the document, so a body can be measured piece by piece as it arrives.
"""

import gc
import json
import threading
from dataclasses import dataclass
from itertools import accumulate
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

import orjson

MAX_DEPTH = 64
MAX_NODES = 1_000_000
PIECE_BYTES = 65_536
# Within these bounds the parser in C takes at most 40 ms, during which it holds the interpreter
# lock and the event loop waits.
QUICK_BYTES, QUICK_NODES = 4_000_000, 100_000
STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
NOT_BRACKETS = bytes(set(range(256)).difference(STEPS))
DIGIT_MARKS = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
LONG_NUMBER = b"0" * 19  # integers of 64 bits have up to 20 digits
MANY_BRACKETS = 800  # with fewer, no document is too deep for a parser
NUMBER_MARKS = bytes(ord("0") if byte in b"0123456789.eE+-" else ord(" ") for byte in range(256))


class TooComplex(ValueError):
    """A document exceeds a bound; `bound` is the field of `JsonBounds` that it exceeds."""

    def __init__(self, bound: str, reason: str) -> None:
        super().__init__(reason)
        self.bound = bound


@dataclass(frozen=True, slots=True)
class JsonBounds:
    """How deep a document may be nested, and how large it may be."""

    depth: int = MAX_DEPTH
    nodes: int = MAX_NODES  # values: about 100 bytes of memory each
    number_bytes: int = 1_000  # the largest double has 309 digits
    string_bytes: int = 16_000_000
    blank_bytes: int = 1_000_000  # in a row; a parser skips them in one call


class JsonScanner:
    """Measures a document piece by piece.

    The counts are exact up to the first syntax error, where every parser stops.
    """

    def __init__(self, bounds: JsonBounds) -> None:
        self._bounds = bounds
        self.nodes = 0
        self._depth = 0
        self._is_in_string = False
        self._has_open_escape = False
        self._string_bytes = 0
        self._number_bytes = 0
        self._blank_bytes = 0

    def feed(self, piece: bytes) -> None:
        """Count the next piece, or raise `TooComplex`."""
        for start in range(0, len(piece), PIECE_BYTES):
            self._count(self._outside_strings(piece[start : start + PIECE_BYTES]))

    def _outside_strings(self, piece: bytes) -> bytes:
        """Return the piece without its strings."""
        if self._has_open_escape:
            piece = b"\\" + piece
        if b"\\" in piece:
            # Remove pairs of backslashes first; a remaining one escapes a quote.
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
        self._blank_bytes = self._blank_bytes + len(outside) if outside.isspace() else 0
        if self._blank_bytes > bounds.blank_bytes:
            raise TooComplex("blank_bytes", f"more than {bounds.blank_bytes} blanks in a row")
        opened = outside.count(b"[") + outside.count(b"{")
        self.nodes += opened + outside.count(b",")
        if self.nodes > bounds.nodes:
            raise TooComplex("nodes", f"more than {bounds.nodes} values")
        deepest = self._depth + opened
        if deepest > bounds.depth:  # only such a piece can be too deep
            brackets = outside.translate(None, NOT_BRACKETS)
            deepest = max(accumulate(map(STEPS.__getitem__, brackets), initial=self._depth))
            if deepest > bounds.depth:
                raise TooComplex("depth", f"values nested deeper than {bounds.depth}")
        self._depth += opened - outside.count(b"]") - outside.count(b"}")
        marks = b"0" * self._number_bytes + outside.translate(NUMBER_MARKS)
        limit = bounds.number_bytes
        if len(marks) > limit and b"0" * (limit + 1) in marks:
            raise TooComplex("number_bytes", f"a number of more than {limit} characters")
        self._number_bytes = len(marks) - len(marks.rstrip(b"0"))


def check_json(document: bytes, bounds: JsonBounds) -> int:
    """Return the number of values in a document, or raise `TooComplex`."""
    scanner = JsonScanner(bounds)
    scanner.feed(document)
    return scanner.nodes


def parse_json(document: bytes, bounds: JsonBounds) -> Any:
    """Parse a document; raise `TooComplex`, or ValueError if it is not JSON.

    A large one is parsed in Python instead of C, which is ten times slower but lets other threads
    run every few milliseconds. Call it in a thread then.
    """
    if len(document) <= PIECE_BYTES:  # most documents, too small to do harm
        try:
            return parse_quickly(document)
        except RecursionError:
            raise TooComplex("depth", f"values nested deeper than {bounds.depth}") from None
    encoding = json.detect_encoding(document)
    if not encoding.startswith("utf-8"):
        document = document.decode(encoding).encode()
    nodes = check_json(document, bounds)
    if len(document) <= QUICK_BYTES and nodes <= QUICK_NODES:
        return parse_quickly(document)
    with UNCOLLECTED:
        return _PythonDecoder().decode(document.decode("utf-8-sig", "surrogatepass"))


def parse_quickly(document: bytes) -> Any:
    """Return what `json.loads` returns, or raise what it raises, and mostly in a third of the time.

    The quick parser makes a float of an integer beyond 64 bits, and has its own limit of nesting.
    Such documents never reach it. Whatever it refuses, `json` judges: a byte order mark, UTF-16,
    NaN, lone surrogates, numbers beyond the largest float.
    """
    brackets = document.count(b"[") + document.count(b"{")
    if brackets <= MANY_BRACKETS and not _may_have_long_number(document):
        try:
            return orjson.loads(document)
        except orjson.JSONDecodeError:
            pass
    return json.loads(document)


def _may_have_long_number(document: bytes) -> bool:
    # In 19 digits in a row, at least four are at places that are multiples of four.
    if b"0000" not in document[::4].translate(DIGIT_MARKS):
        return False
    return LONG_NUMBER in document.translate(DIGIT_MARKS)


class _Uncollected:
    """Turns the garbage collector off while large documents are parsed.

    They have no cycles, but so many values that the collector would scan them, and everything else
    in the process, again and again, and block the event loop each time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._was_on = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._was_on = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._was_on:
                gc.enable()


UNCOLLECTED = _Uncollected()  # one per process, like the collector


class _PythonDecoder(json.JSONDecoder):
    """Parses lists and objects in Python; C still parses each string."""

    def __init__(self) -> None:
        super().__init__(object_pairs_hook=_object)
        self.parse_string = scanstring
        self.scan_once = py_make_scanner(self)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) <= QUICK_NODES // 2:
        return dict(pairs)
    # Slower than dict(pairs), but interruptible.
    return {key: value for key, value in pairs}  # noqa: C416
