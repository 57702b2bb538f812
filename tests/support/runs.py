"""Runs without an executor."""

import asyncio
from uuid import UUID

from syncline.engine.worker.runs import Run, Runs
from syncline.engine.worker.settle import Settler
from syncline.engine.worker.settle_queue import SettleQueue
from syncline.engine.worker.slots import Slots
from syncline.store.queue.claims import Claim
from syncline.telemetry.engine import Telemetry

NO_SETTLER: Settler = None  # type: ignore[assignment]  # nothing is settled


def make_runs() -> Runs:
    """Return runs whose settle queue nobody reaches."""
    telemetry = Telemetry(tenant_label=False, cell="test")
    settle_queue = SettleQueue(NO_SETTLER, telemetry, lease_seconds=30)
    return Runs(settle_queue, asyncio.Event(), asyncio.Event())


def make_run() -> Run:
    """Return a run that has not started."""
    return make_runs().add(claimed(), leased_since=0)


def begin(runs: Runs, slots: Slots, *, lapses: int) -> Run:
    """Begin a run whose connector never ends."""
    run = runs.add(claimed(lapses), leased_since=0, slots=slots)
    runs.begin(run, asyncio.Event().wait())  # type: ignore[arg-type]  # it returns something
    return run


def claimed(lapses: int = 0) -> Claim:
    one = UUID(int=1)
    return Claim(
        lease_token=one,
        id=one,
        tenant_id="acme",
        provider_slug="github",
        connection_id=one,
        job_type="incremental",
        priority=0,
        attempts=0,
        lapses=lapses,
        cursor=None,
        external_id="1",
        connection_status="active",
        is_first=False,
        slot_ahead=None,
    )
