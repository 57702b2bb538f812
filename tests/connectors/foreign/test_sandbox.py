"""What a tap can and cannot reach from its sandbox; a real program tries it."""

import asyncio
import json
import os
import signal
import socket
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from connectors.foreign.test_singer import processes_of
from support import hostile_tap
from support.fakes import eventually
from support.httpserver import Reply, Seen, http_server
from syncline import Connection, Permanent, Transient
from syncline.children.limits import ChildLimits
from syncline.children.process import private_folder
from syncline.connectors.foreign.environments import InstalledProgram
from syncline.connectors.foreign.singer import SingerTap
from syncline.http import HttpEnvironment

pytestmark = pytest.mark.usefixtures("sandbox")

SECRETS = {
    "SYNCLINE_SECRET_KEYS": "canary-keys",
    "SYNCLINE_DATABASE_URL": "postgresql://canary-url",
    "PGPASSWORD": "canary-password",
    "AWS_SECRET_ACCESS_KEY": "canary-cloud",
    "HTTPS_PROXY": "http://canary-proxy",
    "PYTHONPATH": "canary-path",
}


@pytest.fixture
def program(tmp_path: Path) -> InstalledProgram:
    return install_hostile(tmp_path / "environment")


@pytest.fixture
def hostile(program: InstalledProgram) -> SingerTap:
    return SingerTap(program)


def install_hostile(folder: Path) -> InstalledProgram:
    folder.mkdir()
    executable = folder / "tap-hostile"
    executable.write_text(f"#!{sys.executable}\n{Path(hostile_tap.__file__).read_text()}")
    for path in (folder, executable):
        path.chmod(0o755)
    return InstalledProgram(
        name="tap-hostile",
        requirement="tap-hostile",
        package="tap-hostile",
        version="1.0",
        executable=str(executable),
        environment=str(folder),
        about={"capabilities": ["state"], "settings": {}},
    )


def connection(*probes: list[Any], **settings: Any) -> Connection:
    config = {"settings": {"probes": list(probes), **settings}}
    return Connection(
        uuid4(), "acme", "tap-hostile", "a", status="active", config=config, metadata={}
    )


async def found_by(tap: SingerTap, *probes: list[Any], **settings: Any) -> list[Any]:
    """Return what each probe found."""
    pages = [page async for page in tap.sync(connection(*probes, **settings), None)]
    signals = [signal for page in pages for signal in page.signals]
    return [signal.payload["found"] for signal in signals]


async def test_loopback_and_metadata_services_cannot_be_reached(hostile: SingerTap) -> None:
    async with http_server(lambda seen: Reply(body=b"secret")) as server:
        direct, metadata, name, proxied = await found_by(
            hostile,
            ["connect", "127.0.0.1", server.port],
            ["connect", "169.254.169.254", 80],
            ["connect", "example.com", 443],
            ["fetch", server.url],
        )

    assert direct.startswith("ConnectionRefusedError")
    assert "unreachable" in metadata
    assert name.startswith("gaierror")
    sentence = "127.0.0.1 resolves to 127.0.0.1, which is not public; add the provider to"
    assert proxied.startswith(f"403 {sentence}")
    assert server.seen == []


async def test_a_run_that_failed_after_a_refusal_is_permanent(hostile: SingerTap) -> None:
    with pytest.raises(
        Permanent, match=r"^10\.0\.0\.1 resolves to 10\.0\.0\.1, which is not public"
    ):
        await found_by(hostile, ["fetch", "http://10.0.0.1/"], exit=1)


async def test_the_proxy_reaches_what_the_provider_may_reach(hostile: SingerTap) -> None:
    hostile.http_environment = HttpEnvironment(allow_private=True)

    def answer(seen: Seen) -> Reply:
        return Reply(body=f"{seen.method} {seen.target}".encode())

    async with http_server(answer) as server:
        assert await found_by(hostile, ["fetch", f"{server.url}/a?b=c"]) == ["GET /a?b=c"]


