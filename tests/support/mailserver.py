"""A small IMAP server with one mailbox: numbers, versions of flags, and expunged messages."""

import re
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

USER, PASSWORD = "ada", "pa55word-of-ada"
CAPABILITIES = "IMAP4rev1 ENABLE CONDSTORE"


class MailDouble:
    """Messages by their number; each change gets the next MODSEQ."""

    def __init__(self) -> None:
        self.messages: dict[int, dict[str, Any]] = {}
        self.uidvalidity, self.uidnext, self.modseq = 7, 1, 1
        self.login_answer = ""  # instead of the usual one
        self.breaks_off = False  # in the middle of the next fetch
        self.commands: list[str] = []

    def deliver(self, subject: str) -> int:
        uid, self.uidnext = self.uidnext, self.uidnext + 1
        self.messages[uid] = {"subject": subject, "flags": ""}
        self._change(uid)
        return uid

    def flag(self, uid: int, flags: str) -> None:
        self.messages[uid]["flags"] = flags
        self._change(uid)

    def expunge(self, uid: int) -> None:
        del self.messages[uid]
        self.modseq += 1

    def renumber(self) -> None:
        """Give every message a new number, as a restored server does."""
        subjects = [message["subject"] for message in self.messages.values()]
        self.messages, self.uidvalidity, self.uidnext = {}, self.uidvalidity + 1, 1
        for subject in subjects:
            self.deliver(subject)

    def _change(self, uid: int) -> None:
        self.modseq += 1
        self.messages[uid]["modseq"] = self.modseq

    def answer(self, command: str) -> tuple[list[str], str]:
        """Return the untagged lines of an answer, and its end."""
        self.commands.append(command)
        name = command.partition(" ")[0].upper()
        if name == "CAPABILITY":
            return [f"CAPABILITY {CAPABILITIES}"], "OK done"
        if name == "ENABLE":
            return ["ENABLED CONDSTORE"], "OK done"
        if name == "LOGIN":
            is_right = command.replace('"', "").split()[1:] == [USER, PASSWORD]
            wrong = "NO [AUTHENTICATIONFAILED] Authentication failed."
            return [], self.login_answer or ("OK logged in" if is_right else wrong)
        if name in ("EXAMINE", "SELECT"):
            return self._select(command)
        if command.upper().startswith("UID SEARCH"):
            if modseq := re.findall(r"MODSEQ (\d+)", command):
                changed = [u for u, m in self.messages.items() if m["modseq"] >= int(modseq[0])]
                return [f"SEARCH {' '.join(map(str, changed))}".strip()], "OK done"
            first = int(re.findall(r"(\d+):\*", command)[0])
            found = [uid for uid in sorted(self.messages) if uid >= first]
            found = found or sorted(self.messages)[-1:]  # the last one is always within n:*
            return [f"SEARCH {' '.join(map(str, found))}".strip()], "OK done"
        if command.upper().startswith("UID FETCH"):
            return self._fetch(command), "OK done"
        return (["BYE"], "OK bye") if name == "LOGOUT" else ([], "OK done")

    def _select(self, command: str) -> tuple[list[str], str]:
        if "INBOX" not in command.upper():
            return [], "NO [NONEXISTENT] Mailbox doesn't exist"
        told = {"UIDVALIDITY": self.uidvalidity, "UIDNEXT": self.uidnext}
        told["HIGHESTMODSEQ"] = self.modseq
        lines = [f"OK [{name} {value}] Ok" for name, value in told.items()]
        return [f"{len(self.messages)} EXISTS", *lines], "OK [READ-ONLY] done"

    def _fetch(self, command: str) -> list[str]:
        chosen = command.split()[2]
        wanted: set[int] = set()
        for part in chosen.split(","):
            first, _, last = part.partition(":")
            wanted |= set(range(int(first), int(last or first) + 1))
        lines = []
        for place, uid in enumerate(sorted(self.messages), 1):
            message = self.messages[uid]
            if uid in wanted:
                parts = f"UID {uid} FLAGS ({message['flags']}) MODSEQ ({message['modseq']})"
                if "ENVELOPE" in command:
                    parts += ' INTERNALDATE "01-May-2024 12:00:00 +0200" RFC822.SIZE 42'
                    parts += f" ENVELOPE {_envelope(uid, message['subject'])}"
                lines.append(f"{place} FETCH ({parts})")
        return lines


def _envelope(uid: int, subject: str) -> str:
    person = '(("Ada" NIL "ada" "example.org"))'
    date = '"Wed, 01 May 2024 12:00:00 +0200"'
    people = f"{person} {person} {person} {person} NIL NIL NIL"
    return f'({date} "{subject}" {people} "<{uid}@example.org>")'


class _Session(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    double: MailDouble

    def handle(self) -> None:
        self._say("* OK ready")
        for line in self.rfile:
            tag, _, command = line.decode(errors="replace").strip().partition(" ")
            untagged, end = self.double.answer(command)
            if self.double.breaks_off and "FETCH" in command:
                self.double.breaks_off = False
                self._say(f"* {untagged[0][:20]}")
                return
            self._say("\r\n".join([*(f"* {text}" for text in untagged), f"{tag} {end}"]))
            if command.upper().startswith("LOGOUT"):
                return

    def _say(self, text: str) -> None:
        with suppress(ConnectionError):  # the client may have left
            self.wfile.write(f"{text}\r\n".encode())


@contextmanager
def mail_server(double: MailDouble) -> Iterator[int]:
    """Yield the port of a server for that mailbox."""
    session = type("Session", (_Session,), {"double": double})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), session) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.005,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(10)
