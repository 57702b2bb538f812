"""Whatever a person writes into metadata disturbs no other connection, nor this one's cursor."""

import json
from typing import Any

from support.mixed_batch import HEALTHY_PAGE
from support.world import Logged, World, at
from syncline import Connection, Signal, SyncResult
from syncline.text import rfc3339

CURSOR = '{"since": 1.50, "page": [1, {"a": null}], "text": "é\\u0001"}'  # kept byte for byte
HUGE = "x" * 1_000_000

WRONG_SHAPES: dict[str, Any] = {
    "metadata that is null": None,
    "metadata that is a number": 5,
    "metadata that is a list": [],
    "metadata that is a text": "x",
    "sync that is a text": {"sync": "str", "kept": 1},
    "sync that is a list": {"sync": [1], "kept": 1},
    "sync that is a number": {"sync": 0, "kept": 1},
}
BAD_INTERVALS: dict[str, str] = {
    "words": '"abc"',
    "a number as a text": '"900"',
    "negative": "-1",
    "zero": "0",
    "too short": "59",
    "too long": "86401",
    "beyond all bounds": "1e308",
    "five thousand digits": "9" * 5000,
    "true": "true",
    "a fraction": "900.5",
    "a whole fraction": "900.0",
    "a list": "[900]",
    "an object": '{"seconds": 900}',
    "a huge text": json.dumps(HUGE),
    "empty": '""',
}
BAD_TIMES: dict[str, str] = {
    "garbage": '"garbage"',
    "a number": "1735732800",
    "no zone": '"2025-01-01T12:00:00"',
    "another zone": '"2025-01-01T12:00:00+02:00"',
    "year 1": '"0001-01-01T00:00:00Z"',
    "year 9999": '"9999-12-31T23:59:59Z"',
    "year 10000": '"10000-01-01T00:00:00Z"',
    "no such day": '"2025-02-30T00:00:00Z"',
    "true": "true",
    "a list": "[]",
    "a huge text": json.dumps(HUGE),
}


async def test_metadata_of_any_shape_is_survived_and_mended(world: World, logged: Logged) -> None:
    """One tick, one claim and one settle for all of them, and for a healthy one beside them."""
    batch = {
        name: await add_connection(world, json.dumps(value)) for name, value in WRONG_SHAPES.items()
    }
    batch["metadata that is NULL"] = await add_connection(world, None)
    healthy = await add_connection(world, '{"sync": {"interval_seconds": 300}}')
    everybody = [*batch.values(), healthy]

    assert (await world.tick("12:00")).scheduled == len(everybody)
    world.script(*[HEALTHY_PAGE] * len(everybody))
    assert await world.run_due("12:30") == len(everybody)

    for name, connection in batch.items():
        assert {key for id_, key in complaints(logged) if id_ == str(connection.id)}, name
        sync = await world.sync_metadata(connection)
        assert sync.keys() == {"next_run_at", "last_jitter_seconds", "cursor"}, name
        assert sync["cursor"] == {"page": 2}, name
        metadata = (await world.engine.connections.get(connection.id)).metadata
        assert metadata.get("kept", 1) == 1, name
        assert metadata.keys() <= {"sync", "kept"}, name
    assert (await world.sync_metadata(healthy))["interval_seconds"] == 300
    assert str(healthy.id) not in {id_ for id_, _ in complaints(logged)}
    assert await world.engine.verify() == []


async def test_a_bad_interval_counts_as_absent_and_is_replaced(
    world: World, logged: Logged
) -> None:
    batch = {
        name: await add_connection(world, sync_of(interval_seconds=text, cursor=CURSOR))
        for name, text in BAD_INTERVALS.items()
    }
    healthy = await add_connection(world, sync_of(interval_seconds="300", cursor=CURSOR))

    report = await world.tick("11:50", jitter_seconds=0)
    assert (report.scheduled, report.overdue) == (len(batch) + 1, len(batch) + 1)

    for name, connection in batch.items():
        assert (await world.pending(connection)).scheduled_at == at("11:45"), name
        sync = await world.sync_metadata(connection)
        assert sync["interval_seconds"] == 900, name
        assert sync["next_run_at"] == rfc3339(at("12:00")), name
        assert await cursor_text(world, connection) == await canonical(world, CURSOR), name
        assert (str(connection.id), "sync.interval_seconds") in complaints(logged), name
    assert (await world.pending(healthy)).scheduled_at == at("11:50")
    assert await world.engine.verify() == []


