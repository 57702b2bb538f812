"""Start a program inside namespaces of its own: sandbox_launcher.py PLAN PROGRAM [ARG…].

PLAN is JSON from `sandbox.py`. This script runs in an interpreter without packages, as three
processes, each the parent of the next:

- the outer process, which Syncline started, waits and returns the exit code;
- the first process of the new PID namespace builds the file system, sends Syncline a listening
  socket of the new network namespace, drops all privileges, and waits. When it ends, the kernel
  kills everything left in the namespace;
- the program.
"""

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
from contextlib import suppress

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
NAMESPACES = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 1 << 12, 1 << 14, 1 << 18
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
AT_FDCWD, AT_RECURSIVE, MNT_DETACH = -100, 0x8000, 2
SYS_MOUNT_SETATTR = 442  # the same on every processor; since Linux 5.12
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
CAPABILITY_VERSION = 0x20080522
SIOCSIFFLAGS, IFF_UP = 0x8914, 1

UID = 65533  # distributions leave 65520 to 65533 unassigned
HOME = "/private"
DEVICES = ("null", "zero", "full", "random", "urandom")
IN_MEMORY = {"tmp": "128m", "dev/shm": "64m"}
MAX_TASKS = 1024  # processes and threads; under root, of all sandboxes of this host together
FAILED_TO_START = 125
FAILED_TO_EXECUTE = 127

libc = ctypes.CDLL(None, use_errno=True)


class Plan:
    """What the sandbox contains."""

    control: int  # descriptor of the socket to Syncline
    port: int  # of the program's proxy
    inputs: str  # a folder of files to copy
    system: list[str]  # paths to show
    hidden: list[str]  # folders inside them to hide
    readable: list[str]  # paths to show even inside hidden folders

    def __init__(self, text: str) -> None:
        self.__dict__.update(json.loads(text))


def main(plan: Plan, program: list[str]) -> int:
    control = socket.socket(fileno=plan.control)
    control.set_inheritable(False)
    try:
        is_root = enter_namespaces()
        inner = os.fork()
        if inner:
            control.close()
            return wait_outside(inner)
        build_root(plan, is_root)
        listener = open_loopback(plan.port)
        give_up_rights(is_root)
        # This fails, and ends the process, if the worker has died meanwhile.
        socket.send_fds(control, [b"ready"], [listener.fileno()])
        started = os.fork()
    except OSError as error:
        control.send(str(error.strerror).encode())
        return FAILED_TO_START
    control.close()
    listener.close()
    if not started:
        execute(program)
    return wait_inside(started)


def enter_namespaces() -> bool:
    """Leave the host's namespaces; return whether root's privileges were used."""
    uid, gid = os.geteuid(), os.getegid()
    with suppress(OSError):
        write("/proc/self/oom_score_adj", "1000")  # the first to be killed if memory runs out
    if uid == 0:
        try:
            call("unshare", NAMESPACES)
            return True
        except PermissionError:
            pass  # root in a container may still do what any user may
    call("unshare", CLONE_NEWUSER | NAMESPACES)
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{UID} {uid} 1")
    write("/proc/self/gid_map", f"{UID} {gid} 1")
    with suppress(OSError):  # read-only in many containers
        write("/proc/sys/user/max_user_namespaces", "0")  # only inside this namespace
    return False


def build_root(plan: Plan, is_root: bool) -> None:
    """Build the file system that the program sees, and enter it."""
    os.umask(0o022)
    call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
    outside = os.environ["HOME"]
    files, root = os.path.join(outside, "files"), os.path.join(outside, "root")
    os.mkdir(files, 0o700)
    os.mkdir(root)
    mount_memory(root, "size=4m,mode=755")
    for folder, size in IN_MEMORY.items():
        os.makedirs(f"{root}/{folder}")
        mount_memory(f"{root}/{folder}", f"size={size},mode=1777")
    show_all(plan.system, root)
    for path in plan.hidden:
        if os.path.isdir(root + path):
            mount_memory(root + path, "size=64k,mode=755")
    show_all(plan.readable, root)
    for device in DEVICES:
        bind(f"/dev/{device}", f"{root}/dev/{device}")
    if is_root:
        os.chown(files, UID, UID)
    bind(files, root + HOME)
    set_attributes(root + HOME, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0)
    copy(plan.inputs, root, is_root)
    os.mkdir(f"{root}/proc")
    with suppress(PermissionError):  # a container that hides parts of /proc; it stays empty
        mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    set_attributes(root, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0)
    os.chdir(root)
    call("pivot_root", b".", b".")
    call("umount2", b".", MNT_DETACH)
    os.chdir(HOME)


