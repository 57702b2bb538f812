"""The contract of `connections.metadata.sync`: whatever a person writes there is survived."""

import json
from typing import Any

import pytest

from support.world import Logged, World, at
from syncline import Connection, SyncResult

BAD_INTERVALS = ["900", 900.5, 900.0, True, -5, 0, 59, 86401, 10**30, [], {}, ["x" * 5000], "often"]
RAW = "SELECT metadata #>> '{{sync,{key}}}' AS text FROM {{schema}}.connections WHERE id = $1"


@pytest.mark.parametrize("interval", [60, 86400])
async def test_interval_bounds_are_inclusive(world: World, logged: Logged, interval: int) -> None:
    """An interval may be 60 to `max_overridden_interval_seconds`."""
    connection = await world.connection(last_finished="00:00", sync={"interval_seconds": interval})

    await world.tick(at("00:00") + 3 * (at("24:00") - at("00:00")))

    [plan] = logged("scheduler.job_scheduled")
    assert plan["base_interval_seconds"] == interval
    assert (await world.sync_metadata(connection))["interval_seconds"] == interval
    assert logged("scheduler.bad_metadata") == []


async def test_bad_interval_is_replaced_at_the_next_persist(world: World, logged: Logged) -> None:
    """A bad interval counts as absent, warns, and is replaced; the cursor stays byte for byte."""
    connections = [
        await world.connection(
            last_finished="12:00",
            metadata={
                "sync": {"interval_seconds": interval, "note": {"by": "Ada"}},
                "beside": [1, None, "ü"],
            },
        )
        for interval in BAD_INTERVALS
    ]
    cursor = '{"b": 1, "a": 1.10, "big": 123456789012345678901234}'
    for connection in connections:
        await set_raw_cursor(world, connection, cursor)
    before = await raw(world, connections[0], "cursor")

    await world.tick("12:15", jitter_seconds=0)

    for connection, interval in zip(connections, BAD_INTERVALS, strict=True):
        shown = repr(interval)[:20]
        assert (await world.pending(connection)).scheduled_at == at("12:15"), shown
        assert (await world.sync_metadata(connection))["interval_seconds"] == 900, shown
        assert await raw(world, connection, "cursor") == before, shown
        kept = (await world.engine.connections.get(connection.id)).metadata
        assert (kept["sync"]["note"], kept["beside"]) == ({"by": "Ada"}, [1, None, "ü"]), shown
    warnings = logged("scheduler.bad_metadata")
    assert {one["connection_id"] for one in warnings} == {str(one.id) for one in connections}
    assert len(warnings) == len(connections)
    assert {one["key"] for one in warnings} == {"sync.interval_seconds"}
    assert max(len(one["reason"]) for one in warnings) < 200


async def test_bad_interval_waits_for_a_persist(world: World) -> None:
    """A tick that has nothing to plan writes nothing, a bad interval included."""
    connection = await world.connection(last_finished="12:00", sync={"interval_seconds": "often"})

    await world.tick("12:05")

    assert (await world.sync_metadata(connection)) == {"interval_seconds": "often"}


async def test_bad_value_of_another_key_is_logged_and_survived(
    world: World, logged: Logged
) -> None:
    """A bad value counts as absent; a warning names the connection, the key and the reason."""
    bad: list[tuple[str, Any]] = [
        ("next_run_at", "2025-01-01T12:15:00"),
        ("next_run_at", "tomorrow"),
        ("next_run_at", 5),
        ("next_run_at", "2025-01-01T12:15:00+02:00"),
        ("last_jitter_seconds", -1),
        ("last_jitter_seconds", "5"),
        ("last_jitter_seconds", 1.5),
        ("first_activated_at", "2025-01-01"),
        ("first_activated_at", "99999-01-01T00:00:00Z"),
        ("first_activated_at", {}),
    ]
    connections = [
        await world.connection(last_finished="12:00", sync={key: value, "cursor": 7})
        for key, value in bad
    ]
    healthy = await world.connection(last_finished="12:00")

    await world.tick("12:15", jitter_seconds=0)

    for connection in (*connections, healthy):
        assert (await world.pending(connection)).scheduled_at == at("12:15")
    for connection in connections:
        assert (await world.sync_metadata(connection))["cursor"] == 7
    warnings = logged("scheduler.bad_metadata")
    assert sorted((one["connection_id"], one["key"]) for one in warnings) == sorted(
        (str(one.id), f"sync.{key}") for one, (key, _) in zip(connections, bad, strict=True)
    )
    assert all(one["reason"] for one in warnings)