async def test_a_public_looking_name_that_resolves_to_loopback_is_refused(
    hostile: SingerTap,
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.215.14", "127.0.0.1"]

    hostile.http_environment = HttpEnvironment(resolve=resolve)

    [found] = await found_by(hostile, ["fetch", "http://shop.example.com/"])

    assert found.startswith("403 shop.example.com resolves to 127.0.0.1, which is not public")


async def test_files_cannot_be_written_outside_its_folder(
    hostile: SingerTap, program: InstalledProgram, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    refused = [str(outside / "x"), program.executable, "/etc/x", "/usr/x", "/x", "/dev/x"]
    allowed = ["own", "/tmp/own", "/dev/shm/own"]

    found = await found_by(hostile, *(["write", path] for path in (*refused, *allowed)))

    assert [one.partition(":")[0] for one in found[: len(refused)]] == (
        ["FileNotFoundError"] + ["OSError"] * (len(refused) - 1)
    )
    assert found[len(refused) :] == ["written"] * len(allowed)
    assert os.listdir(outside) == []


async def test_what_is_not_its_own_cannot_be_read(
    hostile: SingerTap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This covers the home of Syncline, the operator's home, and another run's input."""
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)
    (home / ".netrc").write_text("machine example.com login me password canary")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SYNCLINE_HOME", str(home))

    with private_folder() as another:
        hidden = [str(home / ".netrc"), str(home), str(another), "/etc/shadow", "/run", "/srv"]
        *unread, above, own = await found_by(
            hostile, *(["read", path] for path in hidden), ["read", str(tmp_path)], ["read", "."]
        )

    assert {one.partition(":")[0] for one in unread} == {"FileNotFoundError"}
    assert above == ["environment"]
    assert own == []


async def test_a_home_folder_inside_a_visible_one_is_hidden(
    hostile: SingerTap, program: InstalledProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home may be below /usr; what the tap needs from it stays visible."""
    monkeypatch.setenv("SYNCLINE_HOME", "/usr/share")

    [share, own] = await found_by(hostile, ["read", "/usr/share"], ["read", program.environment])

    assert share == []
    assert own == ["tap-hostile"]


async def test_sockets_of_this_host_cannot_be_reached(hostile: SingerTap, tmp_path: Path) -> None:
    """Neither by path, like that of the embedded Postgres, nor by abstract name."""
    path, abstract = str(tmp_path / ".s.PGSQL.5432"), f"@{uuid4()}"
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as nameless:
        named.bind(path)
        os.chmod(path, 0o777)
        nameless.bind(abstract.replace("@", "\0"))
        for one in (named, nameless):
            one.listen()

        found = await found_by(hostile, ["connect_unix", path], ["connect_unix", abstract])

    assert [one.partition(":")[0] for one in found] == [
        "FileNotFoundError",
        "ConnectionRefusedError",
    ]


async def test_its_environment_has_none_of_our_secrets(
    hostile: SingerTap, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)

    [found] = await found_by(hostile, ["environment"])

    assert "canary" not in json.dumps(found)
    proxy = "http://127.0.0.1:3128"
    assert {found[name] for name in ("HTTP_PROXY", "https_proxy", "ALL_PROXY")} == {proxy}
    assert found["NO_PROXY"] == found["no_proxy"] == ""
    assert found["HOME"] == found["TMPDIR"] == "/private"


async def test_it_inherits_no_descriptor(hostile: SingerTap, tmp_path: Path) -> None:
    with (tmp_path / "canary").open("w") as canary:
        os.set_inheritable(canary.fileno(), True)

        [found] = await found_by(hostile, ["descriptors"])

    kinds = sorted(one.partition(":")[0] for one in found if not one.startswith("/proc/"))
    assert kinds == ["/dev/null", "pipe", "pipe"]


async def test_it_sees_no_process_but_its_own_and_has_no_rights(hostile: SingerTap) -> None:
    processes, status, killed, limits, score = await found_by(
        hostile,
        ["processes"],
        ["status"],
        ["kill", os.getpid()],
        ["read", "/proc/self/limits"],
        ["read", "/proc/self/oom_score_adj"],
    )

    assert len(processes) == 2  # the first of the namespace, and itself
    assert killed.startswith("ProcessLookupError")
    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert status["NoNewPrivs"] == "1"
    assert set(status["Uid"].split()) == {"65533"}
    [tasks] = [line for line in limits.splitlines() if line.startswith("Max processes")]
    assert tasks.split()[2:4] == ["1024", "1024"]
    assert score == "1000\n"


@pytest.mark.parametrize(
    ("probe", "limits", "told"),
    [
        ("hog", ChildLimits(memory_bytes=256 * 2**20), "it needed more than 268435456 bytes of"),
        ("spin", ChildLimits(cpu_seconds=1), "it used more than 1 s of processor time"),
        ("fill", ChildLimits(file_bytes=2**20), "it wrote a file of more than 1048576 bytes"),
    ],
    ids=["memory", "processor", "files"],
)
async def test_what_uses_too_much_is_stopped_with_a_clear_error(
    hostile: SingerTap, probe: str, limits: ChildLimits, told: str
) -> None:
    hostile.child_limits = limits

    with pytest.raises(Transient, match=told):
        await found_by(hostile, [probe])


async def test_a_process_that_leaves_its_session_ends_with_the_run(
    hostile: SingerTap, program: InstalledProgram
) -> None:
    pages = hostile.sync(connection(["hide"], ["hang"]), None)
    reading = asyncio.ensure_future(anext(pages))
    await eventually(lambda: len(processes_of(program)) >= 4)  # including the hidden one

    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)

    await eventually(lambda: processes_of(program) == [])


async def test_a_line_that_grows_when_parsed_is_refused(hostile: SingerTap) -> None:
    line = '{"type": "RECORD", "stream": "x", "record": {"x": […[]]}}'

    with pytest.raises(Transient, match="a line of the program has more than 100000 values"):
        await found_by(hostile, ["blow_up", line])


KILLED_WORKER = """
import asyncio, json, sys
from uuid import UUID
from syncline import Connection
from syncline.connectors.foreign.environments import InstalledProgram
from syncline.connectors.foreign.singer import SingerTap

tap, config = map(json.loads, sys.argv[1:])
one = Connection(UUID(int=1), "a", "tap-hostile", "a", status="active", config=config, metadata={})

async def sync():
    async for page in SingerTap(InstalledProgram(**tap)).sync(one, None):
        pass

asyncio.run(sync())
"""


async def test_a_worker_that_is_killed_takes_tap_and_proxy_with_it(
    program: InstalledProgram,
) -> None:
    config = connection(["hide"], ["hang"]).config
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED_WORKER, json.dumps(asdict(program)), json.dumps(config)
    )
    try:
        await eventually(lambda: len(processes_of(program)) >= 4)
    finally:
        worker.kill()
        await worker.wait()

    assert worker.returncode == -signal.SIGKILL
    await eventually(lambda: processes_of(program) == [])


def test_it_runs_on_the_fast_event_loop_too(hostile: SingerTap) -> None:
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        [found] = runner.run(found_by(hostile, ["fetch", "http://127.0.0.1/"]))

    assert found.startswith("403 127.0.0.1 resolves to 127.0.0.1")


async def test_tenants_may_use_it_only_in_a_sandbox(hostile: SingerTap) -> None:
    assert hostile.local
    assert hostile.why_not_for_tenants() is None

    hostile.sandboxed = False
    reason = hostile.why_not_for_tenants()
    assert reason == "tap-hostile runs without a sandbox, because foreign.unsandboxed includes it"

    hostile.sandboxed = True
    hostile.probe = lambda: "unshare: Operation not permitted"
    reason = hostile.why_not_for_tenants()
    assert reason == "this host cannot sandbox tap-hostile: unshare: Operation not permitted"
    with pytest.raises(
        Transient, match=r"\(unshare: .*add tap-hostile to foreign\.unsandboxed to run it"
    ):
        await found_by(hostile, ["environment"])
