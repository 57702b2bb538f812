"""What people do meanwhile, through the engine and with plain SQL."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import asyncpg

from simulation.auditor import Broken
from simulation.provider import Ledger
from syncline import Engine

EDITS = {
    "note": """
        UPDATE syncline.connections SET metadata = jsonb_set(metadata, '{note}',
               to_jsonb(coalesce((metadata ->> 'note')::int, 0) + 1)) WHERE id = $1
    """,
    "note under sync": """
        UPDATE syncline.connections SET metadata = jsonb_set(metadata, '{sync,note}',
               to_jsonb(coalesce((metadata #>> '{sync,note}')::int, 0) + 1)) WHERE id = $1
    """,
    "interval": """
        UPDATE syncline.connections
           SET metadata = jsonb_set(metadata, '{sync,interval_seconds}', '75') WHERE id = $1
    """,
    "bad interval": """
        UPDATE syncline.connections
           SET metadata = jsonb_set(metadata, '{sync,interval_seconds}', '"soon"') WHERE id = $1
    """,
    "bad time": """
        UPDATE syncline.connections
           SET metadata = jsonb_set(metadata, '{sync,next_run_at}', '"tomorrow"') WHERE id = $1
    """,
    "pause by SQL": "UPDATE syncline.connections SET status = 'paused' WHERE id = $1",
    "resume by SQL": "UPDATE syncline.connections SET status = 'active' WHERE id = $1",
}

# The rows that somebody locks in a transaction and then leaves. He takes what is free: who gives
# way in a deadlock would be decided by the server, in real time.
HOLD = {
    "connections": """
        -- hold connections
        SELECT id FROM syncline.connections WHERE id = ANY ($1) ORDER BY id
    """,
    "jobs": """
        -- hold jobs
        SELECT connection_id FROM syncline.sync_jobs
         WHERE connection_id = ANY ($1) AND status IN ('queued', 'running') ORDER BY id
    """,
}
PROVIDERS = ("blocking", "calling", "streaming")
TENANTS = ("acme", "globex")
WITH_CAP = 0.2  # of those that may have one
LOCKS = ("FOR UPDATE SKIP LOCKED", "FOR NO KEY UPDATE SKIP LOCKED", "FOR SHARE SKIP LOCKED")
LONGEST_HOLD_SECONDS = 40


class People:
    """Restless operators; whatever they do, nobody else may be harmed by it."""

    def __init__(self, engine: Engine, url: str, ledger: Ledger, rng: random.Random) -> None:
        self._engine = engine
        self._url = url
        self._ledger = ledger
        self._rng = rng
        self.connections: dict[str, UUID] = {}
        self.deleted: dict[UUID, bool] = {}  # and whether its signals were to be kept
        self.deeds: Counter[str] = Counter()

    async def set_caps(self) -> dict[tuple[str, str], int]:
        """Set some caps before anything runs; return them by tenant and provider."""
        caps: dict[tuple[str, str], int] = {}
        for tenant, provider in (("acme", ""), ("", "calling"), ("globex", "streaming")):
            if self._rng.random() < WITH_CAP:
                caps[tenant, provider] = most = self._rng.randint(1, 3)
                await self._engine.shares.set_cap(
                    most, tenant_id=tenant or None, provider_slug=provider or None
                )
        return caps

    async def add_connection(self, tenant: str | None = None) -> None:
        name = f"account {len(self._ledger.accounts) + 1}"
        self._ledger.open_account(name, has_keys=self._rng.random() < 0.7)
        connection = await self._engine.connections.create(
            tenant_id=tenant or self._rng.choice(TENANTS),
            provider_slug=self._rng.choice((*PROVIDERS, "calling")),
            external_id=name,
            interval_seconds=self._rng.choice((None, 60, 90)),
        )
        self.connections[name] = connection.id

    async def meddle(self) -> None:
        """Do one thing after another, some of them at the wrong moment."""
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / 4))
            name = self._rng.choice(sorted(self.connections))
            deed = self._rng.choice(sorted(DEEDS))
            self.deeds[deed] += 1
            try:
                await DEEDS[deed](self, name, self.connections[name])
            except (ValueError, LookupError):
                self.deeds["refused"] += 1
            except asyncpg.LockNotAvailableError:
                self.deeds["gave up waiting for a row"] += 1

    async def hold_rows(self) -> None:
        """Hold some rows for a while, again and again."""
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / 15))
            async with self.holding(self.sample(self._rng.randint(1, len(self.connections)))):
                await asyncio.sleep(self._rng.uniform(0.1, LONGEST_HOLD_SECONDS))

    @asynccontextmanager
    async def holding(self, some: Collection[str]) -> AsyncIterator[set[str]]:
        """Lock rows of some connections; yield whose those are that could be had."""
        names = {self.connections[name]: name for name in some}
        kinds = self._rng.choice((["connections"], ["jobs"], ["connections", "jobs"]))
        held: set[str] = set()
        session = await asyncpg.connect(self._url)
        try:
            await session.execute("BEGIN")
            for kind in kinds:
                held |= await self._lock(session, kind, names)
            if not held:  # none of them has a job
                held |= await self._lock(session, "connections", names)
            self.deeds["hold a row"] += len(held)
            yield held
            await session.execute("ROLLBACK")
        finally:
            session.terminate()

    async def _lock(self, session: Any, kind: str, names: dict[UUID, str]) -> set[str]:
        query = HOLD[kind] + self._rng.choice(LOCKS)
        return {names[id_] for [id_] in await session.fetch(query, list(names))}

    def sample(self, count: int) -> list[str]:
        return sorted(self._rng.sample(sorted(self.connections), count))

    async def edit(self, _name: str, id_: UUID) -> None:
        session = await asyncpg.connect(self._url)
        try:
            await session.execute(EDITS[self._rng.choice(sorted(EDITS))], id_)
        finally:
            session.terminate()

    async def pause(self, _name: str, id_: UUID) -> None:
        await self._engine.connections.pause(id_)

    async def resume(self, _name: str, id_: UUID) -> None:
        await self._engine.connections.resume(id_)

    async def set_interval(self, _name: str, id_: UUID) -> None:
        await self._engine.connections.set_interval(id_, self._rng.choice((None, 60, 120)))

    async def trigger(self, _name: str, id_: UUID) -> None:
        await self._engine.trigger(id_)

    async def trigger_full(self, name: str, id_: UUID) -> None:
        if self._ledger.accounts[name].has_keys:  # the others would rightly be stored again
            await self._engine.trigger(id_, job_type="full")

    async def retry(self, _name: str, id_: UUID) -> None:
        job = await self._any_job(id_)
        # One that ended with a cursor of its own would start from there, however long ago.
        if job and job.job_type != "full" and (job.cursor is None or job.status == "queued"):
            await self._engine.jobs.retry(job.id)

    async def cancel(self, _name: str, id_: UUID) -> None:
        if job := await self._any_job(id_):
            await self._engine.jobs.cancel(job.id)

    async def add(self, _name: str, _id: UUID) -> None:
        if len(self._ledger.accounts) < 12:
            await self.add_connection()

    async def delete(self, name: str, id_: UUID) -> None:
        if len(self.connections) > 2 and self._rng.random() < 0.3:
            keeps_signals = self._rng.random() < 0.5
            del self.connections[name]
            self.deleted[id_] = keeps_signals
            await self._engine.connections.delete(id_, keep_signals=keeps_signals)

    async def pause_provider(self, _name: str, _id: UUID) -> None:
        await self._engine.gates.pause(self._rng.choice(PROVIDERS), because="maintenance")

    async def resume_provider(self, _name: str, _id: UUID) -> None:
        await self._engine.gates.resume(self._rng.choice(PROVIDERS))

    async def resume_providers(self) -> None:
        """Resume those that are paused; the others find out for themselves that all is well."""
        for gate in await self._engine.gates.list():
            if gate.paused_at is not None:
                await self._engine.gates.resume(gate.provider_slug)

    async def set_weight(self, _name: str, _id: UUID) -> None:
        await self._engine.shares.set_weight(
            self._rng.choice(TENANTS), self._rng.choice((0.5, 1, 3))
        )

    async def verify(self, _name: str = "", _id: UUID | None = None) -> None:
        if broken := await self._engine.verify():
            raise Broken(f"verify: {broken}")

    async def delete_again(self) -> None:
        """Finish the deletions that the end of the rough times cut short."""
        for id_, keeps_signals in self.deleted.items():
            with suppress(LookupError):
                await self._engine.connections.delete(id_, keep_signals=keeps_signals)

    async def resume_all(self, names: Collection[str]) -> None:
        for name in sorted(names):
            id_ = self.connections[name]
            if (await self._engine.connections.get(id_)).status != "active":
                await self._engine.connections.resume(id_)

    async def trigger_all(self, names: Collection[str]) -> None:
        for name in sorted(names):
            await self._engine.trigger(self.connections[name])

    async def _any_job(self, id_: UUID) -> Any:
        jobs = await self._engine.jobs.list(connection_id=id_, limit=3)
        return self._rng.choice(jobs) if jobs else None


DEEDS = {
    "add": People.add,
    "cancel": People.cancel,
    "delete": People.delete,
    "edit": People.edit,
    "pause": People.pause,
    "pause provider": People.pause_provider,
    "resume": People.resume,
    "resume provider": People.resume_provider,
    "retry": People.retry,
    "set interval": People.set_interval,
    "set weight": People.set_weight,
    "trigger": People.trigger,
    "trigger full": People.trigger_full,
    "verify": People.verify,
}
