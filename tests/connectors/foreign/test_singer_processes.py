"""Workers that are killed while their taps run, and taps that are installed by command."""

import json
import os
import zipfile
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from connectors.foreign.conftest import SourceWriter
from connectors.foreign.test_sandbox import found_by
from connectors.foreign.test_singer import is_alive, orders
from support import fake_tap, hostile_tap
from support.processes import LEASE_SECONDS, Fleet, exit_code, until
from syncline.cli.app import app
from syncline.connectors.foreign.environments import InstalledProgram, InstalledPrograms
from syncline.connectors.foreign.singer import SingerTap

pytestmark = pytest.mark.process

TOTAL = 40


async def test_a_tap_whose_worker_is_killed_loses_and_doubles_nothing(
    fleet: Fleet, installed: InstalledProgram, tmp_path: Path, write_source: SourceWriter
) -> None:
    """It dies with its worker; the next worker starts it with the state of the last page."""
    home = put_on_shelf(installed, tmp_path / "home")
    notes = tmp_path / "notes"
    settings = {"source": str(write_source(orders(range(TOTAL)))), "notes": str(notes)}
    settings |= {"pause": 0.05, "state_every": 5}  # type: ignore[dict-item]
    config = {"settings": settings, "streams": ["orders"], "page_size": 5}
    job_id = await add_due_job(fleet, config)

    worker = fleet.start_worker(home=home, foreign__unsandboxed="tap-fake")
    await until(lambda: has_stored(fleet, 10), within=20)
    worker.kill()
    await exit_code(worker, within=5)
    pid = json.loads(notes.read_text().splitlines()[-1])["pid"]
    await until(lambda: not is_alive(pid), what="the tap ends with its worker")
    fleet.start_worker(home=home, foreign__unsandboxed="tap-fake")

    await until(lambda: has_succeeded(fleet, job_id), within=LEASE_SECONDS + 20)
    rows = await fleet.sql(
        "SELECT (payload -> 'id')::int FROM syncline.signals WHERE kind = 'orders' ORDER BY id"
    )
    assert [row[0] for row in rows] == list(range(TOTAL))
    starts = [json.loads(line)["argv"] for line in notes.read_text().splitlines()]
    assert sum("--state" in argv for argv in starts) == 1


def put_on_shelf(installed: InstalledProgram, home: Path) -> Path:
    folder = home / "singer" / installed.name
    folder.mkdir(parents=True)
    (folder / "installed.json").write_text(json.dumps(asdict(installed)))
    return home


async def add_due_job(fleet: Fleet, config: Any) -> Any:
    [row] = await fleet.sql(
        """
        WITH connection AS (
            INSERT INTO syncline.connections (tenant_id, provider_slug, external_id, config)
            VALUES ('acme', 'tap-fake', 'a', $1) RETURNING *
        )
        INSERT INTO syncline.sync_jobs (tenant_id, provider_slug, connection_id)
        SELECT tenant_id, provider_slug, id FROM connection RETURNING id
        """,
        json.dumps(config),
    )
    return row["id"]


async def has_stored(fleet: Fleet, wanted: int) -> bool:
    return await fleet.count("signals", "kind = 'orders'") >= wanted


async def has_succeeded(fleet: Fleet, job_id: Any) -> bool:
    [row] = await fleet.sql("SELECT status FROM syncline.sync_jobs WHERE id = $1", job_id)
    return bool(row["status"] == "succeeded")


def test_a_tap_is_installed_shown_upgraded_and_removed_by_command(tmp_path: Path) -> None:
    """It gets its own environment and runs from there."""
    home, source = tmp_path / "home", tmp_path / "source.jsonl"
    source.write_text("".join(json.dumps(one) + "\n" for one in orders(range(2))))
    wheel = build_wheel(tmp_path, "1.0")

    told = syncline(home, "add", str(wheel))
    assert "Required settings: source" in told
    assert "Restart running workers, so that they know it." in told
    [listed] = json.loads(syncline(home, "list", "--json"))
    assert (listed["provider"], listed["version"]) == ("tap-fake", "1.0")
    assert listed["executable"].startswith(str(home / "singer"))
    assert "source" in syncline(home, "show", "tap-fake")
    config = json.dumps({"settings": {"source": str(source)}, "streams": ["orders"]})
    found = json.loads(syncline(home, "streams", "tap-fake", "--config", config, "--json"))
    assert [(one["stream"], one["selected"]) for one in found] == [
        ("orders", True),
        ("people", False),
    ]
    (tmp_path / "config.json").write_text(config)
    from_file = syncline(
        home, "streams", "tap-fake", "--config", f"@{tmp_path / 'config.json'}", "--json"
    )
    assert json.loads(from_file) == found
    refused = syncline(home, "streams", "tap-fake", "--config", "{}", code=1)
    assert "config.settings.source is missing" in refused
    assert "tap-fake" in syncline(home, "providers")

    newer = build_wheel(tmp_path, "2.0")
    told = syncline(home, "upgrade", "tap-fake", "--package", str(newer))
    assert "2.0" in told
    assert "Restart running workers" in told
    assert Path(listed["executable"]).exists()  # running workers still use it
    assert "Removed" in syncline(home, "remove", "tap-fake")
    assert json.loads(syncline(home, "list", "--json")) == []
    assert "is not installed" in syncline(home, "remove", "tap-fake", code=1)


def syncline(home: Path, command: str, *arguments: str, code: int = 0) -> str:
    group = [] if command == "providers" else ["singer"]
    # It reads a file of this host, and so it runs without a sandbox.
    environment = {"SYNCLINE_HOME": str(home), "SYNCLINE_FOREIGN__UNSANDBOXED": "tap-fake"}
    done = CliRunner().invoke(app, [*group, command, *arguments], env=environment)
    assert done.exit_code == code, done.output
    return done.output if code else done.stdout


@pytest.mark.security
async def test_a_tap_is_installed_without_our_secrets_and_runs_in_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandbox: None
) -> None:
    """This also works for an operator whose umask hides new files from others."""
    for name in ("SYNCLINE_SECRET_KEYS", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "PIP_CANARY"):
        monkeypatch.setenv(name, "canary")
    wheel = build_wheel(tmp_path, "1.0", hostile_tap)
    before = os.umask(0o077)
    try:
        tap = InstalledPrograms("singer", tmp_path / "home").add(str(wheel))
    finally:
        os.umask(before)

    assert "canary" not in json.dumps(tap.about)
    assert (tmp_path / "home" / "singer").stat().st_mode & 0o777 == 0o700
    [found] = await found_by(SingerTap(tap), ["environment"])
    assert "canary" not in json.dumps(found)


def build_wheel(folder: Path, version: str, tap: ModuleType = fake_tap) -> Path:
    """Write a wheel by hand, so that nothing has to be fetched."""
    about = f"tap_fake-{version}.dist-info"
    files = {
        "tap_fake.py": Path(str(tap.__file__)).read_text(),
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: tap-fake\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{about}/entry_points.txt": "[console_scripts]\ntap-fake = tap_fake:main\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"])
    wheel = folder / f"tap_fake-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel
