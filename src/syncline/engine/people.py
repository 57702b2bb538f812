"""What people do: add, change, pause, trigger, retry, cancel, delete, and look."""

import json
from typing import Any
from uuid import UUID

from syncline.clock import Clock, new_id
from syncline.engine.wakeup import Wakeup
from syncline.errors import ContractError
from syncline.model import Connection, ConnectionStatus, Job, JobStatus, JobType, StoredSignal
from syncline.policy.schedule import MINIMUM_INTERVAL_SECONDS
from syncline.sdk.jsontext import encode_json
from syncline.settings import Settings
from syncline.store import connections, jobs, signals, views
from syncline.store.connections import LockedConnection
from syncline.store.jobs import FollowUp
from syncline.store.pool import Pool, Transaction
from syncline.store.schedule import rfc3339

TRIGGER_PRIORITY = 10
MAX_CONFIG_BYTES = 256_000
SIGNALS_A_BATCH = 10_000
ACTIVE = ConnectionStatus.ACTIVE


class People:
    """What the three collections below share."""

    def __init__(self, pool: Pool, settings: Settings, clock: Clock, wakeup: Wakeup) -> None:
        self._pool = pool
        self._settings = settings
        self._clock = clock
        self._wakeup = wakeup


class Connections(People):
    async def create(
        self,
        *,
        tenant_id: str,
        provider_slug: str,
        external_id: str,
        config: dict[str, Any] | None = None,
        interval_seconds: int | None = None,
    ) -> Connection:
        """Add an active connection; bad input, or a key that is taken, raises ValueError."""
        _check_text("tenant_id", tenant_id, characters=255)
        _check_text("provider_slug", provider_slug, characters=100)
        _check_text("external_id", external_id, octets=1024)
        _check_config(config)
        if interval_seconds is not None:
            self._check_interval(interval_seconds)

        connection_id = new_id()

        async def insert(tx: Transaction) -> Connection:
            now = await self._clock.now(tx)
            sync: dict[str, Any] = {"first_activated_at": rfc3339(now)}
            if interval_seconds is not None:
                sync["interval_seconds"] = interval_seconds
            connection = Connection(
                id=connection_id,
                tenant_id=tenant_id,
                provider_slug=provider_slug,
                external_id=external_id,
                status=ACTIVE,
                config=config or {},
                metadata={"sync": sync},
                created_at=now,
                updated_at=now,
            )
            existing = await connections.insert(tx, connection, now=now)
            if existing != connection_id:
                raise ValueError(
                    f"connection {existing} already has the key "
                    f"({tenant_id!r}, {provider_slug!r}, {external_id!r})"
                )
            return connection

        return await self._pool.retrying(insert)

    async def get(self, connection_id: UUID, *, tenant_id: str | None = None) -> Connection:
        async def read(tx: Transaction) -> Connection:
            return await _get_connection(tx, connection_id, tenant_id)

        return await self._pool.retrying(read)

    async def list(
        self,
        *,
        tenant_id: str | None = None,
        provider_slug: str | None = None,
        status: str | None = None,
        after: UUID | None = None,
        limit: int = 100,
    ) -> list[Connection]:
        """Return connections in the order of their ids, from the one after `after`."""
        if status is not None:
            _check_choice("status", status, ConnectionStatus)

        async def read(tx: Transaction) -> list[Connection]:
            return await views.list_connections(
                tx, tenant_id, provider_slug=provider_slug, status=status, after=after, limit=limit
            )

        return await self._pool.retrying(read)

    async def pause(
        self, connection_id: UUID, *, reason: str | None = None, tenant_id: str | None = None
    ) -> Connection:
        """Stop scheduling; queued jobs are cancelled, a run in progress keeps what it brings."""

        async def change(tx: Transaction) -> Connection:
            locked = await _lock(tx, connection_id, tenant_id)
            if locked.status == ConnectionStatus.REVOKED:
                raise ValueError(f"connection {connection_id} is revoked and cannot be paused")
            now = await self._clock.now(tx)
            why = {"why": reason or "paused", "since": rfc3339(now), "evidence": None}
            status = ConnectionStatus.PAUSED
            await connections.set_status(tx, [(connection_id, status, json.dumps(why))], now=now)
            await jobs.cancel_queued(tx, [connection_id], now=now)
            return await _get_connection(tx, connection_id, tenant_id)

        return await self._pool.retrying(change)

    async def resume(self, connection_id: UUID, *, tenant_id: str | None = None) -> Connection:
        """Make a connection active again, with its cursor; the next tick schedules it."""

        async def change(tx: Transaction) -> Connection:
            locked = await _lock(tx, connection_id, tenant_id)
            if locked.status == ConnectionStatus.REVOKED:
                raise ValueError(f"connection {connection_id} is revoked and cannot be resumed")
            if locked.status != ACTIVE:
                now = await self._clock.now(tx)
                await connections.set_status(tx, [(connection_id, ACTIVE, None)], now=now)
            return await _get_connection(tx, connection_id, tenant_id)

        return await self._pool.retrying(change)

    async def set_interval(
        self, connection_id: UUID, interval_seconds: int | None, *, tenant_id: str | None = None
    ) -> Connection:
        """Change the interval, or go back to the default with None; the next tick heeds it."""
        if interval_seconds is not None:
            self._check_interval(interval_seconds)
        text = None if interval_seconds is None else str(interval_seconds)
        return await self._set_key(connection_id, "interval_seconds", text, tenant_id)

    async def set_cursor(
        self, connection_id: UUID, cursor: Any, *, tenant_id: str | None = None
    ) -> Connection:
        """Change where the next run starts from, or start from nothing with None."""
        text = None
        if cursor is not None:
            text = _json_or_value_error(
                cursor, limit=self._settings.executor.max_cursor_bytes, where="cursor"
            )
        return await self._set_key(connection_id, "cursor", text, tenant_id)

    async def delete(
        self, connection_id: UUID, *, keep_signals: bool = False, tenant_id: str | None = None
    ) -> None:
        """Remove a connection with its jobs, and its signals unless they are to be kept.

        A deletion that was cut short can be called again to remove the signals left behind.
        """

        async def remove(tx: Transaction) -> bool:
            locked = await connections.lock(tx, [connection_id])
            found = locked.get(connection_id)
            if found is None or tenant_id not in (None, found.tenant_id):
                return False
            return await connections.delete(tx, connection_id)

        async def remove_signals(tx: Transaction) -> int:
            return await signals.delete_batch(tx, connection_id, tenant_id, limit=SIGNALS_A_BATCH)

        found = await self._pool.retrying(remove)
        while not keep_signals and await self._pool.retrying(remove_signals):
            found = True
        if not found:
            raise _unknown("connection", connection_id)

    async def _set_key(
        self, connection_id: UUID, key: str, text: str | None, tenant_id: str | None
    ) -> Connection:
        async def change(tx: Transaction) -> Connection:
            await _lock(tx, connection_id, tenant_id)
            now = await self._clock.now(tx)
            await connections.set_sync_key(tx, connection_id, key, text, now=now)
            return await _get_connection(tx, connection_id, tenant_id)

        return await self._pool.retrying(change)

    def _check_interval(self, seconds: int) -> None:
        maximum = self._settings.scheduler.max_overridden_interval_seconds
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, int)
            or not MINIMUM_INTERVAL_SECONDS <= seconds <= maximum
        ):
            raise ValueError(
                f"interval_seconds is {seconds!r}; it must be an integer "
                f"from {MINIMUM_INTERVAL_SECONDS} to {maximum}"
            )


