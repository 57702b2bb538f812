"""Rows that another session holds in an open transaction."""

import asyncio
from typing import Any
from uuid import UUID

import asyncpg

from faults.kinds import kind
from faults.provider import Stream
from faults.stage import PATIENCE_SECONDS, Stage
from faults.waiting import until

HELD = 60
HELD_SECONDS = 7.0  # longer than a stream may go without progress
RECORDS = 40

# It locks what is free and waits for nothing, so that it causes no deadlock itself.
LOCK_CONNECTIONS = """
    SELECT id FROM syncline.connections WHERE id = ANY ($1::uuid[]) FOR UPDATE SKIP LOCKED
"""

LOCK_JOBS = """
    SELECT connection_id AS id FROM syncline.sync_jobs
     WHERE connection_id = ANY ($1::uuid[]) AND status IN ('queued', 'running')
       FOR UPDATE SKIP LOCKED
"""


@kind("sixty connections held by somebody", full=3)
async def hold_connections(stage: Stage) -> None:
    """All others continue; the held ones keep pages and leases, and continue afterwards."""
    async with stage.costs_time_only("held"):
        await hold(stage, LOCK_CONNECTIONS)


@kind("the jobs of sixty connections held by somebody", full=3, quick=0)
async def hold_jobs(stage: Stage) -> None:
    """All others continue; the held ones, whose leases cannot be renewed, do so afterwards."""
    await hold(stage, LOCK_JOBS)


async def hold(stage: Stage, lock: str) -> None:
    """Hold rows of running streams, and check which streams are delayed."""
    names = [await stage.add_stream("held", Stream(records=RECORDS)) for _ in range(HELD)]

    async def all_under_way() -> bool:
        cursors = await stage.database.cursors()
        return all(cursors[name] for name in names)

    await until(all_under_way, within=PATIENCE_SECONDS, what="streams to hold")
    person = await asyncpg.connect(stage.database.url)
    try:
        async with person.transaction(), stage.live_streams_go_on():
            await lock_all(person, lock, [stage.ids[name] for name in names])
            before = await stage.database.cursors()
            await asyncio.sleep(HELD_SECONDS)
            after = await stage.database.cursors()
    finally:
        person.terminate()
    if moved := [name for name in names if after[name] != before[name]]:
        stage.record.complain(f"these streams were not held: {', '.join(moved)}")
    await stage.until_synced(*names)


async def lock_all(person: Any, lock: str, ids: list[UUID]) -> None:
    """Lock a row of every connection as soon as it is free."""
    held: set[UUID] = set()

    async def holds_all() -> bool:
        held.update(row["id"] for row in await person.fetch(lock, ids))
        return len(held) == len(ids)

    await until(holds_all, within=PATIENCE_SECONDS, what="a lock on every stream")