async def test_a_bad_time_counts_as_absent(world: World, logged: Logged) -> None:
    """`next_run_at` is published, never obeyed; without a reference there is `created_at`."""
    published = {
        name: await add_connection(world, sync_of(next_run_at=text, cursor=CURSOR))
        for name, text in BAD_TIMES.items()
    }
    activated = {
        name: await add_connection(world, sync_of(first_activated_at=text, cursor=CURSOR), new=True)
        for name, text in BAD_TIMES.items()
    }

    assert (await world.tick("11:50", jitter_seconds=0)).scheduled == 2 * len(BAD_TIMES)

    for name, connection in published.items():
        assert (await world.sync_metadata(connection))["next_run_at"] == rfc3339(at("12:00")), name
        assert (str(connection.id), "sync.next_run_at") in complaints(logged), name
    for name, connection in activated.items():
        assert (await world.sync_metadata(connection))["next_run_at"] == rfc3339(at("00:15")), name
        assert (str(connection.id), "sync.first_activated_at") in complaints(logged), name
    for connection in (*published.values(), *activated.values()):
        assert await cursor_text(world, connection) == await canonical(world, CURSOR)


async def test_unknown_keys_outlive_everything(world: World) -> None:
    """A tick, a page, a new interval, a new cursor: single keys change, the rest stays."""
    connection = await add_connection(world, '{"ours": {"deep": [1, 2]}, "sync": {"theirs": 1e2}}')
    await world.tick("12:00")
    world.script(SyncResult([Signal("seen", at("11:00"), {})], next_cursor=1))
    await world.run_due("12:30")
    await world.engine.connections.set_interval(connection.id, 600)
    await world.engine.connections.set_interval(connection.id, None)
    await world.engine.connections.set_cursor(connection.id, None)
    await world.engine.connections.pause(connection.id)
    await world.engine.connections.resume(connection.id)

    metadata = (await world.engine.connections.get(connection.id)).metadata
    assert metadata["ours"] == {"deep": [1, 2]}
    assert metadata["sync"]["theirs"] == 100
    assert "interval_seconds" not in metadata["sync"]
    assert "cursor" not in metadata["sync"]


def complaints(logged: Logged) -> set[tuple[str, str]]:
    """Return which connections were warned of, with the keys."""
    return {(one["connection_id"], one["key"]) for one in logged("scheduler.bad_metadata")}


async def add_connection(world: World, metadata: str | None, *, new: bool = False) -> Connection:
    """Add a connection with the metadata as text; unless it is new, it last ran at 11:30."""
    connection = await world.connection(last_finished=None if new else "11:30")
    await world.sql(
        "UPDATE {schema}.connections SET metadata = $2::jsonb WHERE id = $1",
        *(connection.id, metadata),
    )
    return connection


def sync_of(**texts: str) -> str:
    inner = ", ".join(f'"{key}": {text}' for key, text in texts.items())
    return f'{{"sync": {{{inner}}}}}'


async def cursor_text(world: World, connection: Connection) -> str:
    """Return the stored cursor as Postgres writes it."""
    path = ["sync", "cursor"]
    [row] = await world.sql(
        "SELECT (metadata #> $2)::text AS cursor FROM {schema}.connections WHERE id = $1",
        *(connection.id, path),
    )
    return str(row["cursor"])


async def canonical(world: World, text: str) -> str:
    [row] = await world.sql("SELECT $1::jsonb::text AS text", text)
    return str(row["text"])
