"""Singer taps as real processes that deliver, repeat, edit, fail and hang."""

import json
import logging
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from connectors.foreign.conftest import SourceWriter
from support.fakes import eventually
from support.world import World
from syncline import Connection, Permanent, RateLimited, SyncResult, Transient, Unauthorized
from syncline.children.limits import ChildLimits
from syncline.connectors.foreign.environments import InstalledProgram
from syncline.connectors.foreign.singer import SingerTap


def orders(numbers: Iterable[int], **more: Any) -> list[dict[str, Any]]:
    return [
        {"stream": "orders", "id": n, "updated": f"2025-01-01T00:{n // 60:02}:{n % 60:02}Z", **more}
        for n in numbers
    ]


def connection(source: Path, *, credentials: Any = None, **config: Any) -> Connection:
    """Return a connection, for a tap that is called without an engine."""
    settings = {"source": str(source), **config.pop("settings", {})}
    return Connection(
        uuid4(),
        "acme",
        "tap-fake",
        "a",
        status="active",
        config={"settings": settings, **config},
        metadata={},
        credentials=credentials,
    )


async def pages_of(tap: SingerTap, one: Connection, cursor: Any = None) -> list[SyncResult]:
    return [page async for page in tap.sync(one, cursor)]


async def sync(world: World, tap: SingerTap, added: Connection) -> None:
    await world.job(added)
    unsandboxed = [] if tap.sandboxed else [tap.provider]
    async with world.another_engine([tap], foreign={"unsandboxed": unsandboxed}) as worker:
        await worker.run_due()


async def add(world: World, one: Connection) -> Connection:
    return await world.engine.connections.create(
        tenant_id="acme", provider_slug="tap-fake", external_id="a", config=one.config
    )


async def stored(world: World, one: Connection, kind: str = "orders") -> list[Any]:
    return [signal.payload for signal in await world.signals(one) if signal.kind == kind]


async def test_a_tap_delivers_everything_and_then_what_is_new(
    world: World, tap: SingerTap, write_source: SourceWriter
) -> None:
    """Repeated records are dropped, edited ones are kept, and the state is the cursor."""
    source = write_source(orders(range(25)))
    added = await add(world, connection(source, streams=["orders"], page_size=10))

    await sync(world, tap, added)

    assert [one["id"] for one in await stored(world, added)] == list(range(25))
    cursor = (await world.sync_metadata(added))["cursor"]
    assert cursor == {"orders": "2025-01-01T00:00:24Z"}
    [first, *_] = [one for one in await world.signals(added) if one.kind == "orders"]
    assert first.occurred_at.isoformat() == "2025-01-01T00:00:00+00:00"

    edited = {**orders([70])[0], "id": 3, "note": "edited"}
    write_source([*orders(range(25)), edited, *orders([61])])
    await sync(world, tap, added)

    assert [one["id"] for one in await stored(world, added)] == [*range(25), 3, 61]
    [schema] = await stored(world, added, "orders.schema")
    assert schema["key_properties"] == ["id"]
    assert await world.engine.verify() == []


async def test_a_timestamp_added_by_the_tap_does_not_make_a_record_new(
    world: World, tap: SingerTap, write_source: SourceWriter
) -> None:
    def stamped(minute: int, **more: Any) -> list[dict[str, Any]]:
        time = f"2025-02-01T00:0{minute}:00Z"
        return orders(range(3), _sdc_seen_at=time, fetched_at=time, **more)

    source = write_source(stamped(1))
    one = connection(source, streams=["orders"], ignored_fields=["fetched_at"])
    added = await add(world, one)

    await sync(world, tap, added)
    await world.engine.connections.set_cursor(added.id, None)
    write_source(stamped(2))
    await sync(world, tap, added)

    kept = await stored(world, added)
    assert [(one["id"], one["fetched_at"]) for one in kept] == [
        (n, "2025-02-01T00:01:00Z") for n in range(3)
    ]

    await world.engine.connections.set_cursor(added.id, None)
    write_source(stamped(3, note="edited"))
    await sync(world, tap, added)

    assert [one["id"] for one in await stored(world, added)] == [0, 1, 2, 0, 1, 2]


