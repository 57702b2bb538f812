"""The memory of `syncline …`, in which keys and credentials are, can be read by root alone."""

import subprocess
import sys

import pytest

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has the flag")
STATE = """
import ctypes, resource
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE))
"""
COMMAND = """
import sys
from syncline.cli import main
sys.argv = ["syncline", "--help"]
try:
    main()
except SystemExit:
    pass
"""
LIBRARY = """
import asyncio, syncline
engine = syncline.Engine(syncline.Settings(database_url="postgresql:///nowhere"))
"""
# A process of an ordinary user, and another of the same user that looks into it.
LOOK = """
import ctypes, os, resource
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # changing the user has cleared it
{protect}
looker = os.fork()
if looker:
    os.waitpid(looker, 0)
else:
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
    for name in ("environ", "mem", "maps"):
        try:
            open(f"/proc/{{os.getppid()}}/{{name}}", "rb").close()
            print(name, "opened", flush=True)
        except PermissionError:
            print(name, "refused", flush=True)
"""
PROTECT = "from syncline.memory_dumps import forbid_memory_dumps; forbid_memory_dumps()"


def run(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@linux
def test_a_command_is_not_dumpable() -> None:
    assert run(COMMAND + STATE)[-1] == "0 (0, 0)"


@linux
def test_a_library_changes_nothing_about_its_process() -> None:
    assert run(LIBRARY + STATE) == run(STATE)


@linux
@pytest.mark.parametrize(("protect", "seen"), [(PROTECT, "refused"), ("", "opened")])
def test_another_process_of_the_same_user_cannot_look_into_it(protect: str, seen: str) -> None:
    early = PROTECT.partition(";")[0]  # imported while it may read the package
    found = run(early + LOOK.format(protect=protect.partition(";")[2].strip()))

    assert found == [f"environ {seen}", f"mem {seen}", f"maps {seen}"]


@linux
def test_a_program_that_it_starts_is_dumpable_again() -> None:
    """A child that makes a user namespace for itself has to own its files in /proc."""
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {STATE!r}])"

    assert run(f"{PROTECT}\n{child}") == ["1 (0, 0)"]