async def test_metadata_of_the_wrong_kind_is_survived(world: World) -> None:
    """A list where an object belongs disturbs neither the plan nor the run; nor does SQL NULL."""
    absent = await world.connection(last_finished="12:00")
    await world.sql("UPDATE {schema}.connections SET metadata = NULL, config = NULL")
    kinds = ["text", [], 5, True, {"sync": []}, {"sync": "text"}, {"sync": 900}, {"x": 1}]
    wrong = [await world.connection(last_finished="12:00", metadata=kind) for kind in kinds]
    world.script(*[SyncResult(next_cursor="here")] * (len(wrong) + 1))

    await world.tick("12:15", jitter_seconds=0)
    await world.run_due()

    assert sorted(world.connector.calls) == sorted((one.id, None) for one in (absent, *wrong))
    for connection in (absent, *wrong):
        kept = (await world.engine.connections.get(connection.id)).metadata
        assert kept["sync"]["cursor"] == "here"
        assert kept["sync"]["next_run_at"] == "2025-01-01T12:30:00Z"
        assert kept.get("x") == (1 if connection is wrong[-1] else None)


async def test_times_are_written_in_utc_ending_in_z(world: World) -> None:
    """`next_run_at` is RFC 3339 text in UTC, `last_jitter_seconds` an integer."""
    connection = await world.connection(last_finished="12:00")

    await world.tick("12:15", jitter_seconds=30)

    sync = await world.sync_metadata(connection)
    assert sync == {"next_run_at": "2025-01-01T12:30:00Z", "last_jitter_seconds": 30}


@pytest.mark.parametrize(
    ("edited", "tick", "slot"),
    [(300, "12:05", "12:05"), (3600, "12:59", "13:00"), ("bad", "12:15", "12:15")],
    ids=["shorter", "longer", "bad"],
)
async def test_interval_edited_by_sql_takes_effect_at_the_next_tick(
    world: World, edited: Any, tick: str, slot: str
) -> None:
    """S2, S6: an interval takes effect at the next tick, however it was changed."""
    connection = await world.connection(last_finished="12:00", sync={"interval_seconds": 1800})
    await world.tick("12:01")
    await world.set_metadata(connection, "sync,interval_seconds", edited)

    assert (await world.tick("12:02")).scheduled == 0
    await world.tick(tick, jitter_seconds=0)

    assert (await world.pending(connection)).slot_at == at(slot)


async def test_interval_removed_by_sql_takes_effect_at_the_next_tick(world: World) -> None:
    """S2, S6: without its own interval a connection has the default again."""
    connection = await world.connection(last_finished="12:00", sync={"interval_seconds": 3600})
    await world.tick("12:01")
    await world.sql(
        "UPDATE {schema}.connections SET metadata = metadata #- '{sync,interval_seconds}'"
    )

    await world.tick("12:15", jitter_seconds=0)

    assert (await world.pending(connection)).slot_at == at("12:15")


@pytest.mark.parametrize("interval", [300, None])
async def test_set_interval_takes_effect_at_the_next_tick(
    world: World, interval: int | None
) -> None:
    """S2, S6: also where the engine was asked to change it; unknown keys stay."""
    connection = await world.connection(
        last_finished="12:00", sync={"interval_seconds": 3600, "note": 1}
    )
    await world.tick("12:01")
    await world.engine.connections.set_interval(connection.id, interval)

    await world.tick("12:15", jitter_seconds=0)

    assert (await world.pending(connection)).slot_at == at("12:15")
    assert (await world.sync_metadata(connection))["note"] == 1


async def set_raw_cursor(world: World, connection: Connection, text: str) -> None:
    await world.sql(
        "UPDATE {schema}.connections"
        " SET metadata = jsonb_set(metadata, '{sync,cursor}', $2) WHERE id = $1",
        *(connection.id, text),
    )


async def raw(world: World, connection: Connection, key: str) -> str:
    [row] = await world.sql(RAW.format(key=key), connection.id)
    text: str = row["text"]
    assert json.loads(text)
    return text