async def test_pages_are_bounded_and_a_cursor_covers_only_delivered_records(
    tap: SingerTap, write_source: SourceWriter
) -> None:
    source = write_source(orders(range(55)))
    one = connection(source, streams=["orders"], page_size=20, settings={"state_every": 7})

    pages = await pages_of(tap, one)

    assert all(len(list(page.signals)) <= 20 for page in pages)
    delivered: set[int] = set()
    for page in pages:
        records = [one.payload for one in page.signals if one.kind == "orders"]
        delivered |= {record["id"] for record in records}
        if page.next_cursor is not None:
            times = {one["updated"]: one["id"] for one in orders(range(55))}
            assert delivered >= set(range(times[page.next_cursor["orders"]] + 1))
    assert delivered == set(range(55))
    assert pages[-1].next_cursor == {"orders": orders([54])[0]["updated"]}


async def test_streams_are_chosen_by_name_or_pattern(
    tap: SingerTap, write_source: SourceWriter
) -> None:
    people = [{"stream": "people", "id": 1, "updated": "2025-01-01T00:00:00Z"}]
    source = write_source([*orders(range(2)), *people])

    for streams, kinds in (
        ([], {"orders", "people"}),
        (["peo*"], {"people"}),
        (["orders"], {"orders"}),
    ):
        pages = await pages_of(tap, connection(source, streams=streams))
        found = {one.kind for page in pages for one in page.signals}
        assert {kind for kind in found if "." not in kind} == kinds

    with pytest.raises(Permanent, match=r"no stream matches invoices \(streams: orders, people"):
        await pages_of(tap, connection(source, streams=["invoices"]))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"settings": {}}, "config.settings.source is missing"),
        ({"settings": {"source": 3}}, "config.settings.source is int, not string"),
        ({"settings": [], "streams": "x"}, "config.streams is not a list"),
        ({"settings": {"source": "x"}, "ignored_fields": "at"}, "config.ignored_fields is not a"),
        ({"settings": {"source": "x"}, "page_size": 0}, "config.page_size is not a number"),
        ({"source": "x"}, "config.source is unknown"),
    ],
    ids=["missing", "type", "streams", "ignored fields", "page size", "unknown"],
)
async def test_an_invalid_config_names_its_field(
    tap: SingerTap, config: dict[str, Any], told: str
) -> None:
    one = Connection(uuid4(), "acme", "tap-fake", "a", "active", config, metadata={})

    with pytest.raises(Permanent, match=told):
        await pages_of(tap, one)


async def test_an_invalid_config_stops_the_connection(world: World, tap: SingerTap) -> None:
    added = await world.engine.connections.create(
        tenant_id="acme", provider_slug="tap-fake", external_id="a", config={"settings": {}}
    )

    await sync(world, tap, added)

    found = await world.engine.connections.get(added.id)
    assert found.status == "error"
    assert "config.settings.source is missing" in found.status_reason["why"]


async def test_secrets_stay_in_a_file_that_is_removed_after_the_run(
    tap: SingerTap,
    write_source: SourceWriter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "syncline")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    notes, secret = tmp_path / "notes", "canary-7f3a9"
    source = write_source(orders(range(3)))
    one = connection(source, settings={"notes": str(notes)}, credentials={"password": secret})

    await pages_of(tap, one)

    told = [json.loads(line) for line in notes.read_text().splitlines()]
    assert len(told) == 2  # discovery, and the sync
    for start in told:
        assert start["mode"] == "0o600"
        assert secret not in json.dumps([start["argv"], start["environ"]])
    assert "signing in with ***" in caplog.text
    assert secret not in caplog.text
    assert not [name for name in os.listdir(tmp_path) if name.startswith("syncline-")]


@pytest.mark.parametrize(
    ("says", "kind"),
    [
        ("ERROR 401 Client Error: Unauthorized for path: /orders", Unauthorized),
        ("ERROR 429 Client Error: Too Many Requests", RateLimited),
        ("CRITICAL Config validation error: 'x' is required", Permanent),
        ("ERROR the service is tired", Transient),
    ],
)
async def test_a_failed_tap_keeps_its_records_and_its_last_message(
    tap: SingerTap, write_source: SourceWriter, says: str, kind: type[Exception]
) -> None:
    settings = {"exit": 3, "says": says, "state_every": 2}
    one = connection(write_source(orders(range(5))), streams=["orders"], settings=settings)
    pages: list[SyncResult] = []

    async def take_all() -> None:
        async for page in tap.sync(one, None):
            pages.append(page)  # noqa: PERF401  (those before the failure count)

    with pytest.raises(kind, match="exit code 3: .*" + says[-10:]):
        await take_all()

    signals = [one for page in pages for one in page.signals]
    assert [one.payload["id"] for one in signals if one.kind == "orders"] == [0, 1, 2, 3, 4]


