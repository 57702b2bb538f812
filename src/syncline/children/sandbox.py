"""Start a third-party program in a sandbox: Linux namespaces, set up by `sandbox_launcher.py`.

Inside, the program has
- the system's programs and libraries, and the paths that the caller names, all read-only;
- copies of its input, a private folder as HOME, and its own `/tmp` and `/proc`;
- a loopback interface with one listening socket, which the caller serves, and no other network;
- no other processes, no capabilities, and a user that owns nothing.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Unpack

from syncline.children.process import Child, ChildOptions, start
from syncline.errors import Transient

LAUNCHER = Path(__file__).with_name("sandbox_launcher.py")
PORT = 3128
START_SECONDS = 30.0
PROBE_SECONDS = 10.0
PROBED_PROGRAM = "/bin/true"
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"),
    *("/etc/alternatives", "/etc/ca-certificates", "/etc/crypto-policies", "/etc/group"),
    *("/etc/hosts", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime"),
    *("/etc/mime.types", "/etc/nsswitch.conf", "/etc/passwd", "/etc/pki/ca-trust"),
    *("/etc/pki/tls/cert.pem", "/etc/pki/tls/certs", "/etc/protocols", "/etc/services"),
    *("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf"),
)
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # the operator's, passed on to every child
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@asynccontextmanager
async def start_sandboxed(
    command: Sequence[str | Path],
    *,
    inputs: Path,
    readable: Iterable[str] = (),
    hidden: Iterable[str] = (),
    **options: Unpack[ChildOptions],
) -> AsyncIterator[tuple[Child, socket.socket]]:
    """Yield a program in a sandbox, and the socket that listens on its loopback interface."""
    control, theirs = socket.socketpair()
    with control, theirs:
        variables = {**proxy_environment(), "USER": "syncline", "LOGNAME": "syncline"}
        own: ChildOptions = {
            **options,
            "environment": {**variables, **(options.get("environment") or {})},
            "pass_fds": [theirs.fileno()],
        }
        async with start(
            [*_launch(theirs, inputs, readable, hidden), *command],
            **own,
        ) as child:
            theirs.close()
            with await _receive_listener(control) as listener:
                yield child, listener


def proxy_environment() -> dict[str, str]:
    """Return the proxy variables for the socket, in upper and lower case."""
    address = f"http://127.0.0.1:{PORT}"
    found = dict.fromkeys(PROXY_VARIABLES, address) | {"NO_PROXY": ""}
    return found | {name.lower(): value for name, value in found.items()}


@cache  # it starts a process, and the answer never changes
def why_unavailable() -> str | None:
    """Return why this host cannot run sandboxes, or None if it can."""
    if sys.platform != "linux":
        return "sandboxes need Linux namespaces"
    control, theirs = socket.socketpair()
    with control, theirs, tempfile.TemporaryDirectory() as home:
        inputs = Path(home, "inputs")
        inputs.mkdir()
        control.settimeout(PROBE_SECONDS)
        try:
            done = subprocess.run(  # noqa: S603  (our own program)
                [*_launch(theirs, inputs), PROBED_PROGRAM],
                pass_fds=[theirs.fileno()],
                env={"HOME": home},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PROBE_SECONDS,
                check=False,
            )
            theirs.close()
            message = control.recv(4096)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if done.returncode == 0 and message == b"ready":
        return None
    return (message if message != b"ready" else done.stderr).decode(errors="replace").strip()


def needed_by(program: str | Path) -> list[str]:
    """Return the paths that a Python program needs: its script, environment and interpreter."""
    program = Path(os.path.abspath(program))
    environment = Path(os.path.realpath(program)).parent.parent
    found = [str(program)]
    interpreters = [_shebang(program)]
    if (environment / "pyvenv.cfg").is_file():
        found.append(str(environment))
        interpreters.append(environment / "bin" / "python")
    for interpreter in filter(None, interpreters):
        for step in _links(interpreter):
            prefix = step.parent.parent
            found += [str(step)] + ([str(prefix)] if _holds_python(prefix) else [])
    return found


def _launch(
    control: socket.socket,
    inputs: Path,
    readable: Iterable[str] = (),
    hidden: Iterable[str] = (),
) -> list[str]:
    """Return the launcher's command; the caller appends the program's own."""
    certificates = [os.environ[name] for name in CERTIFICATES if os.environ.get(name)]
    plan = {
        "control": control.fileno(),
        "port": PORT,
        "inputs": os.path.realpath(inputs),
        "system": SYSTEM,
        "hidden": [os.path.realpath(path) for path in hidden],
        "readable": [os.path.abspath(path) for path in (*certificates, *readable)],
    }
    return [sys.executable, "-I", "-S", str(LAUNCHER), json.dumps(plan)]


async def _receive_listener(control: socket.socket) -> socket.socket:
    """Wait for the launcher's listening socket, or raise why there is none."""
    loop = asyncio.get_running_loop()
    is_there = asyncio.Event()
    control.setblocking(False)
    loop.add_reader(control, is_there.set)
    try:
        async with asyncio.timeout(START_SECONDS):
            await is_there.wait()
    except TimeoutError:
        raise Transient("the sandbox was not ready in time") from None
    finally:
        loop.remove_reader(control)
    message, descriptors, *_ = socket.recv_fds(control, 4096, 1, socket.MSG_CMSG_CLOEXEC)
    if not descriptors:
        reason = message.decode(errors="replace") or "the launcher ended"
        raise Transient(f"the sandbox could not be set up: {reason}")
    return socket.socket(fileno=descriptors[0])


def _shebang(program: Path) -> Path | None:
    """Return the interpreter in a script's first line."""
    try:
        with program.open("rb") as file:
            line = file.readline(4096)
    except OSError:
        return None
    words = line[2:].split() if line.startswith(b"#!") else []
    return Path(os.fsdecode(words[0])) if words and words[0].startswith(b"/") else None


def _links(path: Path) -> Iterator[Path]:
    """Yield a path, and each path that it links to."""
    for _ in range(40):  # the kernel's limit
        yield path
        if not path.is_symlink():
            return
        path = Path(os.path.normpath(path.parent / path.readlink()))


def _holds_python(folder: Path) -> bool:
    """Return whether a folder is a Python installation or a virtual environment."""
    if folder == Path("/"):
        return False  # it would show the whole file system
    is_environment = (folder / "pyvenv.cfg").is_file()
    return is_environment or any(folder.glob("lib*/python3*/os.py"))
