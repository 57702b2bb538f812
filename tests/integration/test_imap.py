"""`imap` against Dovecot: UIDs, flags, vanished messages, a restart, and killed workers."""

import getpass
import imaplib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.environments import system_program
from integration.scene import Scene
from integration.servers import Server, Toll, free_port, running
from support.mailserver import PASSWORD, USER
from syncline import Unauthorized
from syncline.connectors.imap.connector import Imap
from syncline.testing.trial import TrialPage, prepare_trial, take_pages

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

CREDENTIALS = {"username": USER, "password": PASSWORD}
CONFIGURATION = """
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/dovecot.log
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
auth_failure_delay = 0 secs
mail_location = maildir:{folder}/mail
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
passdb {{
  driver = passwd-file
  args = scheme=PLAIN username_format=%u {folder}/users
}}
userdb {{
  driver = static
  args = uid={owner} gid={group} home={folder}/home
}}
"""
# Without root, Dovecot cannot switch users.
WITHOUT_ROOT = """
default_internal_user = {owner}
default_internal_group = {group}
default_login_user = {owner}
first_valid_uid = 1
service anvil {{
  chroot =
}}
"""


class Dovecot:
    """A running Dovecot with one mailbox."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def session(self) -> imaplib.IMAP4:
        session = imaplib.IMAP4("127.0.0.1", self.server.port, timeout=30)
        session.login(USER, PASSWORD)
        session.select("INBOX")
        return session

    def deliver(self, *subjects: str) -> None:
        with self.session() as session:
            for subject in subjects:
                message = f"Subject: {subject}\r\nFrom: ada@example.org\r\n\r\nHello\r\n"
                session.append("INBOX", None, None, message.encode())

    def flag(self, uid: int, flag: str) -> None:
        with self.session() as session:
            session.uid("STORE", str(uid), "+FLAGS", f"({flag})")

    def expunge(self, uid: int) -> None:
        self.flag(uid, "\\Deleted")
        with self.session() as session:
            session.expunge()

    def set_password(self, password: str) -> None:
        (self.server.folder / "users").write_text(f"{USER}:{{PLAIN}}{password}\n")


@pytest.fixture
def dovecot() -> Iterator[Dovecot]:
    program = system_program("dovecot")
    # Dovecot's users must be able to enter it, and the path of a socket must be short.
    folder = Path(tempfile.mkdtemp(prefix="dovecot-"))
    folder.chmod(0o777)
    is_root = os.geteuid() == 0
    names = {"owner": "nobody", "group": "nogroup"} if is_root else {}
    names = names or {"owner": getpass.getuser(), "group": str(os.getegid())}
    port = free_port()
    text = CONFIGURATION + ("" if is_root else WITHOUT_ROOT)
    (folder / "dovecot.conf").write_text(text.format(folder=folder, port=port, **names))
    server = Server([program, "-F", "-c", folder / "dovecot.conf"], folder, port)
    dovecot = Dovecot(server)
    dovecot.set_password(PASSWORD)
    try:
        with running(server):
            yield dovecot
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def configuration(port: int) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": port, "security": "none", "page_size": 4}


async def run(dovecot: Dovecot, cursor: Any = None) -> list[TrialPage]:
    config = configuration(dovecot.server.port)
    return await take_pages(prepare_trial(Imap()), config, credentials=CREDENTIALS, cursor=cursor)


def told(pages: list[TrialPage]) -> list[tuple[str, Any]]:
    return [(s.kind, s.payload.get("uid")) for page in pages for s in page.signals]


async def test_full_then_new_flagged_and_vanished_then_nothing(dovecot: Dovecot) -> None:
    dovecot.deliver(*(f"letter {number}" for number in range(1, 11)))
    whole = await run(dovecot)
    dovecot.flag(3, "\\Seen")
    dovecot.expunge(7)
    dovecot.deliver("new")

    changes = await run(dovecot, whole[-1].next_cursor)
    [nothing] = await run(dovecot, changes[-1].next_cursor)

    assert told(whole) == [("message", uid) for uid in range(1, 11)]
    assert len(whole) == 3
    assert told(changes) == [("message", 11), ("message_flags", 3), ("message_vanished", 7)]
    assert changes[0].signals[0].payload["subject"] == "new"
    assert nothing.signals == ()


async def test_a_changed_password_is_unauthorized(dovecot: Dovecot) -> None:
    dovecot.deliver("one")
    dovecot.set_password("another")
    dovecot.server.stop()
    dovecot.server.start()

    with pytest.raises(Unauthorized):
        await run(dovecot)


async def test_workers_killed_in_the_middle_lose_and_double_nothing(
    dovecot: Dovecot, scene: Scene
) -> None:
    dovecot.deliver(*(f"letter {number}" for number in range(40)))
    async with Toll(dovecot.server.port, seconds=0.05) as toll:
        await scene.connect("imap", configuration(toll.port), CREDENTIALS)
        await scene.sync_killed(40)
        dovecot.expunge(6)
        await scene.sync()

    signals = [(kind, payload["uid"]) for kind, payload in await scene.signals()]
    assert signals == [("message", uid) for uid in range(1, 41)] + [("message_vanished", 6)]


async def test_a_sync_continues_after_its_server_restarts(dovecot: Dovecot, scene: Scene) -> None:
    dovecot.deliver(*(f"letter {number}" for number in range(40)))

    async def restart() -> None:
        dovecot.server.stop()
        dovecot.server.start()

    async with Toll(dovecot.server.port, seconds=0.05) as toll:
        await scene.connect("imap", configuration(toll.port), CREDENTIALS)
        await scene.sync(disturb=restart)

    signals = [(kind, payload["uid"]) for kind, payload in await scene.signals()]
    assert signals == [("message", uid) for uid in range(1, 41)]