async def test_a_line_that_is_not_a_message_ends_the_run(
    tap: SingerTap, write_source: SourceWriter
) -> None:
    one = connection(write_source(orders(range(9))), settings={"garbage_after": 4})

    with pytest.raises(Transient, match="Hello, world"):
        await pages_of(tap, one)


@pytest.mark.parametrize("snapshots", [False, True])
async def test_versions_and_deletions_are_reported(
    world: World, tap: SingerTap, write_source: SourceWriter, snapshots: bool
) -> None:
    """A new version of the table stores what changed; as a snapshot, it stores everything."""
    source = write_source([*orders([1]), *orders([2], _sdc_deleted_at="2025-02-03T00:00:00Z")])
    config = connection(source, streams=["orders"], snapshots=snapshots).config
    added = await world.engine.connections.create(
        tenant_id="acme", provider_slug="tap-fake", external_id="a", config=config
    )

    for version in (1, 2):
        config["settings"]["version"] = version
        await world.sql(
            "UPDATE {schema}.connections SET config = $1, metadata = '{}'", json.dumps(config)
        )
        await sync(world, tap, added)

    versions = [1, 2] if snapshots else [1]
    records = await stored(world, added)
    assert [one["_sdc_table_version"] for one in records] == versions
    [deleted, *_] = [one for one in await world.signals(added) if one.kind == "orders.deleted"]
    assert deleted.occurred_at.isoformat() == "2025-02-03T00:00:00+00:00"
    activated = await stored(world, added, "orders.version_activated")
    assert [one["version"] for one in activated] == [1, 2]


async def test_text_that_postgres_cannot_store_is_replaced(
    world: World, tap: SingerTap, write_source: SourceWriter
) -> None:
    source = write_source(orders([1], text="a\0b", key={"k\0": "\ud800"}, number=float("nan")))
    added = await add(world, connection(source, streams=["orders"]))

    await sync(world, tap, added)

    [record] = await stored(world, added)
    assert (record["text"], record["number"]) == ("a\ufffdb", None)


@pytest.mark.engine(executor={"max_run_seconds": 1})
async def test_a_tap_that_hangs_is_killed_with_all_it_started(
    world: World, tap: SingerTap, write_source: SourceWriter, tmp_path: Path
) -> None:
    tap.child_limits = ChildLimits(grace_seconds=0.1)
    child = tmp_path / "child"
    settings = {"hang_after": 3, "child": str(child)}
    added = await add(
        world, connection(write_source(orders(range(9))), streams=["orders"], settings=settings)
    )

    await sync(world, tap, added)

    [job] = await world.jobs(added)
    assert (job.status, job.error["class"]) == ("queued", "Timeout")
    await eventually(lambda: not is_alive(int(child.read_text())))


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_a_tap_waits_while_nobody_takes_its_pages(
    tap: SingerTap, installed: InstalledProgram, write_source: SourceWriter
) -> None:
    """Memory stays bounded: a run whose pages are taken ends, while the other one still waits."""
    records = orders(range(600), text="x" * 20_000)
    one = connection(write_source(records), streams=["orders"], page_size=10)
    pages = tap.sync(one, None)

    await anext(pages)
    assert sum(len(list(page.signals)) for page in await pages_of(tap, one)) == 601
    held = processes_of(installed)
    assert held, "it has written all its 12 MB, which is more than a line may have"
    await pages.aclose()  # type: ignore[attr-defined]

    assert not any(map(is_alive, held))


def processes_of(tap: InstalledProgram) -> list[int]:
    """Return the processes of a tap: itself, and those that started it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if os.fsencode(tap.executable) in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


async def test_a_tap_without_discovery_is_run_without_a_catalog(
    installed: InstalledProgram, write_source: SourceWriter
) -> None:
    about = {**installed.about, "capabilities": ["state"]}
    old = SingerTap(InstalledProgram(**{**asdict(installed), "about": about}))
    old.sandboxed = False

    pages = await pages_of(old, connection(write_source(orders([1])), streams=["orders"]))

    assert {one.kind for page in pages for one in page.signals} == {"orders", "orders.schema"}
