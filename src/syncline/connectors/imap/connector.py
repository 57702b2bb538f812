"""The messages of IMAP mailboxes: new ones, changed flags, and removed ones."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from email.header import decode_header, make_header
from itertools import islice
from typing import TYPE_CHECKING, Any

from syncline.clock import host_time
from syncline.connectors.config import read_configuration
from syncline.connectors.imap.cursor import (
    Place,
    known_after,
    missing_from,
    read_cursor,
    with_numbers,
    write_cursor,
)
from syncline.connectors.imap.session import Account, logged_in
from syncline.model import Connection, Signal, SyncResult
from syncline.sdk.connector import Connector

if TYPE_CHECKING:
    from imapclient import IMAPClient

VANISHED_A_PAGE = 10_000
LONGEST_ENCODED = 4_000  # characters of a header to decode
FIELDS = ["ENVELOPE", "FLAGS", "INTERNALDATE", "RFC822.SIZE"]


class Imap(Connector):
    """Syncs mailboxes one after the other; a plain `def`, because the library blocks.

    The cursor has a place for each mailbox. New messages are found by their numbers, changed flags
    by MODSEQ if the server supports it, and removed messages by comparing the numbers.
    """

    provider = "imap"
    title = "IMAP mailboxes"
    auth = ("basic", "oauth2", "oauth2_grant")
    config_schema = Account
    local = True  # it opens its own connections, outside the HTTP client

    def sync(self, connection: Connection, cursor: Any) -> SyncResult:
        config = read_configuration(Account, connection.config)
        places = read_cursor(cursor)
        allow_private = bool(self.http_environment and self.http_environment.allow_private)
        with logged_in(config, connection.credentials, allow_private=allow_private) as client:
            for name in config.mailboxes:
                signals, place, has_more = _read_mailbox(client, config, name, places.get(name))
                is_changed = place != places.get(name)
                places[name] = place
                if has_more or signals:
                    has_more = is_changed and (has_more or name != config.mailboxes[-1])
                    return SyncResult(signals, write_cursor(places), has_more=has_more)
        return SyncResult((), write_cursor(places))


def _read_mailbox(
    client: "IMAPClient", config: Account, name: str, known: Place | None
) -> tuple[list[Signal], Place, bool]:
    """Return a page of a mailbox's changes, the place after it, and whether there are more."""
    chosen = client.select_folder(name, readonly=True)
    uidvalidity, modseq = int(chosen[b"UIDVALIDITY"]), int(chosen.get(b"HIGHESTMODSEQ", 0))
    signals: list[Signal] = []
    page: list[int] = []
    place = known
    if place is None or place.uidvalidity != uidvalidity:
        if place is not None:
            signals.append(_reset(name, uidvalidity))
        place = Place(uidvalidity, modseq=modseq)
    if place.uidnext < int(chosen.get(b"UIDNEXT", 0)) or b"UIDNEXT" not in chosen:
        uids = sorted(uid for uid in _search(client, place.uidnext) if uid >= place.uidnext)
        page = uids[: config.page_size]
        signals += _new_messages(client, name, place, page)
        uidnext = page[-1] + 1 if page else max(place.uidnext, int(chosen.get(b"UIDNEXT", 0)))
        place = replace(place, uidnext=uidnext, known=with_numbers(place.known, page))
        if len(uids) > len(page):
            return signals, place, True
    if modseq and modseq == place.modseq:
        return signals, place, False  # the server's change counter says that nothing changed
    vanished, place, has_more = _vanished(client, name, place)
    if has_more:
        return signals + vanished, place, True
    if modseq and place.modseq:
        signals += _changed_flags(client, name, place, reported=page)
    return signals + vanished, replace(place, modseq=modseq), False


def _search(client: "IMAPClient", first: int) -> list[int]:
    return [int(uid) for uid in client.search(["UID", f"{first}:*"])]


def _new_messages(
    client: "IMAPClient", name: str, place: Place, uids: list[int]
) -> Iterator[Signal]:
    fetched = client.fetch(uids, FIELDS) if uids else {}
    for uid in sorted(fetched):
        message = fetched[uid]
        occurred_at = message.get(b"INTERNALDATE") or datetime(1970, 1, 1, tzinfo=UTC)
        payload = {
            "mailbox": name,
            "uid": uid,
            "size": message.get(b"RFC822.SIZE"),
            "flags": _flags(message),
            **_envelope(message.get(b"ENVELOPE")),
        }
        yield Signal("message", _aware(occurred_at), payload, _key(name, place, uid))


def _changed_flags(
    client: "IMAPClient", name: str, place: Place, *, reported: list[int]
) -> Iterator[Signal]:
    changed = client.search(["MODSEQ", str(place.modseq + 1)])
    uids = sorted(uid for uid in changed if uid < place.uidnext and uid not in reported)
    fetched = client.fetch(uids, ["FLAGS", "MODSEQ"]) if uids else {}
    for uid in sorted(fetched):
        modseq = fetched[uid][b"MODSEQ"][0]
        payload = {"mailbox": name, "uid": uid, "flags": _flags(fetched[uid])}
        key = f"{_key(name, place, uid)}@{modseq}"
        yield Signal("message_flags", host_time(), payload, dedupe_key=key)


def _vanished(client: "IMAPClient", name: str, place: Place) -> tuple[list[Signal], Place, bool]:
    """Return a page of removed messages, the place after it, and whether there are more."""
    if place.known is None:
        return [], place, False
    present = sorted(uid for uid in _search(client, 1) if uid < place.uidnext)
    missing = missing_from(place.known, present)
    gone = list(islice(missing, VANISHED_A_PAGE))
    signals = [
        Signal(
            "message_vanished",
            host_time(),  # the server does not say when
            {"mailbox": name, "uid": uid},
            dedupe_key=f"{_key(name, place, uid)}/vanished",
        )
        for uid in gone
    ]
    if next(missing, None) is None:
        return signals, replace(place, known=with_numbers("", present)), False
    return signals, replace(place, known=known_after(place.known, gone[-1], present)), True


def _reset(name: str, uidvalidity: int) -> Signal:
    payload = {"mailbox": name, "uidvalidity": uidvalidity}
    return Signal("mailbox_reset", host_time(), payload, dedupe_key=f"{name}/{uidvalidity}/reset")


def _key(name: str, place: Place, uid: int) -> str:
    return f"{name}/{place.uidvalidity}/{uid}"


def _flags(message: Mapping[bytes, Any]) -> list[str]:
    return sorted(flag.decode("ascii", "replace") for flag in message.get(b"FLAGS", ()))


def _envelope(envelope: Any) -> dict[str, Any]:
    def text(value: bytes | None) -> str | None:
        if value is None:
            return None
        plain = value.decode("utf-8", "replace").replace("\0", "")
        if len(plain) > LONGEST_ENCODED:
            return plain  # the library's pattern is quadratic
        try:
            return str(make_header(decode_header(plain)))
        except (LookupError, ValueError):
            return plain

    def people(addresses: Iterable[Any] | None) -> list[str]:
        return [f"{text(a.mailbox) or ''}@{text(a.host) or ''}" for a in addresses or ()]

    if envelope is None:
        return {}
    return {
        "message_id": text(envelope.message_id),
        "in_reply_to": text(envelope.in_reply_to),
        "subject": text(envelope.subject),
        "date": envelope.date and _aware(envelope.date).isoformat(),
        "from": people(envelope.from_),
        "to": people(envelope.to),
        "cc": people(envelope.cc),
    }


def _aware(instant: datetime) -> datetime:
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
