"""Signals as they come, and signals as a file: each once, none left out."""

import asyncio
import csv
import importlib.util
import json
import os
import re
import resource
import select
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from support.commands import CommandLine, Process
from support.fakes import eventually
from syncline import Engine, Settings
from syncline.cli.commands.signals import BATCH_SIZE, follow
from syncline.cli.exports import Format, open_sink
from syncline.cli.interrupts import Interrupts
from syncline.model import SignalFilter

INSERT = (
    "INSERT INTO syncline.signals (tenant_id, provider_slug, connection_id, kind, payload,"
    " dedupe_key, received_at) SELECT $1, 'demo', gen_random_uuid(), 'seen',"
    " jsonb_build_object('n', n), 'key ' || n, now() - interval '1 h' + n * interval '1 ms'"
    " FROM generate_series($2::int, $3::int) n"
)
pyarrow_is_there = importlib.util.find_spec("pyarrow") is not None


def store(syncline: CommandLine, first: int, last: int, tenant: str = "acme") -> None:
    syncline.sql(INSERT, tenant, first, last)


def numbers(lines: list[str]) -> list[int]:
    return [json.loads(line)["payload"]["n"] for line in lines]


def test_export_writes_lines_of_json_the_oldest_first(syncline: CommandLine) -> None:
    count = BATCH_SIZE + 1
    store(syncline, 1, count)
    store(syncline, 1, 3, tenant="globex")

    result = syncline("signals", "export", "--tenant", "acme")

    assert numbers(result.stdout.splitlines()) == list(range(1, count + 1))
    assert result.stderr == f"Exported {count:,} signals.\n"
    first = json.loads(result.stdout.splitlines()[0])
    assert (first["tenant_id"], first["kind"], first["dedupe_key"]) == ("acme", "seen", "key 1")


def test_export_writes_csv(syncline: CommandLine, tmp_path: Path) -> None:
    store(syncline, 1, 3)
    path = tmp_path / "signals.csv"

    result = syncline("signals", "export", "--format", "csv", "--output", str(path))

    assert result.exit_code == 0, result.output
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [json.loads(row["payload"]) for row in rows] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert rows[0]["received_at"].endswith("Z")


FORMULAS = [
    "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "\u00a0=1", "  @x",
    '=HYPERLINK("http://example.org?x="&A1)', "\uff1d1+1", "- a list", "\t",
]  # fmt: skip
HARMLESS = ["", "a=1", "key 1", "'=1", "1-2", "ada@example.org", " x", "#=1", "{=1}"]


def test_no_cell_of_a_csv_is_a_formula(syncline: CommandLine, tmp_path: Path) -> None:
    syncline.sql(
        "INSERT INTO syncline.signals (tenant_id, provider_slug, connection_id, kind, payload,"
        " dedupe_key) SELECT 'acme', 'demo', gen_random_uuid(), text, to_jsonb(text), text"
        " FROM unnest($1::text[]) AS text",
        FORMULAS + HARMLESS,
    )
    path = tmp_path / "signals.csv"

    syncline("signals", "export", "--format", "csv", "--output", str(path))
    lines = syncline("signals", "export").stdout.splitlines()

    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    expected = {f"'{text}" for text in FORMULAS} | set(HARMLESS)
    for column in ("kind", "dedupe_key", "payload"):
        assert {row[column] for row in rows} == expected
    assert {json.loads(line)["kind"] for line in lines} == {*FORMULAS, *HARMLESS}


def test_numbers_of_a_csv_stay_numbers(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"

    with open_sink(Format.CSV, ["a", "b", "c", "d"], path) as sink:
        sink.write([{"a": -1, "b": -0.5, "c": None, "d": True}])

    assert path.read_text().splitlines()[1] == "-1,-0.5,,true"


def test_an_export_is_its_owners_alone(syncline: CommandLine, tmp_path: Path) -> None:
    store(syncline, 1, 3)
    older = tmp_path / "signals.csv"
    older.write_text("older")
    older.chmod(0o644)
    was_umask = os.umask(0)
    try:
        syncline("signals", "export", "--format", "csv", "--output", str(older))
        syncline("tenants", "export", "acme", "--output", str(tmp_path / "acme.ndjson"))
    finally:
        os.umask(was_umask)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"signals.csv": 0o600, "acme.ndjson": 0o600}


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_an_export_follows_no_link_and_replaces_no_device(
    syncline: CommandLine, tmp_path: Path, kind: str
) -> None:
    store(syncline, 1, 3)
    target, path = tmp_path / "another", tmp_path / "out"
    target.write_text("mine")
    path.symlink_to(target) if kind == "link" else os.mkfifo(path)

    result = syncline("signals", "export", "--output", str(path))

    assert (result.exit_code, "it is not a regular file" in result.stderr) == (1, True)
    assert target.read_text() == "mine"
    assert {one.name for one in tmp_path.iterdir()} == {"another", "out"}


