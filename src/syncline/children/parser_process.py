"""The program of a parser's process: parser_process.py DESCRIPTOR MEMORY_BYTES PATH…

It reads documents from a socket, calls a function with each, and writes the result back as JSON.
It ends when the other side closes the socket. If a document takes too long, an alarm that no
library can block ends the process, so it never outlives its parent for long.
"""

import importlib
import json
import resource
import signal
import socket
import struct
import sys
from typing import Any

HEADER = struct.Struct("!IQ")  # lengths of the request's JSON and of the document
ANSWER = struct.Struct("!?Q")  # whether it worked, and the length of the JSON


def main(descriptor: int, memory_bytes: int) -> None:
    for kind, limit in ((resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_CORE, 0)):
        _, highest = resource.getrlimit(kind)
        wanted = limit if highest == resource.RLIM_INFINITY else min(limit, highest)
        resource.setrlimit(kind, (wanted, wanted))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with socket.socket(fileno=descriptor) as channel, channel.makefile("rb") as requests:
        while head := requests.read(HEADER.size):
            size, document_size = HEADER.unpack(head)
            request = json.loads(requests.read(size))
            answer(channel, request, requests.read(document_size))


def answer(channel: socket.socket, request: dict[str, Any], document: bytes) -> None:
    signal.setitimer(signal.ITIMER_REAL, request["seconds"])
    try:
        module, _, name = request["function"].partition(":")
        function = getattr(importlib.import_module(module), name)
        worked, result = True, function(document, **request["arguments"])
    except MemoryError:
        worked, result = False, {"kind": "MemoryError", "message": ""}
    except Exception as error:
        worked, result = False, {"kind": type(error).__name__, "message": str(error)[:10_000]}
    text = json.dumps(result).encode()
    channel.sendall(ANSWER.pack(worked, len(text)) + text)
    signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    sys.path[:] = sys.argv[3:]
    main(int(sys.argv[1]), int(sys.argv[2]))