def show_all(paths: list[str], root: str) -> None:
    # Show real paths before links, so that a link into /usr does not hide the rest of it.
    for path in sorted(paths, key=lambda one: (os.path.realpath(one) != one, one)):
        show(path, root)


def show(path: str, root: str) -> None:
    """Show a path of the host, read-only, with the links to it."""
    here = ""
    parts = path.strip("/").split("/")
    for index, part in enumerate(parts):
        here = f"{here}/{part}"
        if os.path.islink(here):
            target = os.readlink(here)
            if not os.path.lexists(root + here):
                os.symlink(target, root + here)
            leads_to = os.path.join(os.path.dirname(here), target, *parts[index + 1 :])
            show(os.path.normpath(leads_to), root)
            return
        if not os.path.exists(here):
            return
        if index < len(parts) - 1 and not os.path.lexists(root + here):
            os.mkdir(root + here)
    if not os.path.lexists(root + here):
        bind(here, root + here)
        attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV
        set_attributes(root + here, attributes, AT_RECURSIVE)


def copy(folder: str, root: str, is_root: bool) -> None:
    """Copy the program's input to the same path inside, owned by the program's user."""
    os.makedirs(root + folder)
    os.chmod(root + folder, 0o700)
    paths = [folder]
    for name in os.listdir(folder):
        path = f"{folder}/{name}"
        descriptor = os.open(root + path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(path, "rb") as source, os.fdopen(descriptor, "wb") as target:
            target.write(source.read())
        paths.append(path)
    if is_root:
        for path in paths:
            os.chown(root + path, UID, UID)


def open_loopback(port: int) -> socket.socket:
    """Bring up the interface `lo` of the new network, and listen on it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", IFF_UP)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, request)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    return listener


def give_up_rights(is_root: bool) -> None:
    """Drop all capabilities and groups for good."""
    if is_root:
        os.setgroups([])
        os.setresgid(UID, UID, UID)
        os.setresuid(UID, UID, UID)
    # The limit is per user; in a user namespace it counts only the program's own tasks.
    resource.setrlimit(resource.RLIMIT_NPROC, (MAX_TASKS, MAX_TASKS))
    header = struct.pack("Ii", CAPABILITY_VERSION, 0)
    call("capset", header, bytes(24))
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)  # until the program replaces it
    # Last, because a change of user resets it.
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def execute(program: list[str]) -> None:
    """Become the program."""
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.umask(0o077)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program[0], program, {**os.environ, "HOME": HOME, "TMPDIR": HOME})  # noqa: S606
    except OSError as error:
        os.write(2, f"{program[0]} cannot be run: {error.strerror}\n".encode())
        os._exit(FAILED_TO_EXECUTE)


def wait_inside(program: int) -> int:
    """Wait for the program, and reap its orphans, as the first process must."""
    for stream in (0, 1):
        os.close(stream)  # so that the output ends with the program
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == program:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def wait_outside(inner: int) -> int:
    """Wait for the namespace, then end as the program did, by the same signal if there was one."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the program gets it too, and decides what to do
    for stream in (0, 1):
        os.close(stream)
    _, status = os.waitpid(inner, 0)
    code = os.waitstatus_to_exitcode(status)
    if code > 128:
        number = code - 128
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return code


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    call("mount", source.encode(), target.encode(), kind.encode(), flags, options.encode())


def mount_memory(target: str, options: str) -> None:
    mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, options)


def bind(source: str, target: str) -> None:
    """Show a file or folder of the host at a path inside."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    call("mount", source.encode(), target.encode(), None, MS_BIND | MS_REC, None)


def set_attributes(path: str, attributes: int, flags: int) -> None:
    settings = struct.pack("QQQQ", attributes, 0, 0, 0)
    number, size = ctypes.c_long(SYS_MOUNT_SETATTR), ctypes.c_size_t(len(settings))
    call("syscall", number, AT_FDCWD, path.encode(), flags, settings, size)


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def call(name: str, *arguments: object) -> None:
    """Call a function of the C library; raise `OSError` if it fails."""
    if getattr(libc, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main(Plan(sys.argv[1]), sys.argv[2:]))
