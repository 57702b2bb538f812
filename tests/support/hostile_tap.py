"""A tap that tries to get out: it runs the probes that its config names, and tells of each."""

import contextlib
import ctypes
import errno
import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


def attempt(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.reason}"
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise
        return f"{type(error).__name__}: {error}"


def connect(host: str, port: int) -> str:
    with socket.create_connection((host, port), timeout=3):
        return "connected"


def connect_unix(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path.replace("@", "\0", 1) if path.startswith("@") else path)
        return "connected"


def fetch(url: str) -> str:
    """Ask for a URL as most programs do, by the proxy that the environment names."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def write(path: str) -> str:
    Path(path).write_text("was here")
    return "written"


def read(path: str) -> Any:
    return sorted(os.listdir(path)) if os.path.isdir(path) else Path(path).read_text()


def environment() -> dict[str, str]:
    return dict(os.environ)


def descriptors() -> list[str]:
    listed = os.listdir("/proc/self/fd")
    return [target for one in listed if (target := read_link(f"/proc/self/fd/{one}"))]


def read_link(path: str) -> str:
    with contextlib.suppress(OSError):  # that of the listing itself
        return os.readlink(path)
    return ""


def processes() -> list[str]:
    return [
        Path(f"/proc/{pid}/cmdline").read_bytes().decode()
        for pid in os.listdir("/proc")
        if pid.isdigit()
    ]


def status() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def become(namespaces: int) -> int:
    """Ask for namespaces; return the error number, or 0."""
    libc = ctypes.CDLL(None, use_errno=True)
    return ctypes.get_errno() if libc.unshare(namespaces) else 0


def kill(pid: int) -> str:
    os.kill(pid, signal.SIGTERM)
    return "sent"


def hog() -> None:
    held = []
    while True:
        held.append(bytearray(16 * 2**20))


def spin() -> None:
    while True:
        pass


def fill() -> None:
    with open("large", "wb") as file:
        while True:
            file.write(bytes(2**20))


def hide() -> str:
    """Leave a process behind that belongs to no session of the tap's, and that only a kill ends."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.execv(sys.executable, [sys.executable, "-c", HIDDEN, sys.argv[0]])
        os._exit(0)
    os.wait()
    return "hidden"


HIDDEN = "import time; time.sleep(600)"


def hang() -> None:
    time.sleep(600)


def blow_up(line: str) -> None:
    """Write a line that becomes far larger when it is parsed."""
    head, _, tail = line.partition("…")
    print(head + "[]," * 1_000_000 + tail, flush=True)


def main() -> None:
    if "--about" in sys.argv:
        about = {"capabilities": ["state"], "settings": {}, "environment": environment()}
        print(json.dumps(about))
        return
    config = json.loads(Path(sys.argv[sys.argv.index("--config") + 1]).read_text())
    for number, (probe, *arguments) in enumerate(config["probes"]):
        found = attempt(globals()[probe], *arguments)
        record = {"id": number, "found": found}
        print(json.dumps({"type": "RECORD", "stream": "found", "record": record}), flush=True)
    print(json.dumps({"type": "STATE", "value": 1}), flush=True)
    sys.exit(config.get("exit", 0))


if __name__ == "__main__":
    main()
