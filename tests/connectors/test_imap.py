"""Mailboxes: new, flagged and vanished messages, new UIDs, and refused logins."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from support.mailserver import PASSWORD, USER, MailDouble, mail_server
from syncline import Permanent, RateLimited, Transient, Unauthorized
from syncline.connectors.imap.connector import Imap
from syncline.testing.conformance import ConnectorConformance
from syncline.testing.trial import TrialPage, prepare_trial, take_pages

CREDENTIALS = {"username": USER, "password": PASSWORD}


@pytest.fixture
def mail() -> MailDouble:
    double = MailDouble()
    for number in range(1, 6):
        double.deliver(f"letter {number}")
    return double


@pytest.fixture
def port(mail: MailDouble) -> Iterator[int]:
    with mail_server(mail) as port:
        yield port


def configuration(port: int, **more: Any) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": port, "security": "none", "page_size": 2} | more


async def run(config: dict[str, Any], cursor: Any = None, **credentials: str) -> list[TrialPage]:
    chosen = credentials or CREDENTIALS
    return await take_pages(prepare_trial(Imap()), config, credentials=chosen, cursor=cursor)


def told(pages: list[TrialPage]) -> list[tuple[str, Any]]:
    return [(s.kind, s.payload.get("uid")) for page in pages for s in page.signals]


class TestConformance(ConnectorConformance):
    connector = Imap
    credentials = CREDENTIALS

    @pytest.fixture(autouse=True)
    def served(self, port: int) -> None:
        self.config = configuration(port)


async def test_a_full_sync_brings_every_message_once(port: int) -> None:
    pages = await run(configuration(port))

    assert told(pages) == [("message", uid) for uid in range(1, 6)]
    assert len(pages) == 3
    first = pages[0].signals[0]
    assert first.occurred_at.isoformat() == "2024-05-01T12:00:00+02:00"
    assert first.payload == {
        "mailbox": "INBOX",
        "uid": 1,
        "size": 42,
        "flags": [],
        "message_id": "<1@example.org>",
        "in_reply_to": None,
        "subject": "letter 1",
        "date": "2024-05-01T12:00:00+02:00",
        "from": ["ada@example.org"],
        "to": ["ada@example.org"],
        "cc": [],
    }


async def test_new_flagged_and_vanished_messages_become_signals(
    port: int, mail: MailDouble
) -> None:
    [*_, last] = await run(configuration(port))
    mail.flag(2, "\\Seen")
    mail.expunge(4)
    mail.deliver("new")

    pages = await run(configuration(port), last.next_cursor)

    assert told(pages) == [("message", 6), ("message_flags", 2), ("message_vanished", 4)]
    assert pages[0].signals[1].payload["flags"] == ["\\Seen"]


async def test_an_unchanged_mailbox_is_only_selected(port: int, mail: MailDouble) -> None:
    [*_, last] = await run(configuration(port))
    mail.commands.clear()

    [nothing] = await run(configuration(port), last.next_cursor)

    assert nothing.signals == ()
    assert not [command for command in mail.commands if command.startswith("UID")]


async def test_new_uids_are_reported_and_everything_is_read_again(
    port: int, mail: MailDouble
) -> None:
    [*_, last] = await run(configuration(port))
    mail.renumber()

    pages = await run(configuration(port), last.next_cursor)

    assert told(pages) == [("mailbox_reset", None)] + [("message", uid) for uid in range(1, 6)]


async def test_a_connection_lost_during_an_answer_is_transient(port: int, mail: MailDouble) -> None:
    mail.breaks_off = True

    with pytest.raises(Transient):
        await run(configuration(port))


async def test_refused_logins_become_the_right_errors(port: int, mail: MailDouble) -> None:
    with pytest.raises(Unauthorized) as refused:
        await run(configuration(port), username=USER, password="wr0ng-s3cret")
    assert "wr0ng-s3cret" not in str(refused.value)
    with pytest.raises(Unauthorized, match="must have username and password"):
        await run(configuration(port), token="x")
    mail.login_answer = "NO [LIMIT] Too many connections"
    with pytest.raises(RateLimited):
        await run(configuration(port))


async def test_a_refused_connection_is_transient(port: int) -> None:
    with pytest.raises(Transient):
        await run(configuration(1))


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"mailboxes": ["Nowhere"]}, r"config\.mailboxes: .*doesn't exist"),
        ({"security": "some"}, r"config\.security"),
        ({"host": ""}, r"config\.host"),
    ],
)
async def test_a_wrong_configuration_names_its_field(
    port: int, more: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(Permanent, match=complaint):
        await run(configuration(port, **more))


async def test_private_addresses_and_open_passwords_are_refused_unless_allowed(port: int) -> None:
    with pytest.raises(Permanent, match="unencrypted"):
        await take_pages(Imap(), configuration(port), credentials=CREDENTIALS)
    with pytest.raises(Permanent, match=r"127\.0\.0\.1, which is not public"):
        await take_pages(Imap(), configuration(port, security="tls"), credentials=CREDENTIALS)


async def test_the_host_is_looked_up_once(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client connects to the address that was checked, whatever the name resolves to later."""
    answers = iter([[(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]])
    usual = socket.getaddrinfo

    def resolve(host: str, *arguments: Any, **options: Any) -> Any:
        return next(answers) if host == "mail.test" else usual(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)

    [page, *_] = await run(configuration(port, host="mail.test", page_size=10))

    assert len(list(page.signals)) == 5


async def test_a_server_without_tls_is_transient(port: int) -> None:
    with pytest.raises(Transient):
        await run(configuration(port, security="tls"))


def cursor_of(known: Any, **more: Any) -> dict[str, Any]:
    place = {"uidvalidity": 7, "uidnext": 2**32, "modseq": 1, "known": known} | more
    return {"mailboxes": {"INBOX": place}}


@pytest.mark.parametrize(
    ("cursor", "complaint"),
    [
        (cursor_of("1:4294967295"), "has 4294967295 messages; it must be at most 500000"),
        (cursor_of(",".join(f"{n}000:{n}999" for n in range(1, 1001))), "has 1000000 messages"),
        (cursor_of("1:10000000", uidnext=5), "ascending ranges below uidnext"),
        (cursor_of("1:9,2:9,3:9"), "ascending ranges"),
        (cursor_of("9:1"), "ascending ranges"),
        (cursor_of("0:1"), "ascending ranges"),
        (cursor_of("1:" + "9" * 5000), "ranges such as 1:5,7"),
        (cursor_of("1:x"), "ranges such as 1:5,7"),
        (cursor_of("\u0661"), "ranges such as 1:5,7"),
        (cursor_of("1," * 10_001), "at most 20000"),
        (cursor_of(["1:5"]), "at most 20000"),
        (cursor_of("", uidnext="6"), "uidnext of 'INBOX' must be from 0"),
        (cursor_of("", modseq=2**64), "modseq of 'INBOX' must be from 0"),
        (cursor_of("", uidvalidity=True), "uidvalidity of 'INBOX' must be from 0"),
        ({"mailboxes": []}, "an object of places"),
    ],
)
async def test_a_cursor_cannot_name_more_than_it_can_fetch(cursor: Any, complaint: str) -> None:
    """It is refused before the server is asked: nothing listens at the address."""
    with pytest.raises(Permanent, match=complaint):
        await run(configuration(1), cursor)


async def test_many_vanished_messages_come_in_pages(port: int, mail: MailDouble) -> None:
    mail.uidnext, mail.modseq = 25_006, 9
    mail.messages = {25_003: mail.messages[3], 11: mail.messages[1]}

    pages = await run(configuration(port), cursor_of("1:25005", uidnext=25_006))

    gone = [uid for kind, uid in told(pages) if kind == "message_vanished"]
    assert gone == [uid for uid in range(1, 25_006) if uid not in (11, 25_003)]
    assert [len(list(page.signals)) for page in pages[:2]] == [10_000, 10_000]
    assert pages[-1].next_cursor["mailboxes"]["INBOX"]["known"] == "11,25003"