class Jobs(People):
    async def get(self, job_id: UUID, *, tenant_id: str | None = None) -> Job:
        async def read(tx: Transaction) -> Job:
            return await _get_job(tx, job_id, tenant_id)

        return await self._pool.retrying(read)

    async def list(
        self,
        *,
        tenant_id: str | None = None,
        connection_id: UUID | None = None,
        provider_slug: str | None = None,
        status: str | None = None,
        job_type: str | None = None,
        before: UUID | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Return jobs, the newest first, from the one before `before`."""
        if status is not None:
            _check_choice("status", status, JobStatus)
        if job_type is not None:
            _check_choice("job_type", job_type, JobType)

        async def read(tx: Transaction) -> list[Job]:
            return await views.list_jobs(
                tx,
                tenant_id,
                connection_id=connection_id,
                provider_slug=provider_slug,
                status=status,
                job_type=job_type,
                before=before,
                limit=limit,
            )

        return await self._pool.retrying(read)

    async def trigger(
        self,
        connection_id: UUID,
        *,
        job_type: str = JobType.INCREMENTAL,
        priority: int | None = None,
        tenant_id: str | None = None,
    ) -> Job:
        """Sync now; return the job that will carry it out."""
        _check_choice("job_type", job_type, JobType)
        chosen = TRIGGER_PRIORITY if priority is None else priority
        if isinstance(chosen, bool) or not isinstance(chosen, int) or abs(chosen) > 32_767:
            raise ValueError(f"priority is {priority!r}; it must be an integer within ±32767")

        async def change(tx: Transaction) -> Job:
            locked = await _lock(tx, connection_id, tenant_id)
            return await self._trigger(tx, locked, job_type, chosen, None)

        return await self._pool.retrying(change)

    async def retry(self, job_id: UUID, *, tenant_id: str | None = None) -> Job:
        """Make a queued job due now, or trigger a new one like the one that ended."""

        async def change(tx: Transaction) -> Job:
            found = await _get_job(tx, job_id, tenant_id)
            locked = await _lock(tx, found.connection_id, tenant_id)
            job = await _get_job(tx, job_id, tenant_id)
            if job.status == JobStatus.QUEUED:
                await jobs.make_due(tx, job_id, now=await self._clock.now(tx))
                await self._wakeup.notify(tx)
                return await _get_job(tx, job_id, tenant_id)
            if job.status not in (JobStatus.FAILED, JobStatus.CANCELLED):
                raise ValueError(f"job {job_id} is {job.status}; there is nothing to retry")
            cursor = None if job.cursor is None else json.dumps(job.cursor)
            return await self._trigger(tx, locked, job.job_type, TRIGGER_PRIORITY, cursor)

        return await self._pool.retrying(change)

    async def cancel(self, job_id: UUID, *, tenant_id: str | None = None) -> Job:
        """Cancel a queued or running job; a worker that runs it stops at its next renewal."""

        async def change(tx: Transaction) -> Job:
            job = await _get_job(tx, job_id, tenant_id)
            await _lock(tx, job.connection_id, tenant_id)
            if not await jobs.cancel(tx, job_id, now=await self._clock.now(tx)):
                ended = await _get_job(tx, job_id, tenant_id)
                raise ValueError(f"job {job_id} is {ended.status} already")
            await connections.look_at_once(tx, [job.connection_id])
            return await _get_job(tx, job_id, tenant_id)

        return await self._pool.retrying(change)

    async def _trigger(
        self,
        tx: Transaction,
        locked: LockedConnection,
        job_type: str,
        priority: int,
        cursor: str | None,
    ) -> Job:
        if locked.status != ACTIVE:
            raise ValueError(f"connection {locked.id} is {locked.status}, not active")
        job = FollowUp(
            id=new_id(),
            tenant_id=locked.tenant_id,
            provider_slug=locked.provider_slug,
            connection_id=locked.id,
            job_type=job_type,
            priority=priority,
            cursor=cursor,
            status=JobStatus.QUEUED,
        )
        triggered = await jobs.trigger(tx, job, now=await self._clock.now(tx))
        # It may finish before the slot it was meant for, so the next one may come earlier too.
        await connections.look_at_once(tx, [locked.id])
        await self._wakeup.notify(tx)
        return triggered


class Signals(People):
    async def list(
        self,
        *,
        tenant_id: str | None = None,
        connection_id: UUID | None = None,
        provider_slug: str | None = None,
        kind: str | None = None,
        after: UUID | None = None,
        limit: int = 100,
    ) -> list[StoredSignal]:
        """Return signals in the order of their ids, from the one after `after`."""

        async def read(tx: Transaction) -> list[StoredSignal]:
            return await views.list_signals(
                tx,
                tenant_id,
                connection_id=connection_id,
                provider_slug=provider_slug,
                kind=kind,
                after=after,
                limit=limit,
            )

        return await self._pool.retrying(read)


async def _lock(tx: Transaction, connection_id: UUID, tenant_id: str | None) -> LockedConnection:
    found = (await connections.lock(tx, [connection_id])).get(connection_id)
    if found is None or tenant_id not in (None, found.tenant_id):
        raise _unknown("connection", connection_id)
    return found


async def _get_connection(
    tx: Transaction, connection_id: UUID, tenant_id: str | None
) -> Connection:
    connection = await connections.get(tx, connection_id, tenant_id)
    if connection is None:
        raise _unknown("connection", connection_id)
    return connection


async def _get_job(tx: Transaction, job_id: UUID, tenant_id: str | None) -> Job:
    job = await jobs.get(tx, job_id, tenant_id)
    if job is None:
        raise _unknown("job", job_id)
    return job


def _unknown(what: str, id_: UUID) -> LookupError:
    return LookupError(f"there is no {what} {id_}")


def _check_text(
    name: str, text: str, *, characters: int | None = None, octets: int | None = None
) -> None:
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(f"{name} is {text!r}; it must be a non-empty text without NUL")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds a lone surrogate") from None
    if characters is not None and len(text) > characters:
        raise ValueError(f"{name} has {len(text)} characters; {characters} is the most")
    if octets is not None and size > octets:
        raise ValueError(f"{name} has {size} bytes; {octets} is the most")


def _check_config(config: dict[str, Any] | None) -> None:
    if config is None:
        return
    if not isinstance(config, dict):
        raise ValueError(f"config is {type(config).__name__}; it must be an object")
    _json_or_value_error(config, limit=MAX_CONFIG_BYTES, where="config")


def _json_or_value_error(value: Any, *, limit: int, where: str) -> str:
    try:
        return encode_json(value, limit=limit, where=where)
    except ContractError as error:
        raise ValueError(str(error)) from None


def _check_choice(name: str, value: str, choices: Any) -> None:
    if value not in list(choices):
        known = ", ".join(choices)
        raise ValueError(f"{name} is {value!r}; it must be one of {known}")
