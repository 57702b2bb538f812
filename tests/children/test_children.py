"""Child processes: their environment, their limits, and how they end."""

import ast
import asyncio
import fcntl
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline.app import Engine
from syncline.children.limits import ChildLimits
from syncline.children.process import ProgramNotFound, private_folder, run, start
from syncline.errors import Transient
from syncline.sdk.registry import announced_connectors
from syncline.settings import Settings

LOOPS = ["asyncio", "uvloop"]
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="Linux has these limits")


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


async def report(code: str, **options: Any) -> Any:
    """Return what a child prints as JSON."""
    finished = await run(python(f"import json, os, sys\n{code}"), **options)
    assert finished.code == 0, finished.error_output
    return json.loads(finished.output)


async def test_the_environment_is_an_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = {
        "SYNCLINE_SECRET_KEYS": "k",
        "PGPASSWORD": "p",
        "AWS_SECRET_ACCESS_KEY": "a",
        "https_proxy": "http://proxy",
        "SSH_AUTH_SOCK": "/agent",
        "PYTHONPATH": "/here",
        "GIT_DIR": "/there",
    }
    allowed = {"LANG": "C.UTF-8", "LC_TIME": "C", "TZ": "UTC", "SSL_CERT_FILE": "/ca.pem"}
    for name, value in (hidden | allowed).items():
        monkeypatch.setenv(name, value)

    found = await report("print(json.dumps(dict(os.environ)))", environment={"ADDED": "yes"})

    own = {"HOME", "TMPDIR", "PATH", "ADDED"}
    names = own | {n for n in os.environ if n in {*allowed, "SSL_CERT_DIR"} or n[:3] == "LC_"}
    assert set(found) == names
    assert {name: found[name] for name in allowed} == allowed


async def test_a_child_has_a_private_folder_that_is_removed_at_its_end() -> None:
    code = (
        "open('left', 'w').close()\n"
        "home = os.environ['HOME']\n"
        "same = home == os.environ['TMPDIR'] == os.getcwd()\n"
        "print(json.dumps([home, same, os.stat(home).st_mode & 0o777, os.listdir(home)]))"
    )
    first = await report(code)
    second = await report(code)

    assert first[1:] == second[1:] == [True, 0o700, ["left"]]
    assert first[0] != second[0]
    assert not os.access(first[0], os.F_OK)


