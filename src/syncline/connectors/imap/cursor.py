"""The IMAP cursor: a place for each mailbox, with its messages as ranges.

The ranges are never expanded into numbers: a few bytes may stand for millions.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from syncline.errors import Permanent

MAX_KNOWN_BYTES = 20_000  # per mailbox, so that several fit into a cursor
MAX_KNOWN_MESSAGES = 500_000  # per mailbox: the library's limit for a SEARCH
LARGEST_UID = 2**32 - 1
LARGEST_MODSEQ = 2**63 - 1
RANGE = re.compile(r"([0-9]{1,10})(?::([0-9]{1,10}))?")


@dataclass(frozen=True, slots=True)
class Place:
    """The place in a mailbox; `known` are the numbers of its messages, as ranges."""

    uidvalidity: int
    uidnext: int = 1
    modseq: int = 0
    known: str | None = ""  # None once there are too many to keep

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def write_cursor(places: Mapping[str, Place]) -> dict[str, Any]:
    return {"mailboxes": {name: place.to_json() for name, place in places.items()}}


def read_cursor(cursor: Any) -> dict[str, Place]:
    """Return the places of a cursor; refuse one that this connector did not write."""
    try:
        found = {} if cursor is None else cursor["mailboxes"]
        places = {name: Place(**place) for name, place in found.items()}
    except (TypeError, KeyError, AttributeError):
        raise Permanent('cursor: expected {"mailboxes": an object of places}') from None
    for name, place in places.items():
        _check_numbers(name, place)
        if place.known is not None:
            _check_known(name, place.known, place.uidnext)
    return places


def _check_numbers(name: str, place: Place) -> None:
    bounds = {"uidvalidity": LARGEST_UID, "uidnext": LARGEST_UID + 1, "modseq": LARGEST_MODSEQ}
    for field, largest in bounds.items():
        value = getattr(place, field)
        if type(value) is not int or not 0 <= value <= largest:
            raise Permanent(f"cursor: {field} of {name!r} must be from 0 to {largest}")


def _check_known(name: str, known: Any, uidnext: int) -> None:
    """Refuse ranges that cannot be right, or that have too many messages."""
    if not isinstance(known, str) or len(known) > MAX_KNOWN_BYTES:
        raise Permanent(f"cursor: known of {name!r} must be text of at most {MAX_KNOWN_BYTES}")
    ranges = read_ranges(known)
    is_ascending = all(before.stop <= after.start for before, after in pairwise(ranges))
    if not is_ascending or not all(0 < one.start < one.stop <= uidnext for one in ranges):
        raise Permanent(f"cursor: known of {name!r} must be ascending ranges below uidnext")
    named = sum(map(len, ranges))
    if named > MAX_KNOWN_MESSAGES:
        raise Permanent(
            f"cursor: known of {name!r} has {named} messages; "
            f"it must be at most {MAX_KNOWN_MESSAGES}"
        )


def read_ranges(text: str) -> list[range]:
    """Return the ranges of a text such as `1:5,7`."""
    ranges = []
    for part in filter(None, text.split(",")):
        matched = RANGE.fullmatch(part)
        if matched is None:
            raise Permanent("cursor: known must be ranges such as 1:5,7")
        first, last = int(matched[1]), int(matched[2] or matched[1])
        ranges.append(range(first, last + 1))
    return ranges


def write_ranges(ranges: Iterable[range]) -> str | None:
    """Return ascending ranges as text, or None if they are too many to keep."""
    merged: list[range] = []
    for one in ranges:
        if merged and one.start <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, one.stop))
        else:
            merged.append(one)
    text = ",".join(f"{one[0]}:{one[-1]}" if len(one) > 1 else str(one[0]) for one in merged)
    fits = len(text) <= MAX_KNOWN_BYTES and sum(map(len, merged)) <= MAX_KNOWN_MESSAGES
    return text if fits else None


def with_numbers(known: str | None, uids: Iterable[int]) -> str | None:
    """Return `known` with more numbers."""
    if known is None:
        return None
    added = [range(uid, uid + 1) for uid in uids]
    return write_ranges(sorted([*read_ranges(known), *added], key=lambda one: one.start))


def missing_from(known: str, present: Iterable[int]) -> Iterator[int]:
    """Yield the numbers of `known` that are not among those present, in ascending order."""
    there = set(present)
    for one in read_ranges(known):
        yield from (uid for uid in one if uid not in there)


def known_after(known: str, last: int, present: Iterable[int]) -> str | None:
    """Return `known` without the missing numbers up to `last`."""
    there = [range(uid, uid + 1) for uid in present if uid <= last]
    rest = [range(max(one.start, last + 1), one.stop) for one in read_ranges(known)]
    return write_ranges([*there, *filter(None, rest)])
