"""What people do with connections: add, look, pause, resume, change, delete."""

import json
from typing import Any
from uuid import UUID

from syncline.clock import new_id
from syncline.engine.connection_batches import ConnectionBatches, check_interval
from syncline.engine.connection_listing import ConnectionListing
from syncline.engine.desk import (
    check_config,
    check_text,
    get_connection,
    json_or_value_error,
    lock_connection,
    not_found,
)
from syncline.model import Connection, ConnectionStatus
from syncline.store import connections, jobs, signals
from syncline.store.pool import Transaction
from syncline.store.schedule import rfc3339

SIGNALS_A_BATCH = 10_000
ACTIVE = ConnectionStatus.ACTIVE


class Connections(ConnectionListing, ConnectionBatches):
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
        check_text("tenant_id", tenant_id, characters=255)
        check_text("provider_slug", provider_slug, characters=100)
        check_text("external_id", external_id, octets=1024)
        check_config(config)
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
            return await get_connection(tx, connection_id, tenant_id)

        return await self._pool.retrying(read)

    async def pause(
        self,
        connection_id: UUID,
        *,
        reason: str | None = None,
        by: str | None = None,
        tenant_id: str | None = None,
    ) -> Connection:
        """Stop scheduling; queued jobs are cancelled, a run in progress keeps what it brings."""

        async def change(tx: Transaction) -> Connection:
            locked = await lock_connection(tx, connection_id, tenant_id)
            if locked.status == ConnectionStatus.REVOKED:
                raise ValueError(f"connection {connection_id} is revoked and cannot be paused")
            now = await self._clock.now(tx)
            why = {"why": reason or "paused", "since": rfc3339(now), "evidence": None}
            if by is not None:
                why["by"] = by
            status = ConnectionStatus.PAUSED
            await connections.set_status(tx, [(connection_id, status, json.dumps(why))], now=now)
            await jobs.cancel_queued(tx, [connection_id], now=now)
            return await get_connection(tx, connection_id, tenant_id)

        return await self._pool.retrying(change)

    async def resume(self, connection_id: UUID, *, tenant_id: str | None = None) -> Connection:
        """Make a connection active again, with its cursor; the next tick schedules it."""

        async def change(tx: Transaction) -> Connection:
            locked = await lock_connection(tx, connection_id, tenant_id)
            if locked.status == ConnectionStatus.REVOKED:
                raise ValueError(f"connection {connection_id} is revoked and cannot be resumed")
            if locked.status != ACTIVE:
                now = await self._clock.now(tx)
                await connections.set_status(tx, [(connection_id, ACTIVE, None)], now=now)
            return await get_connection(tx, connection_id, tenant_id)

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
            text = json_or_value_error(
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
        while not keep_signals and await self._pool.retrying(remove_signals) > 0:
            found = True
        if not found:
            raise not_found("connection", connection_id)

    async def _set_key(
        self, connection_id: UUID, key: str, text: str | None, tenant_id: str | None
    ) -> Connection:
        async def change(tx: Transaction) -> Connection:
            await lock_connection(tx, connection_id, tenant_id)
            now = await self._clock.now(tx)
            await connections.set_sync_key(tx, connection_id, key, text, now=now)
            return await get_connection(tx, connection_id, tenant_id)

        return await self._pool.retrying(change)

    def _check_interval(self, seconds: int) -> None:
        check_interval(seconds, self._settings.scheduler.max_overridden_interval_seconds)