def test_a_folder_that_a_killed_process_left_is_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, used = tmp_path / "syncline-child-left", tmp_path / "syncline-child-used"
    for folder in (left, used):
        folder.mkdir()
    descriptor = os.open(used, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    with private_folder() as own:
        assert {path.name for path in tmp_path.iterdir()} == {used.name, own.name}

    os.close(descriptor)


def test_a_folder_in_use_is_locked() -> None:
    with private_folder() as own:
        descriptor = os.open(own, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


async def test_limits_are_set() -> None:
    code = (
        "import resource as r\n"
        "names = ('RLIMIT_AS', 'RLIMIT_CPU', 'RLIMIT_FSIZE', 'RLIMIT_CORE')\n"
        "print(json.dumps([r.getrlimit(getattr(r, name))[0] for name in names]))"
    )

    assert await report(code) == [2**30, 300, 4 * 2**30, 0]
    limits = ChildLimits(memory_bytes=2**29, cpu_seconds=7, file_bytes=2**20)
    assert await report(code, limits=limits) == [2**29, 7, 2**20, 0]


@LINUX
async def test_memory_is_bounded() -> None:
    finished = await run(python("bytearray(2**30)"))

    assert finished.code == 1
    assert b"MemoryError" in finished.error_output


@LINUX
async def test_processor_time_is_bounded() -> None:
    finished = await run(python("while True: pass"), limits=ChildLimits(cpu_seconds=1))

    assert finished.code == -signal.SIGXCPU
    assert finished.error_output == b"it used more than 1 s of processor time"


@LINUX
async def test_the_size_of_files_is_bounded() -> None:
    limits = ChildLimits(file_bytes=2**20)
    finished = await run(["/bin/sh", "-c", "exec cat /dev/zero > file"], limits=limits)

    assert finished.code == -signal.SIGXFSZ
    assert finished.error_output == b"it wrote a file of more than 1048576 bytes"


@LINUX
def test_a_lower_limit_of_our_own_is_kept() -> None:
    code = (
        "import asyncio, resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "from syncline.children.process import run\n"
        "finished = asyncio.run(run(['/bin/sh', '-c', 'ulimit -f; ulimit -H -f']))\n"
        "print(finished.code, finished.output.split())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout == "0 [b'1', b'1']\n", done.stderr  # in blocks of 512 bytes


@LINUX
async def test_only_named_descriptors_are_inherited(tmp_path: Path) -> None:
    code = (
        "found = []\n"
        "for number in os.listdir('/proc/self/fd'):\n"
        "    if int(number) > 2 and os.path.exists(f'/proc/self/fd/{number}'):\n"
        "        found.append(os.readlink(f'/proc/self/fd/{number}'))\n"
        "print(json.dumps(found))"
    )
    with (tmp_path / "ours").open("w") as ours, (tmp_path / "lent").open("w") as lent:
        os.set_inheritable(ours.fileno(), True)
        found = await report(code, pass_fds=[lent.fileno()])

    assert found == [lent.name]


async def test_signals_have_their_default_actions() -> None:
    finished = await run(["/bin/sh", "-c", "yes | head -n 1; kill -s PIPE $$; echo ignored"])

    assert (finished.code, finished.output) == (-signal.SIGPIPE, b"y\n")


async def test_what_a_child_started_ends_with_it(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    # It does not hold the child's output, whose end we await too.
    script = f"exec 3>{alive}; sleep 60 >/dev/null 2>&1 & echo started >&3; exit 0"
    async with start(["/bin/sh", "-c", script]) as child:
        witness = await asyncio.to_thread(alive.open)
        assert await asyncio.to_thread(witness.readline) == "started\n"
        await child.process.wait()

    with witness:  # the pipe ends only when the last process that holds it is gone
        assert await asyncio.to_thread(witness.read) == ""


@pytest.mark.process
@LINUX
def test_a_child_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    child = f"import os, time\nout = open({str(alive)!r}, 'w', 1)\nprint('on', file=out)\n"
    code = (
        "import asyncio, sys\n"
        "from syncline.children.process import run\n"
        f"asyncio.run(run([sys.executable, '-c', {child + 'time.sleep(60)'!r}]))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        with alive.open() as witness:
            assert witness.readline() == "on\n"
            parent.kill()
            parent.wait(10)
            began = time.monotonic()
            assert witness.read() == ""
            assert time.monotonic() - began < 10
    finally:
        parent.kill()
        parent.wait(10)


async def test_output_beyond_the_bound_ends_the_child() -> None:
    with pytest.raises(Transient, match="more than 1000 bytes"):
        await run(["yes"], max_output=1000)


async def test_error_output_is_kept_up_to_a_bound() -> None:
    finished = await run(["/bin/sh", "-c", "head -c 5000000 /dev/zero >&2"])

    assert (finished.code, len(finished.error_output)) == (0, 2**16)


async def test_a_missing_program_is_named() -> None:
    with pytest.raises(ProgramNotFound, match="no-such-program"):
        await run(["no-such-program"])


@pytest.mark.parametrize("name", LOOPS)
def test_programs_that_end_at_once_work_on_every_event_loop(name: str) -> None:
    """Writing to a program that had ended raised "the handler is closed" on uvloop."""

    async def work() -> list[tuple[int, bytes]]:
        found = []
        for number in range(8):
            done = await run(["/bin/echo", str(number)], stdin=b"nobody reads this" * number)
            found.append((done.code, done.output))
        echoed = await run(["/bin/cat"], stdin=b"x" * 2**20)
        return [*found, (echoed.code, echoed.output[2**20 - 1 :])]

    expected = [(0, b"%d\n" % number) for number in range(8)]
    assert run_on(name, work()) == [*expected, (0, b"x")]


@pytest.mark.parametrize("name", LOOPS)
def test_cancelling_ends_the_child_on_every_event_loop(name: str, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)

    async def work() -> str:
        script = f"exec 3>{alive}; echo started >&3; exec sleep 60"
        running = asyncio.create_task(run(["/bin/sh", "-c", script]))
        with await asyncio.to_thread(alive.open) as witness:
            await asyncio.to_thread(witness.readline)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            return await asyncio.to_thread(witness.read)

    assert run_on(name, work()) == ""


def run_on(name: str, work: Coroutine[Any, Any, Any]) -> Any:
    factory = None
    if name == "uvloop":
        if importlib.util.find_spec("uvloop") is None:
            work.close()
            pytest.skip("uvloop is not installed")
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


def test_our_own_limits_are_untouched() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    asyncio.run(run(["/bin/true"]))

    assert resource.getrlimit(resource.RLIMIT_AS) == before


RUN_BY_OPERATORS = {"foreign/environments.py"}  # installs taps for an operator


def test_connectors_have_one_way_to_start_a_child() -> None:
    folder = Path(syncline.__file__).parent / "connectors"
    starts = {"create_subprocess_exec", "create_subprocess_shell", "Popen", "run", "check_output"}
    starters = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in starts
        and isinstance(node.value, ast.Name)
        and node.value.id in {"asyncio", "subprocess"}
    }

    assert starters == RUN_BY_OPERATORS


def test_the_engine_bounds_the_time_of_children_as_it_bounds_runs() -> None:
    git = next(c for c in announced_connectors() if c.provider == "git")
    settings = Settings(executor={"max_run_seconds": 41.5})

    engine = Engine(settings, connectors=[git])

    assert engine.providers["git"].child_limits == ChildLimits(cpu_seconds=42)


async def test_an_unknown_option_of_a_child_is_refused() -> None:
    with pytest.raises(TypeError, match="no option 'limit'"):
        await run(["true"], limit=ChildLimits())  # type: ignore[call-arg]
