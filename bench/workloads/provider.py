"""A provider on loopback: TLS, HTTP/1.1 with keep-alive, answers that were built beforehand.

It is as cheap as possible, because it shares the processors with the client that is measured.

python -m bench.workloads.provider CERTIFICATE KEY
"""

import asyncio
import json
import os
import ssl
import sys
from typing import Any, cast

from syncline import eventloop

RECORDS, PAGES = 10, 5
ONE, PAGED, SAME = "/one", "/paged", "/same"  # what it serves: one page, five pages, a 304
ETAG = '"7"'
END = b"\r\n\r\n"


def main() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[1:])
    eventloop.run(serve(context))


async def serve(context: ssl.SSLContext) -> None:
    """Serve on a free port, which is printed, until the input ends."""
    answers = build_answers()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Conversation(answers), "127.0.0.1", 0, ssl=context, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    os._exit(0)  # clients may still be connected


class Conversation(asyncio.Protocol):
    """Answers the requests of one socket by their targets."""

    def __init__(self, answers: dict[bytes, bytes]) -> None:
        self._answers = answers
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        *requests, self._rest = (self._rest + data).split(END)
        for request in requests:
            self._transport.write(self._answers[request.split(b" ", 2)[1]])


def build_answers() -> dict[bytes, bytes]:
    """Return the whole answer for each target."""
    pages = {f"{PAGED}?page={number}": page_of(number) for number in range(2, PAGES + 1)}
    pages |= {ONE: page_of(PAGES), PAGED: page_of(1)}
    answers = {target.encode(): answer("200 OK", page) for target, page in pages.items()}
    return answers | {SAME.encode(): answer("304 Not Modified", None)}


def page_of(number: int) -> dict[str, Any]:
    first = (number - 1) * RECORDS
    following = {} if number == PAGES else {"next": number + 1}
    return {"data": [record(first + place) for place in range(RECORDS)]} | following


def record(number: int) -> dict[str, Any]:
    """Return a record of about 300 bytes as JSON."""
    return {
        "id": number,
        "updated_at": f"2026-01-01T00:00:{number:02}Z",
        "state": "open",
        "title": "The export button does nothing",
        "author": {"id": 4711, "login": "ada", "url": "https://tickets.example/users/4711"},
        "labels": ["bug", "export"],
        "text": "When I press it, the page reloads and no file arrives. I tried it twice.",
    }


def answer(status: str, body: Any) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = [f"HTTP/1.1 {status}", f"ETag: {ETAG}", "Cache-Control: no-cache"]
    if body is not None:
        head += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join(head).encode() + END + content


if __name__ == "__main__":
    main()
