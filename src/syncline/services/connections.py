"""What people do with connections: add, look, pause, resume, change, delete."""

import json
from datetime import datetime
from typing import Any
from uuid import UUID

from syncline.clock import new_id
from syncline.errors import Changed, Conflict, NotFound
from syncline.model import Connection, ConnectionStatus
from syncline.services.base import Once
from syncline.services.connection_batches import (
    ConnectionBatches,
    NewConnection,
    check_new,
    check_room,
    make,
)
from syncline.services.connection_credentials import ConnectionCredentials
from syncline.services.connection_listing import ConnectionListing
from syncline.services.edits import Edit, edit_towards, version_of
from syncline.services.validation import (
    check_text,
    get_connection,
    lock_connection,
)
from syncline.store.data import connections, signals
from syncline.store.data import credentials as stored_credentials
from syncline.store.pool import Transaction
from syncline.store.queue import jobs
from syncline.text import rfc3339

SIGNALS_A_BATCH = 10_000
ACTIVE = ConnectionStatus.ACTIVE


class Connections(ConnectionListing, ConnectionBatches, ConnectionCredentials):
    async def create(
        self,
        *,
        tenant_id: str,
        provider_slug: str,
        external_id: str,
        config: dict[str, Any] | None = None,
        interval_seconds: int | None = None,
        credentials: dict[str, Any] | None = None,
        at_most: int | None = None,
        once: Once[Connection] | None = None,
    ) -> Connection:
        """Add an active connection; bad input, or a key that is taken, raises ValueError.

        With `at_most`, so does one that would give its tenant more connections than that.
        Credentials are stored encrypted, or refused where there is no key; nothing returns them.
        """
        new = NewConnection(tenant_id, provider_slug, external_id, config, interval_seconds)
        check_new(new, self._longest_interval)
        self._check_credentials(credentials)
        connection_id = new_id()

        async def insert(tx: Transaction) -> Connection:
            now = await self._clock.now(tx)
            connection = make(new, connection_id, now)
            existing = await connections.insert(tx, connection, now=now)
            if existing != connection_id:
                key = (tenant_id, provider_slug, external_id)
                raise Conflict(existing, reason=f"already has the key {key}")
            if credentials is not None:
                await self._put(tx, tenant_id, connection_id, credentials, now)
            await check_room(tx, {tenant_id}, at_most)
            return connection

        return await self._change(insert, once)

    async def ensure(
        self,
        *,
        tenant_id: str,
        provider_slug: str,
        external_id: str,
        config: dict[str, Any] | None = None,
        interval_seconds: int | None = None,
        credentials: dict[str, Any] | None = None,
    ) -> Connection:
        """Add a connection, or return the one that has this key, with config and interval set.

        For an application that states its connections at each start. What is left out stays as it
        is, and so does the status. Credentials are stored where there are none: those that are
        there may have been renewed since.
        """
        new = NewConnection(tenant_id, provider_slug, external_id, config, interval_seconds)
        check_new(new, self._longest_interval)
        self._check_credentials(credentials)
        connection_id = new_id()

        async def insert_or_edit(tx: Transaction) -> Connection:
            now = await self._clock.now(tx)
            found_id = await connections.insert(tx, make(new, connection_id, now), now=now)
            await lock_connection(tx, found_id, tenant_id)
            found = await get_connection(tx, found_id, tenant_id)
            await self._apply(tx, found_id, edit_towards(found, config, interval_seconds), now)
            if credentials is not None and not await stored_credentials.read(tx, [found_id]):
                await self._put(tx, tenant_id, found_id, credentials, now)
            return await get_connection(tx, found_id, tenant_id)

        return await self._change(insert_or_edit)

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
        expected: str | None = None,
    ) -> Connection:
        """Stop scheduling; queued jobs are cancelled, a run in progress keeps what it brings."""
        if reason is not None:
            check_text("reason", reason)

        async def change(tx: Transaction) -> Connection:
            locked = await lock_connection(tx, connection_id, tenant_id)
            await check_unchanged(tx, connection_id, expected)
            if locked.status == ConnectionStatus.REVOKED:
                raise Conflict(connection_id, reason="is revoked and cannot be paused")
            now = await self._clock.now(tx)
            why = {"why": reason or "paused", "since": rfc3339(now), "evidence": None}
            if by is not None:
                why["by"] = by
            status = ConnectionStatus.PAUSED
            await connections.set_status(tx, [(connection_id, status, json.dumps(why))], now=now)
            await jobs.cancel_queued(tx, [connection_id], now=now)
            return await get_connection(tx, connection_id, tenant_id)

        return await self._pool.retrying(change)

    async def resume(
        self, connection_id: UUID, *, tenant_id: str | None = None, expected: str | None = None
    ) -> Connection:
        """Make a connection active again, with its cursor; the next tick schedules it."""

        async def change(tx: Transaction) -> Connection:
            locked = await lock_connection(tx, connection_id, tenant_id)
            await check_unchanged(tx, connection_id, expected)
            if locked.status == ConnectionStatus.REVOKED:
                raise Conflict(connection_id, reason="is revoked and cannot be resumed")
            if locked.status != ACTIVE:
                now = await self._clock.now(tx)
                await connections.set_status(tx, [(connection_id, ACTIVE, None)], now=now)
            return await get_connection(tx, connection_id, tenant_id)

        return await self._pool.retrying(change)

    async def set_interval(
        self, connection_id: UUID, interval_seconds: int | None, *, tenant_id: str | None = None
    ) -> Connection:
        """Change the interval, or go back to the default with None; the next tick heeds it."""
        edit = Edit(interval_seconds=interval_seconds)
        return await self.edit(connection_id, edit, tenant_id=tenant_id)

    async def set_cursor(
        self, connection_id: UUID, cursor: Any, *, tenant_id: str | None = None
    ) -> Connection:
        """Change where the next run starts from, or start from nothing with None.

        A run in progress keeps what it brings, but not its cursor.
        """
        return await self.edit(connection_id, Edit(cursor=cursor), tenant_id=tenant_id)

    async def delete(
        self,
        connection_id: UUID,
        *,
        keep_signals: bool = False,
        tenant_id: str | None = None,
        expected: str | None = None,
    ) -> None:
        """Remove a connection with its jobs, and its signals unless they are to be kept.

        A deletion that was cut short can be called again to remove the signals left behind.
        """

        async def remove(tx: Transaction) -> bool:
            locked = await connections.lock(tx, [connection_id])
            found = locked.get(connection_id)
            if found is None or tenant_id not in (None, found.tenant_id):
                return False
            await check_unchanged(tx, connection_id, expected)
            return await connections.delete(tx, connection_id)

        async def remove_signals(tx: Transaction) -> int:
            return await signals.delete_batch(tx, connection_id, tenant_id, limit=SIGNALS_A_BATCH)

        found = await self._pool.retrying(remove)
        if found:
            await self._files.forget(connection_id)
        while not keep_signals and await self._pool.retrying(remove_signals) > 0:
            found = True
        if not found:
            raise NotFound("connection", connection_id)

    async def edit(
        self,
        connection_id: UUID,
        edit: Edit,
        *,
        tenant_id: str | None = None,
        expected: str | None = None,
    ) -> Connection:
        """Change what the edit names, together; `expected` is the version that was read before."""
        self._texts(edit)  # a bad value is refused before anything is asked

        async def change(tx: Transaction) -> Connection:
            await lock_connection(tx, connection_id, tenant_id)
            await check_unchanged(tx, connection_id, expected)
            await self._apply(tx, connection_id, edit, await self._clock.now(tx))
            return await get_connection(tx, connection_id, tenant_id)

        return await self._change(change)

    async def _apply(self, tx: Transaction, connection_id: UUID, edit: Edit, now: datetime) -> None:
        """Change a connection, which is locked."""
        texts = self._texts(edit)
        for key, text in texts.items():
            await connections.set_sync_key(tx, connection_id, key, text, now=now)
        if "cursor" in texts:
            await jobs.forget_cursors(tx, connection_id)
        if edit.config is not None:
            config = json.dumps(edit.config)
            await connections.set_config(tx, connection_id, config, now=now)

    def _texts(self, edit: Edit) -> dict[str, str | None]:
        return edit.texts(self._longest_interval, self._settings.executor.max_cursor_bytes)

    @property
    def _longest_interval(self) -> int:
        return self._settings.scheduler.max_overridden_interval_seconds


async def check_unchanged(tx: Transaction, connection_id: UUID, expected: str | None) -> None:
    """Refuse to change a connection, which is locked, that is not as it was read."""
    if expected is None:
        return
    present = version_of(await get_connection(tx, connection_id, None))
    if present != expected:
        raise Changed(connection_id, present)
