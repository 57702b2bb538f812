"""What is wrong: broken invariants, and problems of the database and its workers."""

from collections.abc import Sequence
from datetime import timedelta

from syncline.clock import host_time, pause
from syncline.engine.upkeep.heartbeat import DEAD_AFTER
from syncline.model import ApiRole, Finding
from syncline.policy.doctor import Diagnosis, Symptoms, diagnose
from syncline.policy.stats import sum_queues
from syncline.services.base import BaseService
from syncline.store import api_role
from syncline.store.checks import doctor, invariants
from syncline.store.checks.invariants import Yardstick
from syncline.store.data import keys, workers
from syncline.store.pool import Transaction
from syncline.store.queue import schedulers
from syncline.store.stats.queue import read_queues

RECHECK_AFTER = timedelta(seconds=3)  # a lapsed lease is taken over soon after it is unlocked


class Doctor(BaseService):
    async def judge(self, *, recheck_after: timedelta = RECHECK_AFTER) -> list[Finding]:
        """Return a finding for each invariant; a late reaping gets a second look."""
        async with self._pool.transaction() as tx:
            yardstick = await self._yardstick(tx)
            findings = await invariants.judge(tx, yardstick)
        for wait in (timedelta(), recheck_after):
            if invariants.has_late_reaping(findings):
                await pause(wait.total_seconds())
                # A short transaction: it locks the rows that it reads.
                async with self._pool.transaction() as tx:
                    findings = await invariants.excuse_held(tx, findings, now=yardstick.now)
        return findings

    async def diagnose(self) -> list[Diagnosis]:
        """Return a diagnosis of the database and its workers."""
        missing, role, role_faults = await self._read_rights()
        may_read_keys = doctor.may_read(missing, "api_keys")
        async with self._pool.transaction() as tx:
            asked = host_time()
            database_time = await tx.database_time()
            answered = host_time()
            now = await self._clock.now(tx)
            queues = await read_queues(tx, None, now=now)
            return diagnose(
                Symptoms(
                    now=now,
                    server=await doctor.read_server(tx),
                    skew=asked + (answered - asked) / 2 - database_time,
                    tables=await doctor.read_tables(tx),
                    open_transactions=await doctor.read_open_transactions(tx),
                    missing_grants=missing,
                    api_role=role,
                    role_faults=role_faults,
                    workers=await workers.list_all(tx, silent_since=now - DEAD_AFTER),
                    providers=await doctor.active_providers(tx),
                    last_tick_at=await doctor.last_tick(tx),
                    tick_interval=self._settings.scheduler.tick_interval,
                    oldest_due_at=sum_queues(queues.values()).oldest_due_at,
                    pool_size=self._settings.pool_size,
                    expiring_keys=await keys.list_expiring(tx, now=now) if may_read_keys else (),
                    tenant_providers=self._settings.api.tenant_providers or (),
                )
            )

    async def _read_rights(self) -> tuple[Sequence[str], ApiRole, Sequence[str]]:
        """Return the missing rights, the role for requests, and its faults."""
        async with self._pool.transaction() as tx:
            missing = await doctor.missing_grants(tx)
            role = await api_role.read_role(tx, self._settings.schema)
            can_try = role.is_ready and doctor.may_read(missing)
            return missing, role, await api_role.probe(tx, role) if can_try else ()

    async def _yardstick(self, tx: Transaction) -> Yardstick:
        settings, limits = self._settings, self._settings.rate_limit
        now = await self._clock.now(tx)
        two_ticks_ago = now - 2 * settings.scheduler.tick_interval
        began_at = await schedulers.ticking_since(tx, ticked_after=two_ticks_ago)
        can_judge = began_at is not None and began_at < two_ticks_ago
        return Yardstick(
            now=now,
            two_ticks_ago=two_ticks_ago if can_judge else None,
            rules=settings.scheduler.rules,
            lease=settings.executor.lease,
            longest_wait=max(
                limits.backoff(provider).longest for provider in ("", *limits.providers)
            ),
        )
