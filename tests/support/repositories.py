"""Real git repositories, and a server for them that answers with git's own program."""

import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

from syncline.connectors.git import GitCommits
from syncline.model import Connection, Signal, SyncResult

IDENTITY = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Grace",
    "GIT_COMMITTER_EMAIL": "grace@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    # Otherwise every commit starts a process that looks for something to tidy up.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "maintenance.auto",
    "GIT_CONFIG_VALUE_0": "false",
}
NOON = int(datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp())


class Repo:
    """A repository whose every commit has a date the test chose."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.clock = NOON
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main", *options)

    def git(self, *arguments: str, at: int = NOON, stdin: bytes = b"") -> str:
        dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), f"{at} +0000")
        done = subprocess.run(
            ["git", "-C", self.folder, *arguments],
            env=os.environ | IDENTITY | dates,
            input=stdin,
            capture_output=True,
            check=True,
            timeout=60,
        )
        return done.stdout.decode().strip()

    def commit(self, subject: str, *, at: int | None = None) -> str:
        self.clock += 60
        when = self.clock if at is None else at
        self.git("commit", "--quiet", "--allow-empty", "-m", subject, at=when)
        return self.git("rev-parse", "HEAD")

    def changes(self, number: int) -> None:
        """Fill an empty repository with commits: "change 0", "change 1" and so on."""
        lines = []
        for subject in (f"change {each}" for each in range(number)):
            self.clock += 60
            lines.append(
                "commit refs/heads/main\n"
                f"committer Grace <grace@example.org> {self.clock} +0000\n"
                f"data {len(subject)}\n{subject}\n"
            )
        self.git("fast-import", "--quiet", stdin="".join(lines).encode())

    def raw_commit(self, headers: bytes, message: bytes, parent: str = "") -> str:
        tree = self.git("mktree").encode()
        parents = f"parent {parent}\n".encode() if parent else b""
        content = b"tree %s\n%s%s\n%s" % (tree, parents, headers, message)
        sha = self.git("hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=content)
        self.git("update-ref", "refs/heads/main", sha)
        return sha

    def forget(self, *refs: str) -> None:
        """Drop these refs and every commit that only they led to."""
        for ref in refs:
            self.git("update-ref", "-d", ref)
        self.git("reflog", "expire", "--expire=now", "--all")
        self.git("gc", "--quiet", "--prune=now")


def connect(url: object, **config: object) -> Connection:
    settings = {"url": str(url) if isinstance(url, Path) else url, **config}
    return Connection(uuid4(), "acme", "git", "repo", "active", config=settings, metadata={})


async def first_page(
    connector: GitCommits, connection: Connection, cursor: Any = None
) -> SyncResult:
    """Return the first page of a run that is then interrupted."""
    async with aclosing(connector.sync(connection, cursor)) as run:
        return await anext(run)


async def pages(
    connector: GitCommits, connection: Connection, cursor: Any = None
) -> AsyncIterator[SyncResult]:
    """Return all pages to the end, run after run, checking the rules for every page."""
    keys: set[str | None] = set()
    has_more = True
    while has_more:
        async for page in connector.sync(connection, cursor):
            assert json.loads(json.dumps(page.next_cursor)) == page.next_cursor
            for item in page.signals:
                assert item.occurred_at.tzinfo is not None
                assert item.dedupe_key not in keys
                assert len(item.dedupe_key or "") <= 255
                json.dumps(item.payload).encode()
                keys.add(item.dedupe_key)
            yield page
            has_more = page.has_more
            assert not has_more or page.next_cursor != cursor
            cursor = page.next_cursor


async def follow(
    connector: GitCommits, connection: Connection, cursor: Any = None
) -> tuple[list[Signal], Any]:
    """Return every signal up to the last page, and the cursor left behind."""
    signals: list[Signal] = []
    async for page in pages(connector, connection, cursor):
        signals += page.signals
        cursor = page.next_cursor or cursor
    return signals, cursor


def subjects(signals: list[Signal]) -> list[str]:
    return [item.payload["subject"] for item in signals if item.kind == "commit"]


def kinds(signals: list[Signal]) -> list[str]:
    return [item.kind for item in signals]


class GitServer(BaseHTTPRequestHandler):
    """Git over HTTP, answered by git's own program; paths such as /status/500 only fail."""

    root: Path
    wanted: str | None = None  # what `Authorization` must be
    released: Event | None = None  # until then, slices after the first stay unanswered
    stuck: Event  # set when one of these was asked for
    slices: int = 0

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if self.wanted and self.headers["Authorization"] != self.wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="repositories"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if path.startswith("/status/"):
            self.send_error(int(path.split("/")[2]))
            return
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if b"deepen" in body and self.released:
            type(self).slices += 1
            if self.slices > 1:
                self.stuck.set()
                self.released.wait(60)
        done = subprocess.run(
            ["git", "http-backend"], env=environment, input=body, capture_output=True, timeout=60
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.send_content(content)

    def send_content(self, content: bytes) -> None:
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serve(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on a free port of this machine; yield `host:port`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=partial(server.serve_forever, poll_interval=0.005))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
