"""E7 of the specification: sizes and contents that a page may not exceed."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from support.world import World, at
from syncline import Connection, RateLimited, Signal, SyncResult

GOOD = Signal("opened", at("11:00"), {"number": 1}, dedupe_key="1")
LONE_SURROGATE = "\ud800"


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"deeper": value}
    return value


def signal(**changes: Any) -> SyncResult:
    """Return a page whose second signal is wrong."""
    wrong = {"kind": "k", "occurred_at": at("11:00"), "payload": {}, **changes}
    return SyncResult([GOOD, Signal(**wrong)])


BAD_PAGES: dict[str, tuple[Any, str]] = {
    "None": (None, "NoneType"),
    "a dict": ({"signals": []}, "dict"),
    "signals that are none": (SyncResult("text"), "signals"),  # type: ignore[arg-type]
    "a signal that is none": (SyncResult([GOOD, {"kind": "k"}]), "signals[1]"),  # type: ignore[list-item]
    "has_more that is no bool": (SyncResult([GOOD], 1, "yes"), "has_more"),  # type: ignore[arg-type]
    "a payload too large": (signal(payload={"x": "y" * 1_000_000}), "signals[1].payload"),
    "a cursor too large": (SyncResult([GOOD], next_cursor="y" * 64_000), "next_cursor"),
    "NUL in a value": (signal(payload={"x": ["a\0b"]}), "signals[1].payload"),
    "NUL in a key": (signal(payload={"a\0b": 1}), "signals[1].payload"),
    "NUL in the cursor": (SyncResult([GOOD], next_cursor={"a\0": 1}), "next_cursor"),
    "NUL in the kind": (signal(kind="a\0"), "signals[1].kind"),
    "NUL in the dedupe key": (signal(dedupe_key="a\0"), "signals[1].dedupe_key"),
    "a lone surrogate": (signal(payload={"x": LONE_SURROGATE}), "signals[1].payload"),
    "a lone surrogate as cursor": (SyncResult([GOOD], next_cursor=LONE_SURROGATE), "next_cursor"),
    "NaN": (signal(payload={"x": float("nan")}), "signals[1].payload"),
    "infinity": (SyncResult([GOOD], next_cursor=float("-inf")), "next_cursor"),
    "a number beyond all bounds": (SyncResult([GOOD], next_cursor=10**5000), "next_cursor"),
    "nesting too deep": (signal(payload=nested(65)), "signals[1].payload"),
    "a cursor nested too deep": (SyncResult([GOOD], next_cursor=nested(100_000)), "next_cursor"),
    "no zone": (signal(occurred_at=datetime(2025, 1, 1)), "signals[1].occurred_at"),
    "no time": (signal(occurred_at="2025-01-01T00:00:00Z"), "signals[1].occurred_at"),
    "a year before 1": (
        signal(occurred_at=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))),
        "signals[1].occurred_at",
    ),
    "a year after 9999": (
        signal(occurred_at=datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=5)))),
        "signals[1].occurred_at",
    ),
    "a payload that is no object": (signal(payload=[1]), "signals[1].payload"),
    "a payload of text": (signal(payload="text"), "signals[1].payload"),
    "something that is no JSON": (signal(payload={"x": {1, 2}}), "signals[1].payload"),
    "a dedupe key too long": (signal(dedupe_key="k" * 3000), "signals[1].dedupe_key"),
    "no kind": (signal(kind=""), "signals[1].kind"),
}


async def test_page_that_cannot_be_stored(world: World) -> None:
    """E7: a clear, bounded error on the job, and nothing half-stored."""
    connections = {name: await world.connection(sync={"cursor": "old"}) for name in BAD_PAGES}
    pages = {connections[name].id: page for name, (page, _) in BAD_PAGES.items()}
    for connection in connections.values():
        await world.job(connection)
    other = await world.connection()
    await world.job(other, priority=-1)

    def answer(connection: Connection, _: Any) -> Any:
        return pages.get(connection.id, SyncResult([GOOD]))

    world.script(*[answer] * (len(pages) + 1))
    assert await world.run_due() == len(pages) + 1

    for name, (_, field) in BAD_PAGES.items():
        [job] = await world.jobs(connections[name])
        assert (job.status, job.attempts, job.error["class"]) == ("queued", 1, "ContractError")
        assert field in job.error["message"], name
        assert len(json.dumps(job.error)) <= 4096, name
        assert await world.signals(connections[name]) == [], name
        assert (await world.sync_metadata(connections[name]))["cursor"] == "old", name
    assert len(await world.signals(other)) == 1


async def test_whatever_is_stored_can_be_read_again(world: World) -> None:
    """E7: at the limits, and in every script, what comes back is what was given."""
    connection = await world.connection()
    await world.job(connection)
    payload = {"ü": "𝄞 \\u0000 \u2028", "n": [1.5e-7, 2**70, None], "deep": nested(62)}
    page = [
        Signal("k" * 255, datetime(1, 1, 1, 1, tzinfo=UTC), payload, dedupe_key="k" * 1024),
        Signal("ü", datetime(9999, 12, 31, 23, tzinfo=UTC), {"x": "y" * 999_990}),
    ]

    await world.run_one(SyncResult(page, next_cursor="c" * 63_998))

    stored = await world.signals(connection)
    assert [(s.kind, s.occurred_at, s.payload, s.dedupe_key) for s in stored] == [
        (s.kind, s.occurred_at, s.payload, s.dedupe_key) for s in page
    ]
    assert (await world.sync_metadata(connection))["cursor"] == "c" * 63_998


@pytest.mark.engine(executor={"max_page_signals": 3, "max_page_bytes": 100})
@pytest.mark.parametrize(
    ("signals", "told"),
    [
        ([GOOD] * 2 + [Signal("k", at("11:00"), {})] * 2, "more than 3 signals"),
        ([Signal("k", at("11:00"), {"x": "y" * 60})] * 2, "over the limit of 100 bytes"),
    ],
    ids=["too many", "too large"],
)
async def test_oversized_page(world: World, signals: list[Signal], told: str) -> None:
    """E7: the limits of a page are settings."""
    connection = await world.connection()
    await world.job(connection)

    await world.run_one(SyncResult(signals))

    assert told in (await world.pending(connection)).error["message"]
    assert await world.signals(connection) == []


async def test_endless_page_is_cut_off(world: World) -> None:
    """E7: signals may be any iterable, but not without an end."""

    def endless() -> Iterator[Signal]:
        while True:
            yield Signal("k", at("11:00"), {})

    async with world.another_engine(executor={"max_page_signals": 2000}) as limited:
        job_id = await world.job(await world.connection())
        await limited.run_one(SyncResult(endless()))

    assert "more than 2000 signals" in (await world.get_job(job_id)).error["message"]


async def test_error_is_bounded_and_storable(world: World) -> None:
    """E7: 4 kB at most, whatever an exception says."""
    connection = await world.connection()
    await world.job(connection)
    details = {"body": "x" * 100_000, "nul": "\0"}

    await world.run_one(RateLimited(f"a\0b{LONE_SURROGATE}" + "ü" * 100_000, details=details))

    [row] = await world.sql("SELECT octet_length(error::text) AS size FROM {schema}.sync_jobs")
    error = (await world.pending(connection)).error
    assert row["size"] <= 4096
    assert (error["class"], error["message"][0]) == ("RateLimited", "a")


async def test_number_that_only_postgres_can_hold(world: World) -> None:
    """E7: a cursor like that, written by hand, stops its own job and nothing else."""
    connection, other = await world.connection(), await world.connection()
    await world.sql(
        "UPDATE {schema}.connections"
        " SET metadata = jsonb_build_object('sync', jsonb_build_object('cursor', $2::numeric))"
        " WHERE id = $1",
        *(connection.id, Decimal("1e5000")),
    )
    await world.job(connection, priority=1)
    await world.job(other)
    world.script(SyncResult([GOOD]))

    assert await world.run_due() == 2

    job = await world.pending(connection)
    assert (job.attempts, job.error["class"]) == (1, "ContractError")
    assert "metadata" in job.error["message"]
    assert await world.engine.connections.get(connection.id)
    assert len(await world.signals(other)) == 1
