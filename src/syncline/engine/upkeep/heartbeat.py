"""The heartbeat: this process reports every five seconds that it is alive."""

import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from importlib.metadata import version

from syncline.clock import Clock, new_id
from syncline.engine.worker.threads import Threads
from syncline.model import Worker
from syncline.sdk.connector import Connector
from syncline.sdk.declarations import shared_declarations
from syncline.sdk.registry import may_refuse_tenants, why_not_for_tenants
from syncline.store.data import server_starts, workers
from syncline.store.pool import Pool

BEAT_EVERY = timedelta(seconds=5)
DEAD_AFTER = timedelta(seconds=20)  # four beats, enough for Postgres to restart
FORGOTTEN_AFTER = timedelta(days=1)  # until then a dead worker is shown


class Heartbeat:
    """Maintains this process's row in `workers`; claims and settlements do not depend on it."""

    def __init__(
        self,
        pool: Pool,
        clock: Clock,
        providers: Mapping[str, Connector],
        count_slots: Callable[[], tuple[int, int]],
    ) -> None:
        """Report for these providers; `count_slots` returns all slots, and the busy ones."""
        self._pool = pool
        self._clock = clock
        self._providers = providers
        self._count_slots = count_slots
        self._roles: tuple[str, ...] = ()
        self._id = new_id()
        self._started_at: datetime | None = None
        self._stopping = False
        self._not_for_tenants: Sequence[str] | None = None
        self._declared: tuple[Sequence[str], str] | None = None  # of these providers

    def enter(self, *, scheduler: bool, executor: bool) -> None:
        """Start as a new worker with these roles."""
        roles = {"scheduler": scheduler, "executor": executor}
        self._roles = tuple(role for role, taken in roles.items() if taken)
        self._id, self._started_at, self._stopping = new_id(), None, False
        self._not_for_tenants = None

    def stop(self) -> None:
        """Report at the next beat that this process takes no more jobs."""
        self._stopping = True

    async def beat(self) -> timedelta:
        """Write this process's row, and number the current start of the server if it is new."""
        if self._not_for_tenants is None:  # once, because it may start a program
            self._not_for_tenants = await self._find_unconfined()
        async with self._pool.transaction() as tx:
            now = await self._clock.now(tx)
            await workers.beat(tx, self._describe(now), self._declarations())
        async with self._pool.transaction() as tx:
            await server_starts.number_present(tx)
        return BEAT_EVERY

    async def is_first(self) -> bool:
        """Return whether this is the live process that started first."""
        async with self._pool.transaction() as tx:
            silent_since = await self._clock.now(tx) - DEAD_AFTER
            return await workers.first(tx, silent_since=silent_since) in (self._id, None)

    async def leave(self) -> None:
        """Remove this process's row."""
        async with self._pool.transaction() as tx:
            await workers.leave(tx, self._id)

    def _declarations(self) -> str:
        """Return what the connectors declare, as JSON by provider."""
        providers = tuple(self._providers) if "executor" in self._roles else ()
        if self._declared is None or self._declared[0] != providers:
            chosen = {provider: self._providers[provider] for provider in providers}
            self._declared = providers, json.dumps(shared_declarations(chosen))
        return self._declared[1]

    async def _find_unconfined(self) -> Sequence[str]:
        """Return the providers that cannot be confined here; the checks run in a thread."""
        in_doubt = may_refuse_tenants(self._providers) if "executor" in self._roles else {}
        if not in_doubt:
            return ()
        return sorted(await Threads(lambda: None).run(lambda: why_not_for_tenants(in_doubt)))

    def _describe(self, now: datetime) -> Worker:
        self._started_at = self._started_at or now
        runs_jobs = "executor" in self._roles
        slots, busy = self._count_slots()
        return Worker(
            id=self._id,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=version("syncline"),
            roles=self._roles,
            providers=sorted(self._providers) if runs_jobs else (),
            slots=slots if runs_jobs else 0,
            busy=busy,
            stopping=self._stopping,
            started_at=self._started_at,
            beat_at=now,
            not_for_tenants=self._not_for_tenants or (),
        )