@pytest.mark.skipif(not pyarrow_is_there, reason="pyarrow is not installed")
def test_export_writes_parquet(syncline: CommandLine, tmp_path: Path) -> None:
    import pyarrow.parquet

    store(syncline, 1, 3)
    path = tmp_path / "signals.parquet"

    result = syncline("signals", "export", "--format", "parquet", "--output", str(path))

    assert result.exit_code == 0, result.output
    table = pyarrow.parquet.read_table(path)
    assert [json.loads(text) for text in table["payload"].to_pylist()] == [
        {"n": 1},
        {"n": 2},
        {"n": 3},
    ]
    assert table["received_at"].to_pylist()[0].tzinfo is not None


@pytest.mark.skipif(pyarrow_is_there, reason="pyarrow is installed")
def test_parquet_without_pyarrow_says_what_is_missing(syncline: CommandLine) -> None:
    result = syncline("signals", "export", "--format", "parquet", "--output", "x.parquet")

    assert (result.exit_code, "pip install pyarrow" in result.stderr) == (1, True)


def test_export_takes_a_stretch_of_time(syncline: CommandLine) -> None:
    store(syncline, 1, 3)

    assert syncline("signals", "export", "--since", "2100-01-01").stdout == ""
    assert syncline("signals", "export", "--until", "2000-01-01T00:00Z").stdout == ""
    assert len(syncline("signals", "export", "--since", "2000-01-01").stdout.splitlines()) == 3
    refused = syncline("signals", "export", "--since", "yesterday")
    assert (refused.exit_code, "'yesterday' is not a time" in refused.stderr) == (2, True)


def test_file_gets_its_name_only_when_complete(syncline: CommandLine, tmp_path: Path) -> None:
    store(syncline, 1, 3)
    path = tmp_path / "signals.ndjson"

    with largest_file(100):
        result = syncline("signals", "export", "--output", str(path))

    assert (result.exit_code, "File too large" in result.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size, as on a disk that is full."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


@pytest.mark.process
def test_tail_shows_each_signal_once_however_transactions_overlap(syncline: CommandLine) -> None:
    store(syncline, 1, 2)
    process = syncline.start("signals", "tail", "--from-start", "--json")
    assert sorted(numbers(read(process, 2))) == [1, 2]

    asyncio.run(overlap(syncline.url))

    assert sorted(numbers(read(process, 4))) == [3, 4, 5, 6]
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=20)
    assert (rest, errors, process.returncode) == ("", "", 0)


async def overlap(url: str) -> None:
    """Store in a transaction that ends after one that began later."""
    early, late = await asyncpg.connect(url), await asyncpg.connect(url)
    slow = early.transaction()
    await slow.start()
    await early.execute(INSERT, "acme", 3, 4)
    await late.execute(INSERT, "acme", 5, 6)
    stored_at = await late.fetchval("SELECT clock_timestamp()")
    await eventually(lambda: has_looked(late, stored_at))
    await slow.commit()
    await early.close()
    await late.close()


async def has_looked(session: Any, since: datetime) -> bool:
    """Return whether the tail has asked for signals since then, and waits now."""
    looked = (
        "SELECT FROM pg_stat_activity WHERE application_name LIKE 'syncline%'"
        " AND state = 'idle' AND query_start > $1"
    )
    return bool(await session.fetch(looked, since))


@pytest.mark.process
def test_tail_begins_with_what_comes(syncline: CommandLine) -> None:
    store(syncline, 1, 2)
    process = syncline.start("signals", "tail", "--tenant", "acme")
    assert process.stdout is not None

    number = 2
    while not select.select([process.stdout], [], [], 0.05)[0]:
        number += 1
        store(syncline, number, number, tenant="globex")
        store(syncline, number, number)

    [line] = read(process, 1)
    shown = re.search(r'acme demo seen  \{"n": (\d+)\}', line)
    assert shown is not None, line
    assert int(shown[1]) > 2


def read(process: Process, count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


async def test_tail_says_that_the_server_changed(
    database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    session = await asyncpg.connect(database_url)
    await session.execute(INSERT, "acme", 1, 1)
    await session.execute("UPDATE syncline.signals SET server_start = '2020-01-01'")
    interrupts, shown, told = Interrupts(lambda: None), "", ""

    def has_shown(lines: int) -> bool:
        nonlocal shown, told
        captured = capsys.readouterr()
        shown, told = shown + captured.out, told + captured.err
        return shown.count("\n") == lines

    async with Engine(Settings(database_url=database_url)) as engine:
        tail = asyncio.create_task(
            follow(engine, SignalFilter(), interrupts, from_start=True, json=True)
        )
        await eventually(lambda: has_shown(1))
        assert told == ""
        await session.execute(INSERT, "acme", 2, 2)
        await eventually(lambda: has_shown(2))
        interrupts.react()
        await tail
    await session.close()

    assert numbers(shown.splitlines()) == [1, 2]
    assert "promoted or restored" in told + capsys.readouterr().err
