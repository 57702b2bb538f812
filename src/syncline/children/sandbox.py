"""Start a program of others in a sandbox, made of Linux namespaces by `sandbox_launcher.py`.

Inside there are
- the system's programs and libraries, and what the caller names, all read-only;
- copies of its input, a private folder as HOME, a `/tmp` and a `/proc` of its own, and no more;
- no network but a loopback interface, on which one socket listens: the caller's, who decides what
  becomes of connections to it;
- no other process, no capability, and a user that owns nothing.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from syncline.children.limits import ChildLimits
from syncline.children.process import LONGEST_LINE, Child, start
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
    environment: Mapping[str, str] | None = None,
    limits: ChildLimits | None = None,
    longest_line: int = LONGEST_LINE,
) -> AsyncIterator[tuple[Child, socket.socket]]:
    """Lend a program in a sandbox, and the socket that listens on its loopback interface."""
    control, theirs = socket.socketpair()
    with control, theirs:
        variables = {**proxy_environment(), "USER": "syncline", "LOGNAME": "syncline"}
        async with start(
            [*_launch(theirs, inputs, readable, hidden), *command],
            environment={**variables, **(environment or {})},
            limits=limits,
            pass_fds=[theirs.fileno()],
            longest_line=longest_line,
        ) as child:
            theirs.close()
            with await _receive_listener(control) as listener:
                yield child, listener


def proxy_environment() -> dict[str, str]:
    """Return the variables that lead programs to the socket, in each spelling that they know."""
    address = f"http://127.0.0.1:{PORT}"
    found = dict.fromkeys(PROXY_VARIABLES, address) | {"NO_PROXY": ""}
    return found | {name.lower(): value for name, value in found.items()}


@cache  # it costs a process, and the answer stays
def why_unavailable() -> str | None:
    """Return why no sandbox can be had here, or None where one can."""
    if sys.platform != "linux":
        return "it is made of Linux namespaces"
    control, theirs = socket.socketpair()
    with control, theirs, tempfile.TemporaryDirectory() as home:
        inputs = Path(home, "inputs")
        inputs.mkdir()
        control.settimeout(PROBE_SECONDS)
        try:
            done = subprocess.run(  # noqa: S603  (it is our own)
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
    """Return the paths that a Python program needs: itself, its environment, its interpreter."""
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
    """Return the command that the program's own is appended to."""
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
    """Wait for the launcher to say that all is set up, or why it is not."""
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
        reason = message.decode(errors="replace") or "its launcher ended"
        raise Transient(f"the sandbox could not be set up: {reason}")
    return socket.socket(fileno=descriptors[0])


def _shebang(program: Path) -> Path | None:
    """Return the interpreter that a script names in its first line."""
    try:
        with program.open("rb") as file:
            line = file.readline(4096)
    except OSError:
        return None
    words = line[2:].split() if line.startswith(b"#!") else []
    return Path(os.fsdecode(words[0])) if words and words[0].startswith(b"/") else None


def _links(path: Path) -> Iterator[Path]:
    """Yield a path, and each that it is a link to."""
    for _ in range(40):  # as far as the kernel goes
        yield path
        if not path.is_symlink():
            return
        path = Path(os.path.normpath(path.parent / path.readlink()))


def _holds_python(folder: Path) -> bool:
    """Return whether a folder is an installation or an environment of Python."""
    if folder == Path("/"):
        return False  # /lib may be a link to the system's own, which is shown anyway
    is_environment = (folder / "pyvenv.cfg").is_file()
    return is_environment or any(folder.glob("lib*/python3*/os.py"))
